"""Features of a long table, held small: of each column what is not zero, and whole rows only when they are asked for.

A column of a table becomes many features of which one or two are not zero: its category, its two buckets, the two
powers of two beside a number. Held as floats, a table of words is several times as large as its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

AT_ONCE: Final = 1 << 16  # rows that are widened together where all are read


@dataclass(frozen=True, eq=False)
class CompactColumn:
    """What is not zero among the features of one column: its places in each row, and the values there.

    `places` is None where every feature is kept. `values` is one number where all that is not zero is that number.
    """

    width: int
    places: NDArray[Any] | None  # (records, most); `width` stands for none
    values: NDArray[np.float32] | np.float32

    @classmethod
    def empty(cls, records: int, width: int, most: int, constant: float | None) -> CompactColumn:
        """Return room for the features of so many records, of which at most `most` in a row are not zero."""
        if most >= width and constant is None:
            return cls(width, None, np.zeros((records, width), np.float32))
        kind = np.min_scalar_type(width)
        values = np.float32(constant) if constant is not None else np.zeros((records, most), np.float32)
        return cls(width, np.full((records, most), width, kind), values)

    def store(self, start: int, block: NDArray[Any]) -> None:
        """Keep the features of some consecutive records."""
        rows = slice(start, start + len(block))
        if self.places is None:
            self._kept[rows] = block
            return
        at, feature = np.nonzero(block)
        # The first of a row is number 0, the next number 1: as many before it in its row.
        number = np.arange(len(at)) - np.searchsorted(at, at)
        self.places[rows][at, number] = feature
        if isinstance(self.values, np.ndarray):
            self.values[rows][at, number] = block[at, feature]

    @property
    def _kept(self) -> NDArray[np.float32]:
        return np.asarray(self.values)

    def of(self, rows: Any) -> CompactColumn:
        """Return the same of some records."""
        values = self.values[rows] if isinstance(self.values, np.ndarray) else self.values
        return replace(self, places=None if self.places is None else self.places[rows], values=values)

    def write(self, out: NDArray[np.float32]) -> None:
        """Write the features of every record into zeros."""
        if self.places is None:
            out[:] = self._kept
            return
        for number in range(self.places.shape[1]):
            there = np.flatnonzero(self.places[:, number] < self.width)
            value = self.values[there, number] if isinstance(self.values, np.ndarray) else self.values
            out[there, self.places[there, number]] = value

    @property
    def nbytes(self) -> int:
        """Return how much memory it takes."""
        return (0 if self.places is None else self.places.nbytes) + self.values.nbytes


@final
@dataclass(frozen=True, eq=False)
class CompactFeatures:
    """Rows of float32 features that are made when they are asked for; read like an array of two axes, never written."""

    columns: tuple[CompactColumn, ...]
    records: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the array that it stands for."""
        return self.records, sum(column.width for column in self.columns)

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return 2

    @property
    def size(self) -> int:
        """Count the numbers of the array that it stands for."""
        return self.records * self.shape[1]

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """Return the type of a feature."""
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        """Return how much memory it takes, not how much the array would."""
        return sum(column.nbytes for column in self.columns)

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        if isinstance(rows, tuple):
            return np.asarray(self[rows[0]][(..., *rows[1:])])
        if isinstance(rows, int | np.integer):
            return np.asarray(self[[rows]][0])
        return self.only(rows)._widened()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        wide = self._widened()
        return wide if dtype is None else wide.astype(dtype, copy=False)

    def only(self, rows: Any) -> CompactFeatures:
        """Return some of the records, held in the same way."""
        chosen = tuple(column.of(rows) for column in self.columns)
        return CompactFeatures(chosen, len(np.empty(self.records, np.bool_)[rows]))

    def stretched(self, places: Iterable[int]) -> CompactFeatures:
        """Return the same with 2 v - 1 in the place of some features, each of which is kept in every row."""
        starts = np.cumsum([0, *(column.width for column in self.columns)])
        made = list(self.columns)
        for place in places:
            number = int(np.searchsorted(starts, place, side="right")) - 1
            column = made[number]
            if column.places is not None:
                raise ValueError(f"feature {place} is kept only where it is not zero")
            values = np.array(column.values)
            within = place - int(starts[number])
            values[:, within] = 2 * values[:, within] - 1
            made[number] = replace(column, values=values)
        return replace(self, columns=tuple(made))

    def _widened(self) -> NDArray[np.float32]:
        wide, start = np.zeros(self.shape, np.float32), 0
        for column in self.columns:
            column.write(wide[:, start : start + column.width])
            start += column.width
        return wide


def row_blocks(x: Any) -> Iterator[NDArray[Any]]:
    """Yield all rows of an array in order; of compact features some at a time, so that they are never wide at once."""
    if not isinstance(x, CompactFeatures):
        yield x
        return
    for start in range(0, len(x), AT_ONCE):
        yield x[start : start + AT_ONCE]


def chosen_rows(x: Any, rows: Any) -> Any:
    """Return some rows of an array, held as the array is."""
    return x.only(rows) if isinstance(x, CompactFeatures) else x[rows]


def stretched(x: Any, places: Sequence[int]) -> Any:
    """Return rows with 2 v - 1 in the place of some features: from [0, 1] to [-1, 1]."""
    if isinstance(x, CompactFeatures):
        return x.stretched(places)
    wide = np.array(x, np.float32)
    wide[:, list(places)] = 2 * wide[:, list(places)] - 1
    return wide
