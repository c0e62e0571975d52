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
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Matrix, Rows
from sottovoce.threats.defences.spread import spread

_TILE: Final = 1 << 16  # values of a copy: 256 kB, which stay in a core's own cache


def middle_mean(updates: Matrix, rows: Rows, low: int, high: int) -> Vector:
    """Return the mean of the sorted values low to high - 1 of each column."""
    work, library = _ColumnWork(updates, rows, network(len(rows), low, high)), native.required("a defence")

    def part(start: int, stop: int) -> None:
        tile, total = np.zeros((len(rows), work.lanes), np.int32), np.empty(work.lanes, np.float64)
        span = start, stop, low, high, native.place(work.result)
        library.middle(*work.places, *span, native.place(tile), native.place(total))

    spread(part, updates.shape[1])
    return work.result


def closest_mean(updates: Matrix, rows: Rows, kept: int) -> Vector:
    """Return the mean of the `kept` values of each column that lie closest to its median; of two as close, the lower.

    In a sorted column they are neighbours: what must be found is where they begin.
    """
    work, library = _ColumnWork(updates, rows, network(len(rows), 0, len(rows))), native.required("a defence")

    def part(start: int, stop: int) -> None:
        tile, room = np.zeros((len(rows), work.lanes), np.int32), np.empty((2, work.lanes), np.float64)
        begin = np.empty(work.lanes, np.int64)
        span = start, stop, kept, native.place(work.result)
        library.closest(*work.places, *span, native.place(tile), native.place(room), native.place(begin))

    spread(part, updates.shape[1])
    return work.result


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


class _ColumnWork:
    """A matrix, its rows and comparators, kept in memory, as the compiled functions take them; room for the result."""

    def __init__(self, updates: Matrix, rows: Rows, comparators: NDArray[np.int32]) -> None:
        self.kept = np.ascontiguousarray(updates, np.float32), np.ascontiguousarray(rows, np.int64), comparators
        self.lanes = _lanes(rows)
        self.result: Vector = np.empty(updates.shape[1], np.float32)
        matrix, used, network = (native.place(part) for part in self.kept)
        self.places = matrix, updates.shape[1], used, len(rows), network, len(comparators), self.lanes
