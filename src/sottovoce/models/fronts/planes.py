"""Scattering coefficients of many images, fast.

Sixteen images lie side by side, pixel by pixel, so that every loop runs over long rows of neighbours whatever the size
of an image, and becomes vector code. A plane is (height, width * LANES). Slices stand where an index would do: numba
must know that none is negative.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["LANES", "Bank", "scatter", "woven"]

LANES: Final = 16
Floats = NDArray[np.float32]


class Bank(NamedTuple):
    """All that `scatter` needs beside images; kernels are (orientations, size, size), their size a multiple of 3."""

    real: Floats
    imaginary: Floats
    halves: tuple[Floats, Floats]  # rows and columns: to half the size
    places: tuple[Floats, Floats]  # from the whole image to the places
    places_of_half: tuple[Floats, Floats]  # from half the size to the places
    margins: tuple[NDArray[np.int64], NDArray[np.int64]]
    margins_of_half: tuple[NDArray[np.int64], NDArray[np.int64]]


def woven(x: NDArray[Any], scale: float) -> Floats:
    """Return images (records, height, width) times `scale` as planes (blocks, height, width * LANES); a rest is 0."""
    records, height, width = x.shape
    blocks = -(-records // LANES)
    planes = np.zeros((blocks * LANES, height, width), np.float32)
    np.multiply(x, np.float32(scale), out=planes[:records])
    lanes = planes.reshape(blocks, LANES, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(lanes).reshape(blocks, height, width * LANES)


@njit(cache=True, nogil=True)
def scatter(planes, bank, out):  # type: ignore[no-untyped-def]
    """Fill `out` (blocks, 1 + 2 L + L^2, rows, columns * LANES) with orders 0, 1 and 2 of planes (blocks, ...)."""
    orientations, size = bank.real.shape[0], bank.real.shape[1]
    height, width = planes.shape[1], planes.shape[2]
    small, narrow = bank.halves[0].shape[0], bank.halves[1].shape[0] * LANES
    margin = (size - 1) * LANES
    whole = np.empty((height + size - 1, width + margin), np.float32)
    half = np.empty((small + size - 1, narrow + margin), np.float32)
    first, second = np.empty((height, width), np.float32), np.empty((small, narrow), np.float32)
    third = np.empty((small, narrow), np.float32)
    for block in range(planes.shape[0]):
        plane, found = planes[block], out[block]
        _thin(plane, bank.places, found[0])
        _thin(plane, bank.halves, second)
        _frame(second, bank.margins_of_half, half)
        for angle in range(orientations):
            _modulus(half, bank.real[angle], bank.imaginary[angle], third)
            _thin(third, bank.places_of_half, found[1 + orientations + angle])
        _frame(plane, bank.margins, whole)
        for angle in range(orientations):
            _modulus(whole, bank.real[angle], bank.imaginary[angle], first)
            _thin(first, bank.places, found[1 + angle])
            _thin(first, bank.halves, second)
            _frame(second, bank.margins_of_half, half)
            for other in range(orientations):
                _modulus(half, bank.real[other], bank.imaginary[other], third)
                _thin(third, bank.places_of_half, found[1 + (2 + angle) * orientations + other])


@njit(cache=True, nogil=True)
def _modulus(framed, real, imaginary, out):  # type: ignore[no-untyped-def]
    """Fill `out` with |framed * (real + i imaginary)|; three taps at a time, so that sums are stored less often."""
    size, length = real.shape[0], out.shape[1]
    cosine, sine = np.empty(length, np.float32), np.empty(length, np.float32)
    for row in range(out.shape[0]):
        cosine[:] = np.float32(0)
        sine[:] = np.float32(0)
        for down in range(size):
            pixels = framed[row + down]
            for right in range(0, size, 3):
                place = right * LANES
                x0 = pixels[place : place + length]
                x1 = pixels[place + LANES : place + LANES + length]
                x2 = pixels[place + 2 * LANES : place + 2 * LANES + length]
                r0, r1, r2 = real[down, right], real[down, right + 1], real[down, right + 2]
                i0, i1, i2 = imaginary[down, right], imaginary[down, right + 1], imaginary[down, right + 2]
                for i in range(length):
                    cosine[i] += r0 * x0[i] + r1 * x1[i] + r2 * x2[i]
                    sine[i] += i0 * x0[i] + i1 * x1[i] + i2 * x2[i]
        target = out[row]
        for i in range(length):
            target[i] = np.sqrt(cosine[i] * cosine[i] + sine[i] * sine[i])


@njit(cache=True, nogil=True)
def _thin(plane, matrices, out):  # type: ignore[no-untyped-def]
    """Fill `out` with rows * plane * columns^T."""
    rows, columns = matrices
    line = np.empty(plane.shape[1], np.float32)
    for place in range(rows.shape[0]):
        line[:] = np.float32(0)
        for row in range(rows.shape[1]):
            weight = rows[place, row]
            if weight != 0:
                pixels = plane[row]
                for i in range(line.size):
                    line[i] += weight * pixels[i]
        for column in range(columns.shape[0]):
            target = out[place, column * LANES : (column + 1) * LANES]
            target[:] = np.float32(0)
            for other in range(columns.shape[1]):
                weight = columns[column, other]
                if weight != 0:
                    pixels = line[other * LANES : (other + 1) * LANES]
                    for i in range(LANES):
                        target[i] += weight * pixels[i]


@njit(cache=True, nogil=True)
def _frame(plane, margins, out):  # type: ignore[no-untyped-def]
    """Fill `out` with a plane and its margins."""
    rows, columns = margins
    for row in range(rows.size):
        pixels, target = plane[rows[row]], out[row]
        for column in range(columns.size):
            source = columns[column] * LANES
            for i in range(LANES):
                target[column * LANES + i] = pixels[source + i]
