"""Learn ranges and categories within a stated part of epsilon: the survey of a table of which nothing is declared.

A cell is a number, a word or missing, so that what it adds to its column's block is one of three:

    a number      1 in the cell of its dyadic bin, which is public
    missing       1 in the cell for missing values, or in that for long words
    a word        1 in 32 cells: of the bucket that a public hash of the word names, one for each half of a byte

From the noisy sums everything follows without further cost: which kind a column is, the range of the bins that stand
out, and the words of the buckets that stand out, read half byte by half byte. A word that few have is lost in the
noise; a threshold keeps noise from being read as words. Two words that share a bucket are lost too, and count as
others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.raw import ABSENT, BINS, LETTERS, LONG, NUMBER, WIDTH, WORD, RawCodes, bin_edges
from sottovoce.federation.stages.survey import Entries

BUCKETS: Final = 512
HALVES: Final = 2 * LETTERS
_SPECIAL: Final = 2  # cells: missing, long words
WHOLE: Final = BINS + _SPECIAL  # cells before those of the buckets
_SIZE: Final = HALVES * 16  # cells of a bucket
STANDS_OUT: Final = 4.0  # standard deviations of the noise, for a bin
READABLE: Final = 5.0  # the same for each half byte of a word
_FACTOR: Final = 0x9E3779B97F4A7C15

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class RawBlock:
    """The block of one column of which nothing is declared."""

    columns: tuple[int, ...]
    query: str = "discovery"
    cells: int = WHOLE + BUCKETS * _SIZE
    norm: float = math.sqrt(HALVES)
    values: int = HALVES

    def entries(self, codes: RawCodes) -> Iterator[Entries]:
        """Yield what each row adds."""
        mine = codes[:, self.columns[0] * WIDTH : (self.columns[0] + 1) * WIDTH]
        kind = mine[:, 0]
        numbers, absent, long = (np.flatnonzero(kind == which) for which in (NUMBER, ABSENT, LONG))
        yield Entries(numbers, mine[numbers, 1].astype(np.int64))
        yield Entries(absent, np.full(len(absent), BINS))
        yield Entries(long, np.full(len(long), BINS + 1))
        words = np.flatnonzero(kind == WORD)
        letters = mine[words, 2:]
        starts = WHOLE + _buckets(letters) * _SIZE
        ones = np.ones(len(words))
        for place in range(LETTERS):
            for half, nibble in enumerate((letters[:, place] >> 4, letters[:, place] & 15)):
                yield Entries(words, starts + (2 * place + half) * 16 + nibble.astype(np.int64), ones)


@dataclass(frozen=True)
class Discovery:
    """The survey that learns what the columns of a table are; nothing but their names is public."""

    names: tuple[str, ...]

    groups: tuple[tuple[str, ...], ...] = ((),)

    def group_of(self, codes: RawCodes) -> NDArray[np.int64]:
        """Return one group for all rows."""
        return np.zeros(len(codes), np.int64)

    @cached_property
    def blocks(self) -> tuple[RawBlock, ...]:
        """Return a block for each column."""
        return tuple(RawBlock((place,)) for place in range(len(self.names)))

    @property
    def share(self) -> float:
        """Return the part of the budget that each block gets."""
        return 1 / len(self.names)

    @property
    def length(self) -> int:
        """Count the cells of a message."""
        return len(self.names) * (WHOLE + BUCKETS * _SIZE)

    def spans(self) -> Iterator[tuple[RawBlock, slice]]:
        """Yield each block with the place of its cells."""
        for number, block in enumerate(self.blocks):
            yield block, slice(number * block.cells, (number + 1) * block.cells)


def learnt(cells: Doubles, ones: float, words: float) -> dict[str, Any]:
    """Return what a column is, from its noisy cells; `ones` and `words` are the noise in cells of either kind."""
    numeric, special = cells[:BINS], cells[BINS:WHOLE]
    buckets = cells[WHOLE:].reshape(BUCKETS, HALVES, 16)
    found = sorted(_read_words(buckets, words))
    counted = float(buckets.sum()) / HALVES
    told: dict[str, Any] = {"missing": max(0.0, float(special[0]))}
    standing = np.flatnonzero(numeric > STANDS_OUT * ones)
    if len(standing) and float(numeric[standing].sum()) >= max(counted, sum(count for _, count in found)):
        edges = [bin_edges(int(number)) for number in standing]
        low, high = min(edge[0] for edge in edges), max(edge[1] for edge in edges)
        return told | {"kind": "number", "minimum": low, "maximum": high if high > low else low + 1}
    if found:
        return told | {"kind": "category", "categories": [word for word, _ in found]}
    reason = "nothing stands out of the noise: declare it, or give more of epsilon"
    if special[1] > STANDS_OUT * ones:
        reason = f"words longer than {LETTERS} bytes, such as names or free text"
    return told | {"kind": "ignore", "reason": reason}


def _read_words(buckets: Doubles, noise: float) -> Iterator[tuple[str, float]]:
    tops = buckets.max(axis=2)
    for bucket in np.flatnonzero((tops > READABLE * noise).all(axis=1)):
        halves = buckets[bucket].argmax(axis=1)
        letters = bytes((halves[0::2] * 16 + halves[1::2]).astype(np.uint8).tolist())
        word = letters.rstrip(b"\0")
        rivals = np.sort(buckets[bucket], axis=1)[:, -2]
        if b"\0" in word or not word or (rivals > tops[bucket] / 2).any():
            continue
        if int(_buckets(np.frombuffer(letters, np.uint8)[None])[0]) != bucket:
            continue
        try:
            text = word.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text.isprintable():
            yield text, float(tops[bucket].mean())


def _buckets(letters: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bucket of each word: a public hash of its bytes."""
    mixed = np.zeros(len(letters), np.uint64)
    with np.errstate(over="ignore"):
        for place in range(LETTERS):
            mixed = (mixed ^ letters[:, place].astype(np.uint64)) * np.uint64(_FACTOR)
            mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(40)).astype(np.int64) % BUCKETS
