"""Compare and add up the rows of a matrix.

Sums are float64 and made in an order that does not depend on threads or on the processor. Some are kept in lanes, a
fixed number of partial sums side by side: a compiler may turn these into vector code without reordering anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Matrix, Rows
from sottovoce.threats.defences.spread import spread

Wide = NDArray[np.float64]

_WHO: Final = "a defence"
_INFINITY: Final = 0x7F800000  # its bits
_TILE: Final = 16  # columns that are turned into rows at a time; these two as in native_rows.c
_PAD: Final = 8  # rows of distances are filled up to a multiple: the short ends of loops cost most


def finite_rows(updates: Matrix) -> Rows:
    """Return the rows that hold finite values only."""
    updates = np.ascontiguousarray(updates)
    library = native.required(_WHO)

    def part(start: int, stop: int) -> bool:
        # |x| as bits orders like |x|, with infinity and NaN on top.
        return bool(library.largest(native.place(updates[start]), updates.shape[1]) < _INFINITY)

    return np.flatnonzero(spread(part, len(updates), block=1))


def pairwise(updates: Matrix, rows: Rows) -> Wide:
    """Return |x_i - x_j|^2 of all pairs of rows.

    From differences and not from products: what two updates have in common cancels before it can be rounded.
    """

    matrix, library = _Matrix(updates, rows), native.required(_WHO)
    padded = -(-len(rows) // _PAD) * _PAD

    def part(start: int, stop: int) -> Wide:
        total, tile = np.zeros((len(rows), padded), np.float64), np.zeros((_TILE, padded), np.float64)
        library.pairs(*matrix.places, start, stop, native.place(total), padded, native.place(tile))
        return total

    total = np.zeros((len(rows), len(rows)), np.float64)
    for some in spread(part, updates.shape[1]):
        total += some[:, : len(rows)]
    lower = np.tril(total, -1)
    return lower + lower.T


def squared_distances(updates: Matrix, rows: Rows, center: Wide) -> Wide:
    """Return |x_i - center|^2 of each row."""

    matrix, library = _Matrix(updates, rows), native.required(_WHO)
    center = np.ascontiguousarray(center, np.float64)

    def part(start: int, stop: int) -> Wide:
        total = np.empty(len(rows), np.float64)
        library.distances(*matrix.places, native.place(center), start, stop, native.place(total))
        return total

    return _added(spread(part, updates.shape[1]), len(rows))


def products(updates: Matrix, rows: Rows, other: Vector | None = None) -> Wide:
    """Return <x_i, other> of each row, or |x_i|^2 without another vector."""

    updates, library = np.ascontiguousarray(updates, np.float32), native.required(_WHO)
    whole = None if other is None else np.ascontiguousarray(other, np.float32)

    def part(start: int, stop: int) -> Wide:
        total = np.empty(len(rows), np.float64)
        for index, row in enumerate(rows):
            left = native.place(updates[row])
            total[index] = library.product(left, left if whole is None else native.place(whole), start, stop)
        return total

    return _added(spread(part, updates.shape[1]), len(rows))


def length(vector: Wide) -> float:
    """Return |vector|; BLAS, which norms are usually taken by, adds in an order that depends on its threads."""
    return float(np.sqrt(np.sum(np.square(vector))))


def weighted_sum(updates: Matrix, rows: Rows, weights: Wide) -> Wide:
    """Return the sum of the rows, each times its weight."""
    matrix, library = _Matrix(updates, rows), native.required(_WHO)
    weights, result = np.ascontiguousarray(weights, np.float64), np.empty(updates.shape[1], np.float64)

    def part(start: int, stop: int) -> None:
        library.weighted(*matrix.places, native.place(weights), start, stop, native.place(result))

    spread(part, updates.shape[1])
    return result


def _added(parts: list[Wide], count: int) -> Wide:
    total = np.zeros(count, np.float64)
    for part in parts:
        total += part
    return total


class _Matrix:
    """Updates and the rows that are used, kept in memory, as the compiled functions take them."""

    def __init__(self, updates: Matrix, rows: Rows) -> None:
        self.updates, self.rows = np.ascontiguousarray(updates, np.float32), np.ascontiguousarray(rows, np.int64)
        self.places = native.place(self.updates), updates.shape[1], native.place(self.rows), len(rows)
