"""Scattering coefficients of many images, fast.

Sixteen images lie side by side, pixel by pixel, so that every loop runs over long rows of neighbours whatever the size
of an image, and becomes vector code. A plane is (height, width * LANES).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native

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


def scatter(planes: Floats, bank: Bank, out: Floats) -> None:
    """Fill `out` (blocks, 1 + 2 L + L^2, rows, columns * LANES) with orders 0, 1 and 2 of planes (blocks, ...)."""
    if (library := native.library()) is None:
        for plane, found in zip(planes, out, strict=True):
            _scatter(plane, bank, found)
        return
    blocks, height, width = planes.shape
    parts = (bank.real, bank.imaginary, *bank.halves, *bank.places, *bank.places_of_half)
    real, imaginary, *matrices = (np.ascontiguousarray(part, np.float32) for part in parts)
    margins = [np.ascontiguousarray(part, np.int64) for part in (*bank.margins, *bank.margins_of_half)]
    failed = library.scatter(
        *(native.place(planes), blocks, height, width // LANES),
        *(native.place(real), native.place(imaginary), *real.shape[:2]),
        *(native.place(matrices[0]), native.place(matrices[1]), len(matrices[0]), len(matrices[1])),
        *(native.place(part) for part in matrices[2:]),
        *(len(matrices[2]), len(matrices[3])),
        *(native.place(part) for part in margins),
        native.place(out),
    )
    if failed:
        raise MemoryError("no memory for the scattering of images")


def _scatter(plane: Floats, bank: Bank, found: Floats) -> None:
    waves = list(zip(bank.real, bank.imaginary, strict=True))
    count = len(waves)
    found[0] = _thin(plane, bank.places)
    half = _frame(_thin(plane, bank.halves), bank.margins_of_half)
    whole = _frame(plane, bank.margins)
    for angle, wave in enumerate(waves):
        found[1 + count + angle] = _thin(_modulus(half, *wave), bank.places_of_half)
        first = _modulus(whole, *wave)
        found[1 + angle] = _thin(first, bank.places)
        later = _frame(_thin(first, bank.halves), bank.margins_of_half)
        for other, second in enumerate(waves):
            found[1 + (2 + angle) * count + other] = _thin(_modulus(later, *second), bank.places_of_half)


def _modulus(framed: Floats, real: Floats, imaginary: Floats) -> Floats:
    """Return |framed * (real + i imaginary)|; three taps are added before they are added to the rest."""
    size = len(real)
    height, length = framed.shape[0] - size + 1, framed.shape[1] - (size - 1) * LANES
    sums = np.zeros((2, height, length), np.float32)
    for down in range(size):
        for right in range(0, size, 3):
            x, y, z = (
                framed[down : down + height, place * LANES : place * LANES + length]
                for place in range(right, right + 3)
            )
            for total, taps in zip(sums, (real[down], imaginary[down]), strict=True):
                total += taps[right] * x + taps[right + 1] * y + taps[right + 2] * z
    cosine, sine = sums
    return np.asarray(np.sqrt(cosine * cosine + sine * sine))


def _thin(plane: Floats, matrices: tuple[Floats, Floats]) -> Floats:
    """Return rows * plane * columns^T, added one after the other."""
    rows, columns = matrices
    lines = np.zeros((len(rows), plane.shape[1]), np.float32)
    for row, pixels in enumerate(plane):
        lines += rows[:, row, None] * pixels
    lanes = lines.reshape(len(rows), -1, LANES)
    out = np.zeros((len(rows), len(columns), LANES), np.float32)
    for other in range(columns.shape[1]):
        out += columns[:, other, None] * lanes[:, None, other]
    return out.reshape(len(rows), -1)


def _frame(plane: Floats, margins: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Floats:
    """Return a plane with its margins."""
    rows, columns = margins
    return plane.reshape(len(plane), -1, LANES)[rows][:, columns].reshape(len(rows), -1)
