"""Sort the columns of a matrix, many at once.

A sorting network is a fixed list of comparators (i, j): put the smaller value in row i and the larger in row j. As it
does not depend on the values, each comparator is a minimum and a maximum of whole vectors of columns. Only comparators
that can reach a wanted row of the result are kept.

Floats are compared as integers, whose order is total: -0.0 comes before 0.0, and no result depends on the order of the
rows. Work is done on copies of a few hundred columns; the matrix is never copied as a whole.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Matrix, Rows
from sottovoce.threats.defences.spread import spread

__all__ = ["closest_mean", "middle_mean", "network"]

_TILE: Final = 1 << 16  # values of a copy: 256 kB, which stay in a core's own cache


def middle_mean(updates: Matrix, rows: Rows, low: int, high: int) -> Vector:
    """Return the mean of the sorted values low to high - 1 of each column."""
    result = np.empty(updates.shape[1], np.float32)
    comparators, lanes, bits = network(len(rows), low, high), _lanes(rows), updates.view(np.int32)
    spread(
        lambda start, stop: _middle(bits, rows, comparators, lanes, start, stop, low, high, result), updates.shape[1]
    )
    return result


def closest_mean(updates: Matrix, rows: Rows, kept: int) -> Vector:
    """Return the mean of the `kept` values of each column that lie closest to its median; of two as close, the lower.

    In a sorted column they are neighbours: what must be found is where they begin.
    """
    result = np.empty(updates.shape[1], np.float32)
    comparators, lanes, bits = network(len(rows), 0, len(rows)), _lanes(rows), updates.view(np.int32)
    spread(lambda start, stop: _closest(bits, rows, comparators, lanes, start, stop, kept, result), updates.shape[1])
    return result


@lru_cache(maxsize=64)
def network(count: int, low: int, high: int) -> NDArray[np.int32]:
    """Return comparators after which the rows low to high - 1 are those of the sorted columns.

    Batcher's merge exchange (Knuth, The Art of Computer Programming 3, algorithm 5.2.2M), which sorts any number.
    """
    live = np.zeros(count, bool)
    live[low:high] = True
    kept: list[tuple[int, int]] = []
    for lower, upper in reversed(_merge_exchange(count)):
        if live[lower] or live[upper]:
            live[lower] = live[upper] = True
            kept.append((lower, upper))
    return np.array(kept[::-1], np.int32).reshape(-1, 2)


def _merge_exchange(count: int) -> list[tuple[int, int]]:
    comparators: list[tuple[int, int]] = []
    top = 1 << max(0, (count - 1).bit_length() - 1) if count > 1 else 0
    size = top
    while size:
        step, rest, distance = top, 0, size
        while True:
            comparators += [(i, i + distance) for i in range(count - distance) if i & size == rest]
            if step == size:
                break
            distance, step, rest = step - size, step >> 1, size
        size >>= 1
    return comparators


def _lanes(rows: Rows) -> int:
    """Return how many columns are sorted at once."""
    return max(64, min(512, _TILE // max(1, len(rows)) // 64 * 64))


@njit(cache=True, nogil=True, inline="always")
def _key(bits):  # type: ignore[no-untyped-def]
    """Turn the bits of a float into an integer of the same order, and back: the sign turns the other bits over."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def _sort(bits, rows, comparators, tile, start, width):  # type: ignore[no-untyped-def]
    """Fill the tile with the keys of some columns, and sort it; lanes after the last column hold what was there."""
    for row in range(rows.size):
        source, target = bits[rows[row]], tile[row]
        for lane in range(width):
            target[lane] = _key(source[start + lane])
    for index in range(comparators.shape[0]):
        lower, upper = tile[comparators[index, 0]], tile[comparators[index, 1]]
        for lane in range(lower.size):
            one, other = lower[lane], upper[lane]
            lower[lane] = min(one, other)
            upper[lane] = max(one, other)


@njit(cache=True, nogil=True)
def _restore(tile, low, high):  # type: ignore[no-untyped-def]
    """Turn keys back into the bits of floats."""
    for row in range(low, high):
        keys = tile[row]
        for lane in range(keys.size):
            keys[lane] = _key(keys[lane])


@njit(cache=True, nogil=True)
def _middle(bits, rows, comparators, lanes, start, stop, low, high, result):  # type: ignore[no-untyped-def]
    tile = np.zeros((rows.size, lanes), np.int32)
    values = tile.view(np.float32)
    total = np.empty(lanes, np.float64)
    for first in range(start, stop, lanes):
        width = min(lanes, stop - first)
        _sort(bits, rows, comparators, tile, first, width)
        _restore(tile, low, high)
        total[:] = 0.0
        for row in range(low, high):
            source = values[row]
            for lane in range(lanes):
                total[lane] += np.float64(source[lane])
        for lane in range(width):
            result[first + lane] = np.float32(total[lane] / (high - low))


@njit(cache=True, nogil=True)
def _closest(bits, rows, comparators, lanes, start, stop, kept, result):  # type: ignore[no-untyped-def]
    count = rows.size
    tile = np.zeros((count, lanes), np.int32)
    values = tile.view(np.float32)
    total, median = np.empty(lanes, np.float64), np.empty(lanes, np.float64)
    begin = np.empty(lanes, np.int64)
    for first in range(start, stop, lanes):
        width = min(lanes, stop - first)
        _sort(bits, rows, comparators, tile, first, width)
        _restore(tile, 0, count)
        for lane in range(lanes):
            median[lane] = (np.float64(values[(count - 1) // 2, lane]) + np.float64(values[count // 2, lane])) / 2
            begin[lane], total[lane] = 0, 0.0
        # The window moves up while the value above it is closer than its lowest: once it is not, it never is again.
        for row in range(count - kept):
            for lane in range(lanes):
                above = np.abs(np.float64(values[row + kept, lane]) - median[lane])
                below = np.abs(np.float64(values[row, lane]) - median[lane])
                begin[lane] += above < below
        # Only what is inside is ever added: a huge value that is added and taken away again would leave its rounding.
        for row in range(count):
            for lane in range(lanes):
                inside = (begin[lane] <= row) & (row < begin[lane] + kept)
                total[lane] += np.float64(values[row, lane]) if inside else 0.0
        for lane in range(width):
            result[first + lane] = np.float32(total[lane] / kept)
