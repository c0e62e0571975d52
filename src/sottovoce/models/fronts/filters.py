"""Filters of the image fronts: Morlet waves, and Gaussian windows as matrices that blur and thin out an axis."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def morlet(size: int, angle: float, *, sigma: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """Return a wave under a Gaussian, (size, size), with mean zero.

    psi(u, v) = (exp(i xi u) - beta) exp(-(u^2 + slant^2 v^2) / (2 sigma^2)), u along `angle` and v across, xi =
    `frequency` in radians a pixel, beta such that the sum over all pixels is zero.
    """
    down, right = _places(size)
    along, across = right * math.cos(angle) + down * math.sin(angle), down * math.cos(angle) - right * math.sin(angle)
    window = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    wave = window * np.exp(1j * frequency * along)
    return np.asarray(wave - window * (wave.sum() / window.sum()))


def gaussian(size: int, sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian, (size, size), whose sum is 1."""
    down, right = _places(size)
    window = np.exp(-(down**2 + right**2) / (2 * sigma**2))
    return np.asarray(window / window.sum())


def thinning(length: int, step: int, sigma: float) -> NDArray[np.float32]:
    """Return the matrix that blurs an axis by a Gaussian and keeps one of `step` places: (places, length).

    Place i lies in the middle of pixels step * i to step * (i + 1) - 1. Beyond its ends the axis is mirrored. Rows sum
    to 1.

    >>> thinning(8, 4, 1.6).shape
    (2, 8)
    """
    places, reach = -(-length // step), math.ceil(4 * sigma)
    matrix = np.zeros((places, length))
    for place in range(places):
        middle = step * (place + 0.5) - 0.5
        pixels = np.arange(math.floor(middle) - reach, math.floor(middle) + reach + 2)
        np.add.at(matrix[place], _mirror(pixels, length), np.exp(-((pixels - middle) ** 2) / (2 * sigma**2)))
    return np.asarray(matrix / matrix.sum(1, keepdims=True), np.float32)


def mirrored(length: int, margin: int) -> NDArray[np.int64]:
    """Return which pixel stands at each place of an axis with margins, whose ends are mirrors; any margin will do.

    >>> mirrored(3, 2).tolist()
    [1, 0, 0, 1, 2, 2, 1]
    """
    return _mirror(np.arange(-margin, length + margin), length)


def _mirror(pixels: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    folded = pixels % (2 * length)
    return np.where(folded < length, folded, 2 * length - 1 - folded)


def _places(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    reach = (size - 1) / 2
    down, right = np.mgrid[0:size, 0:size] - reach
    return down, right
