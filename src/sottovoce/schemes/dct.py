"""Take the first coefficients of orthonormal cosine transforms, at lengths that are fast."""

from __future__ import annotations

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector

__all__ = ["fast_length", "forward", "inverse"]


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
    return np.asarray(scipy.fft.dct(values, type=2, norm="ortho", axis=-1, overwrite_x=True))


def inverse(coefficients: NDArray[np.float32], length: int) -> Vector:
    """Return the signal of `length` values with these first coefficients and zeros for the rest."""
    padded = np.zeros(length, np.float32)
    padded[: coefficients.size] = coefficients
    return np.asarray(scipy.fft.idct(padded, type=2, norm="ortho", overwrite_x=True))


def _smooth(size: int) -> bool:
    for prime in (2, 3, 5, 7, 11, 13):
        while size % prime == 0:
            size //= prime
    return size == 1
