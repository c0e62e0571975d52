"""Columns of text that stay small: a long column is kept in packed blocks and unpacked one block at a time."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress
from typing import Final, final, overload

import numpy as np
from numpy.typing import NDArray

_END: Final = "\0"  # stands in no cell: a file that holds it is no text

Block = Sequence[str] | bytes


@final
class TextBlocks(Sequence[str]):
    """Texts of a column in blocks, plain or packed; reading them in order unpacks every block once.

    >>> cells = Cells([["a", "b"], pack(["c"])], [2, 1])
    >>> list(cells), cells[2], len(cells)
    (['a', 'b', 'c'], 'c', 3)
    """

    def __init__(self, parts: Sequence[Block], counts: Sequence[int]) -> None:
        self._parts, self._counts = tuple(parts), tuple(counts)
        self._ends = list(accumulate(counts))
        self._last: tuple[int, Sequence[str]] = (-1, ())

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            yield from block

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return list(self)[place]
        row = place + len(self) if place < 0 else place
        if not 0 <= row < len(self):
            raise IndexError(place)
        number = bisect_right(self._ends, row)
        if self._last[0] != number:
            self._last = (number, _plain(self._parts[number]))
        return self._last[1][row - self._ends[number]]

    def blocks(self) -> Iterator[Sequence[str]]:
        """Yield the texts block by block."""
        return map(_plain, self._parts)

    def holds(self, mark: str) -> bool:
        """Tell whether a text, not empty, stands in a cell."""
        return any(
            mark in zlib.decompress(part).decode("utf-8", "surrogatepass")
            if isinstance(part, bytes)
            else _in(part, mark)
            for part in self._parts
        )

    @property
    def parts(self) -> list[tuple[Block, int]]:
        """Return the blocks as they are kept, with their lengths."""
        return list(zip(self._parts, self._counts, strict=True))


def pack(block: Sequence[str]) -> bytes:
    """Return texts, of which none holds a zero byte, as packed bytes."""
    return zlib.compress(_END.join(block).encode("utf-8", "surrogatepass"), 1)


def joined(columns: Iterable[Sequence[str]]) -> TextBlocks:
    """Return several columns one after another; nothing is unpacked."""
    parts: list[tuple[Block, int]] = []
    for column in columns:
        parts += column.parts if isinstance(column, TextBlocks) else [(column, len(column))]
    return TextBlocks([block for block, _ in parts], [count for _, count in parts])


def blocks(column: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield a column in pieces that fit into memory."""
    return column.blocks() if isinstance(column, TextBlocks) else iter([column])


def chosen(column: Sequence[str], rows: NDArray[np.bool_]) -> Iterator[Iterable[str]]:
    """Yield the cells of the marked rows, block by block."""
    first = 0
    for block in blocks(column):
        yield compress(block, rows[first : first + len(block)].tolist())
        first += len(block)


def holds(column: Sequence[str], mark: str) -> bool:
    """Tell whether a text stands in a cell of a column."""
    return column.holds(mark) if isinstance(column, TextBlocks) else _in(column, mark)


def _in(block: Sequence[str], mark: str) -> bool:
    return any(mark in cell for cell in block)


def _plain(block: Block) -> Sequence[str]:
    return zlib.decompress(block).decode("utf-8", "surrogatepass").split(_END) if isinstance(block, bytes) else block
