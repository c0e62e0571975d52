"""Structural similarity of two images, as its paper defines it.

Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural similarity", IEEE
Transactions on Image Processing 13(4), 2004.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from sottovoce.core.errors import InputError

__all__ = ["WINDOW", "ssim"]

WINDOW: Final = 11
_STDDEV: Final = 1.5
_K1: Final = 0.01
_K2: Final = 0.03


def ssim(one: NDArray[Any], other: NDArray[Any], *, largest: float = 1.0) -> float:
    """Return the mean structural similarity of two images (height, width, channels): 1 if equal, about 0 if unrelated.

    In each 11 x 11 window, with Gaussian weights of standard deviation 1.5 that add up to 1,

        SSIM = (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2))

    with C1 = (0.01 L)^2 and C2 = (0.03 L)^2, L = `largest` (eq. 13); the mean is over all windows that lie inside
    the image (eq. 17), and over channels.
    """
    if one.shape != other.shape or one.ndim != 3:
        raise InputError(
            f"two images of one shape (height, width, channels) are compared, got {one.shape}, {other.shape}"
        )
    if min(one.shape[:2]) < WINDOW:
        raise InputError(f"structural similarity needs images of {WINDOW} x {WINDOW} or more, got {one.shape}")
    x, y = one.astype(np.float64), other.astype(np.float64)
    mean_x, mean_y = _local(x), _local(y)
    covariance = _local(x * y) - mean_x * mean_y
    variances = _local(x * x) - mean_x**2 + _local(y * y) - mean_y**2
    c1, c2 = (_K1 * largest) ** 2, (_K2 * largest) ** 2
    similar = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return float(np.mean(similar / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))))


def _local(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean of each window that lies inside the image."""
    place = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-(place**2) / (2 * _STDDEV**2))
    weights /= weights.sum()
    inside = slice(WINDOW // 2, -(WINDOW // 2))
    return np.asarray(correlate1d(correlate1d(image, weights, axis=0), weights, axis=1)[inside, inside])
