"""Inner products that round alike on every processor, in numpy: what `native_transforms.c` computes, slower.

A compiler that may reorder a sum does so to fit the vectors of the processor at hand: 16 partial sums with AVX-512, 8
with AVX2, 4 with SSE, and a product rounded before it is added where there is no FMA. The results differ in their last
bits, and over many rounds of training these grow into visible differences. So the order of every sum is fixed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector

__all__ = ["dots", "fma"]

LANES: Final = 8
BLOCK: Final = 4 * LANES

Floats = NDArray[np.float32]


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return a * b + c, rounded once.

    A product of two float32 is exact in float64; the sum is rounded to odd there (Boldo and Melquiond 2008), so that
    rounding it to float32 is as if the sum had been exact.

    >>> x = np.float32([1 + 2**-23])
    >>> (fma(x, x, -x * x) == 2**-46).item()
    True
    """
    product, added = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + added
    share = total - product
    error = (product - (total - share)) + (added - share)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.asarray(np.where((error != 0) & even, odd, total).astype(np.float32))


def dots(rows: Floats, right: Vector) -> Vector:
    """Return the inner product of each row with a vector of whole blocks, by BLOCK partial sums."""
    sums: NDArray[Any] = np.zeros((len(rows), BLOCK), np.float32)
    for at in range(0, right.size, BLOCK):
        sums = fma(rows[:, at : at + BLOCK], right[at : at + BLOCK], sums)
    four = sums.reshape(-1, 4, LANES)
    total = (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3])
    while total.shape[1] > 1:  # the upper half is added to the lower, down to one value
        total = total[:, : total.shape[1] // 2] + total[:, total.shape[1] // 2 :]
    return np.asarray(total[:, 0])
