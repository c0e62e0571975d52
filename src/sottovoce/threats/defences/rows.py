"""Compare and add up the rows of a matrix.

Sums are float64 and made in an order that does not depend on threads or on the processor. Some are kept in lanes, a
fixed number of partial sums side by side: a compiler may turn these into vector code without reordering anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Matrix, Rows
from sottovoce.threats.defences.spread import spread

__all__ = ["Wide", "finite_rows", "length", "pairwise", "products", "squared_distances", "weighted_sum"]

Wide = NDArray[np.float64]

_LANES: Final = 64
_WIDTH: Final = 2048  # columns of a weighted sum that stay in the cache
_TILE: Final = 16  # columns that are turned into rows at a time
_PAD: Final = 8  # rows of distances are filled up to a multiple: the short ends of loops cost most


def finite_rows(updates: Matrix) -> Rows:
    """Return the rows that hold finite values only."""
    finite = np.zeros(len(updates), np.bool_)
    bits = updates.view(np.uint32)
    spread(lambda start, stop: _finite(bits, start, stop, finite), len(updates), block=1)
    return np.flatnonzero(finite)


def pairwise(updates: Matrix, rows: Rows) -> Wide:
    """Return |x_i - x_j|^2 of all pairs of rows.

    From differences and not from products: what two updates have in common cancels before it can be rounded.
    """

    def part(start: int, stop: int) -> Wide:
        total = np.zeros((len(rows), -(-len(rows) // _PAD) * _PAD), np.float64)
        _pairs(updates, rows, start, stop, total)
        return total

    total = np.zeros((len(rows), len(rows)), np.float64)
    for some in spread(part, updates.shape[1]):
        total += some[:, : len(rows)]
    lower = np.tril(total, -1)
    return lower + lower.T


def squared_distances(updates: Matrix, rows: Rows, center: Wide) -> Wide:
    """Return |x_i - center|^2 of each row."""

    def part(start: int, stop: int) -> Wide:
        total = np.empty(len(rows), np.float64)
        _distances(updates, rows, center, start, stop, total)
        return total

    return _added(spread(part, updates.shape[1]), len(rows))


def products(updates: Matrix, rows: Rows, other: Vector | None = None) -> Wide:
    """Return <x_i, other> of each row, or |x_i|^2 without another vector."""

    def part(start: int, stop: int) -> Wide:
        total = np.empty(len(rows), np.float64)
        for index, row in enumerate(rows):
            total[index] = _product(updates[row], updates[row] if other is None else other, start, stop)
        return total

    return _added(spread(part, updates.shape[1]), len(rows))


def length(vector: Wide) -> float:
    """Return |vector|; BLAS, which norms are usually taken by, adds in an order that depends on its threads."""
    return float(np.sqrt(np.sum(np.square(vector))))


def weighted_sum(updates: Matrix, rows: Rows, weights: Wide) -> Wide:
    """Return the sum of the rows, each times its weight."""
    result = np.empty(updates.shape[1], np.float64)
    spread(lambda start, stop: _weighted(updates, rows, weights, start, stop, result), updates.shape[1])
    return result


def _added(parts: list[Wide], count: int) -> Wide:
    total = np.zeros(count, np.float64)
    for part in parts:
        total += part
    return total


@njit(cache=True, nogil=True)
def _finite(bits, start, stop, finite):  # type: ignore[no-untyped-def]
    # |x| as bits orders like |x|, with infinity and NaN on top; integers, because a maximum of floats has no vectors.
    for row in range(start, stop):
        top, values = np.uint32(0), bits[row]
        for index in range(values.size):
            top = max(top, np.uint32(values[index] & np.uint32(0x7FFFFFFF)))
        finite[row] = top < np.uint32(0x7F800000)


@njit(cache=True, nogil=True)
def _pairs(updates, rows, start, stop, total):  # type: ignore[no-untyped-def]
    # A tile holds some columns as rows: a vector is then one column of many clients, and pairs need no sum across it.
    count = rows.size
    tile = np.zeros((_TILE, total.shape[1]), np.float64)
    for first in range(start, stop, _TILE):
        width = min(_TILE, stop - first)
        if width < _TILE:
            tile[:] = 0.0
        for row in range(count):
            source = updates[rows[row]]
            for column in range(width):
                tile[column, row] = np.float64(source[first + column])
        for column in range(0, _TILE, 8):
            a, b, c, d = tile[column], tile[column + 1], tile[column + 2], tile[column + 3]
            e, f, g, h = tile[column + 4], tile[column + 5], tile[column + 6], tile[column + 7]
            for row in range(1, count):
                sums = total[row]
                ar, br, cr, dr, er, fr, gr, hr = a[row], b[row], c[row], d[row], e[row], f[row], g[row], h[row]
                for other in range((row + _PAD - 1) // _PAD * _PAD):
                    da, db, dc, dd = a[other] - ar, b[other] - br, c[other] - cr, d[other] - dr
                    de, df, dg, dh = e[other] - er, f[other] - fr, g[other] - gr, h[other] - hr
                    sums[other] += ((da * da + db * db) + (dc * dc + dd * dd)) + (
                        (de * de + df * df) + (dg * dg + dh * dh)
                    )


@njit(cache=True, nogil=True)
def _distances(updates, rows, center, start, stop, total):  # type: ignore[no-untyped-def]
    lanes = np.empty(_LANES, np.float64)
    for index in range(rows.size):
        row = updates[rows[index]]
        lanes[:] = 0.0
        for first in range(start, stop, _LANES):
            for lane in range(min(_LANES, stop - first)):
                difference = np.float64(row[first + lane]) - center[first + lane]
                lanes[lane] += difference * difference
        total[index] = lanes.sum()


@njit(cache=True, nogil=True)
def _product(row, other, start, stop):  # type: ignore[no-untyped-def]
    lanes = np.zeros(_LANES, np.float64)
    for first in range(start, stop, _LANES):
        for lane in range(min(_LANES, stop - first)):
            lanes[lane] += np.float64(row[first + lane]) * np.float64(other[first + lane])
    return lanes.sum()


@njit(cache=True, nogil=True)
def _weighted(updates, rows, weights, start, stop, result):  # type: ignore[no-untyped-def]
    for first in range(start, stop, _WIDTH):
        part = result[first : min(first + _WIDTH, stop)]
        part[:] = 0.0
        for index in range(rows.size):
            row, weight = updates[rows[index]], weights[index]
            for column in range(part.size):
                part[column] += weight * np.float64(row[first + column])
