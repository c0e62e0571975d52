"""Take the first coefficients of orthonormal cosine transforms, at lengths that are fast."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.vectors import Vector

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


_WORTHWHILE: Final = 2**14  # a shorter transform takes a moment
_LARGEST_STEP: Final = 16
_TAPS: Final = 19  # a step; with this Kaiser window the stop band is 140 dB down, below the rounding of float32
_KAISER: Final = 14.5
_WINDOWS: Final = 1 << 10  # filtered at once where there is no compiled filter


def fast_length(size: int) -> int:
    """Return the least length from `size` on without a prime factor above 13.

    A transform of 8317 values, a prime, takes six times as long as one of 8320. `scipy.fft.next_fast_len` allows only
    2, 3 and 5 for real transforms and pads thirteen times as much for no gain.

    >>> fast_length(8317), fast_length(1)
    (8320, 1)
    """
    while not _smooth(size):
        size += 1
    return size


def forward(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the DCT-II of each row; `values` may be overwritten."""
    return np.asarray(_fft().dct(values, type=2, norm="ortho", axis=-1, overwrite_x=True))


def first(values: Vector, length: int, kept: int) -> Vector:
    """Return the first `kept` coefficients of the DCT-II of `values`, padded with zeros to `length`.

    When few are wanted, a low-pass filter comes first and only each `step`-th value goes on to a transform of
    length / step; what the filter did to the wanted coefficients is undone. The DCT-II takes its signal as mirrored at
    both ends; so does the filter, and as its centre lies between two values the thinned signal is mirrored the same
    way. The only error is what leaks through the stop band.
    """
    step = _step(length, kept)
    if step == 1:
        padded = np.zeros(length, np.float32)
        padded[: values.size] = values
        return forward(padded)[:kept].copy()
    taps, gain = _low_pass(length, kept, step)
    thinned = np.empty(length // step, np.float32)
    _filter(np.ascontiguousarray(values, np.float32), length, taps, step, thinned)
    return forward(thinned)[:kept] * gain


def inverse(coefficients: NDArray[np.float32], length: int) -> Vector:
    """Return the signal of `length` values with these first coefficients and zeros for the rest."""
    padded = np.zeros(length, np.float32)
    padded[: coefficients.size] = coefficients
    return np.asarray(_fft().idct(padded, type=2, norm="ortho", overwrite_x=True))


def _fft() -> Any:
    from scipy import fft  # whoever codes without transforms need not wait for it

    return fft


def _smooth(size: int) -> bool:
    for prime in (2, 3, 5, 7, 11, 13):
        while size % prime == 0:
            size //= prime
    return size == 1


def _step(length: int, kept: int) -> int:
    """Return how far a signal can be thinned so that the wanted coefficients fill half of what is left."""
    if length < _WORTHWHILE:
        return 1
    steps = range(_LARGEST_STEP, 1, -2)  # an even filter's centre lies between two values only for an even step
    return next((step for step in steps if length % step == 0 and 2 * step * (kept - 1) <= length), 1)


@lru_cache(maxsize=2)  # every client of a run asks for the same
def _low_pass(length: int, kept: int, step: int) -> tuple[Vector, Vector]:
    """Return the taps of the filter, and what undoes it on each wanted coefficient."""
    count = -(-_TAPS * step // 32) * 32  # whole vectors: what is left over would be added one by one
    place = np.arange(count) - (count - 1) / 2
    ideal = np.sinc(place / step) * np.kaiser(count, _KAISER)
    taps = (ideal / ideal.sum()).astype(np.float32)
    angle = np.pi / length * np.arange(kept)
    response = np.zeros(kept)
    for tap, at in zip(taps[count // 2 :].tolist(), place[count // 2 :].tolist(), strict=True):
        response += 2 * tap * np.cos(at * angle)
    return taps, (math.sqrt(step) / response).astype(np.float32)


def _filter(values: Vector, length: int, taps: Vector, step: int, thinned: Vector) -> None:
    """Fill `thinned` with the filtered signal at every `step`-th place, its middle between two values."""
    if (library := native.library()) is not None:
        window = np.empty_like(taps)
        signal = native.place(values), values.size, length, native.place(taps), taps.size
        library.filter(*signal, step, native.place(thinned), thinned.size, native.place(window))
        return
    padded = np.zeros(length, np.float32)
    padded[: values.size] = values
    before = (taps.size - step) // 2
    for start in range(0, thinned.size, _WINDOWS):
        part = thinned[start : start + _WINDOWS]
        places = step * np.arange(start, start + part.size)[:, None] - before + np.arange(taps.size)
        places = np.where(places < 0, -1 - places, np.minimum(places, 2 * length - 1 - places))
        part[:] = dots(padded[places], taps)
