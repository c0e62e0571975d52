"""The questions of a survey over units, as blocks of one vector that every unit adds to.

Each block answers one query, for all groups at once: a unit is in one group and adds nothing to the cells of the
others. What a unit adds to a block has a public norm, so the blocks share one clip norm: a block that gets the share f
of the budget is scaled to sqrt(f), and all of them together weigh at most one.

    query         cells of a group                             norm of a unit
    count         1                                            1
    moments       missing, u, 2 u^2 - 1                        1, or sqrt(2) with the second moment
    histogram     one for each bin                             1
    categories    one for each word, (other), (missing)        1
    correlation   1, u_i, u_i u_j of units with all columns    sqrt(1 + d + d (d + 1) / 2)

u is a number that its declared range maps to [-1, 1]. A person with several rows adds the mean of what they would add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.data.coded import CodedColumn, Codes

Query = Literal["count", "moments", "histogram", "categories", "correlation"]
Statistic = Literal["count", "missing", "mean", "stddev", "histogram", "quantiles", "categories", "correlation"]
STATISTICS: Final[tuple[Statistic, ...]] = get_args(Statistic)
MOST_CELLS: Final = 1 << 22  # of a message


class Entries(NamedTuple):
    """What some rows add to a block: a cell each, and how much; `values` None means 1."""

    rows: NDArray[np.int64]
    cells: NDArray[np.int64]
    values: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Block:
    """One query over all groups: the columns that it reads, and its cells for each group."""

    query: Query
    columns: tuple[int, ...]  # places among the survey's columns
    cells: int  # of a group
    second: bool = False  # of moments: with 2 u^2 - 1
    complete: bool = False  # of moments: no cell for missing values, which the schema refuses

    @property
    def norm(self) -> float:
        """Return the largest norm of what one unit adds, before scaling."""
        if self.query == "correlation":
            return math.sqrt(self.cells)
        return math.sqrt(2) if self.second else 1.0

    @property
    def values(self) -> int:
        """Count the values, not ones, that a row adds and that are rounded."""
        if self.query == "correlation":
            return self.cells
        return self.cells - (not self.complete) if self.query == "moments" else 0

    def entries(self, codes: Codes) -> Iterator[Entries]:
        """Yield what each row of codes adds to the cells of its own group."""
        read = codes[:, list(self.columns)].astype(np.float64)
        everyone = np.arange(len(codes))
        if self.query == "count":
            yield Entries(everyone, np.zeros(len(codes), np.int64))
        elif self.query == "categories":
            yield Entries(everyone, read[:, 0].astype(np.int64))
        elif self.query == "histogram":
            rows = np.flatnonzero(~np.isnan(read[:, 0]))
            places = np.floor((read[rows, 0] + 1) / 2 * self.cells).astype(np.int64)
            yield Entries(rows, np.clip(places, 0, self.cells - 1))
        elif self.query == "moments":
            yield from self._moments(read[:, 0])
        else:
            yield from self._products(read)

    def _moments(self, u: NDArray[np.float64]) -> Iterator[Entries]:
        absent = np.isnan(u)
        rows, first = np.flatnonzero(~absent), 0 if self.complete else 1
        if not self.complete:
            missing = np.flatnonzero(absent)
            yield Entries(missing, np.zeros(len(missing), np.int64))
        if self.cells > first:
            yield Entries(rows, np.full(len(rows), first), u[rows])
        if self.second:
            yield Entries(rows, np.full(len(rows), first + 1), 2 * u[rows] ** 2 - 1)

    def _products(self, u: NDArray[np.float64]) -> Iterator[Entries]:
        rows = np.flatnonzero(~np.isnan(u).any(axis=1))
        whole, count = u[rows], len(self.columns)
        yield Entries(rows, np.zeros(len(rows), np.int64))
        for place in range(count):
            yield Entries(rows, np.full(len(rows), 1 + place), whole[:, place])
        for number, (one, two) in enumerate(combinations_with_replacement(range(count), 2)):
            yield Entries(rows, np.full(len(rows), 1 + count + number), whole[:, one] * whole[:, two])


@dataclass(frozen=True)
class Survey:
    """What is asked: statistics of declared columns, in groups by other declared columns.

    Guarantee: everything in it is public; so are the number of its cells, and how much one unit weighs in each block.
    """

    columns: tuple[CodedColumn, ...]  # those that are asked about, and those that make the groups
    asked: tuple[int, ...]  # places of the columns that are asked about
    by: tuple[int, ...] = ()  # places of the columns that make the groups
    what: tuple[Statistic, ...] = STATISTICS
    bins: int = 20

    def __post_init__(self) -> None:
        for place in self.by:
            if self.columns[place].numeric:
                raise InputError(
                    f"groups are made by a column of declared categories, and {self.columns[place].name!r} holds "
                    "numbers; name another in --by, or declare ranges of it as categories"
                )
        if not self.blocks:
            raise InputError(f"none of {', '.join(self.what)} can be told of the chosen columns; choose others")
        if self.length > MOST_CELLS:
            raise InputError(
                f"the survey has {self.length} cells, at most {MOST_CELLS} are summed; group by fewer columns, or ask "
                "for fewer bins"
            )

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of each group, in the order of their numbers."""
        return tuple(product(*(self.columns[place].words for place in self.by)))

    def group_of(self, codes: Codes) -> NDArray[np.int64]:
        """Return the number of each row's group."""
        numbers = np.zeros(len(codes), np.int64)
        for place in self.by:
            numbers = numbers * len(self.columns[place].words) + codes[:, place].astype(np.int64)
        return numbers

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the queries, each with an equal share of the budget."""
        sized = {"count", "missing", "mean", "stddev"} & set(self.what)  # a mean needs the size of its group
        made = [Block("count", (), 1)] if self.by and sized else []
        for place in self.asked:
            made += self._of_number(place) if self.columns[place].numeric else self._of_words(place)
        numeric = [place for place in self.asked if self.columns[place].numeric]
        if "correlation" in self.what and len(numeric) > 1:
            count = len(numeric)
            made.append(Block("correlation", tuple(numeric), 1 + count + count * (count + 1) // 2))
        return tuple(made)

    def _of_number(self, place: int) -> list[Block]:
        made, complete, second = [], self.columns[place].complete, "stddev" in self.what
        first = 0 if complete else 1
        if "mean" in self.what or second:
            made.append(Block("moments", (place,), first + 1 + second, second=second, complete=complete))
        elif "missing" in self.what and not complete:
            made.append(Block("moments", (place,), 1))
        if "histogram" in self.what or "quantiles" in self.what:
            made.append(Block("histogram", (place,), self.bins))
        return made

    def _of_words(self, place: int) -> list[Block]:
        wanted = "categories" in self.what or "missing" in self.what
        return [Block("categories", (place,), len(self.columns[place].words))] if wanted else []

    @property
    def share(self) -> float:
        """Return the part of the budget that each block gets."""
        return 1 / len(self.blocks)

    @cached_property
    def length(self) -> int:
        """Count the cells of a message."""
        return len(self.groups) * sum(block.cells for block in self.blocks)

    def spans(self) -> Iterator[tuple[Block, slice]]:
        """Yield each block with the place of its cells: group after group."""
        start = 0
        for block in self.blocks:
            size = len(self.groups) * block.cells
            yield block, slice(start, start + size)
            start += size

    def describe(self, block: Block) -> str:
        """Return a query in words."""
        names = [self.columns[place].name for place in block.columns]
        what = {
            "count": "records in each group",
            "histogram": f"histogram of {self.bins} bins",
            "categories": "categories and missing values",
            "correlation": "means and products of pairs",
            "moments": "missing values" if block.cells == 1 and not block.complete else "sum and missing values",
        }[block.query]
        if block.query == "moments" and block.second:
            what = "sum, sum of squares and missing values"
        return f"{what}: {', '.join(names)}" if names else what


def make_survey(
    columns: Sequence[CodedColumn], asked: Sequence[str], by: Sequence[str], what: Sequence[Statistic], bins: int
) -> Survey:
    """Return the survey about some columns, or all but those of the groups; say what is not declared."""
    places = {column.name: place for place, column in enumerate(columns)}
    chosen = list(dict.fromkeys(asked or [name for name in places if name not in by]))
    return Survey(
        tuple(columns),
        tuple(places[name] for name in chosen),
        tuple(places[name] for name in dict.fromkeys(by)),
        tuple(statistic for statistic in STATISTICS if statistic in what),
        bins,
    )
