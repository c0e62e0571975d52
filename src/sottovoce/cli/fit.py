"""Fit a table to a terminal: no number is broken over two lines; what is too wide is divided, or turned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Column, Table
    from rich.text import Text

_TEXT: Final = 18  # characters that a column of text gets at least, if it has so many
_WORD: Final = 40  # characters of a longer word may be broken
_TURNED: Final = 3  # rows of a table that is shown turned, one column a row


def fit(drawn: RenderableType, width: int) -> Iterator[RenderableType]:
    """Yield a table as one or more that fit `width` characters; anything else, and what fits, as it is."""
    from rich.table import Table

    if not isinstance(drawn, Table) or not drawn.show_header or len(drawn.columns) < 2:
        yield drawn
        return
    for column in drawn.columns:
        column.no_wrap = column.no_wrap or column.justify == "right"
    if _needed(drawn, drawn.columns) <= width:
        yield drawn
        return
    turned = _turned(drawn, width) if drawn.row_count <= _TURNED else None
    yield from _parts(drawn, width) if turned is None else [turned]
    if drawn.caption:  # below all of them, and as wide as the terminal
        yield drawn.caption


def _cells(column: Column) -> list[Text]:
    from rich.text import Text

    return [cell if isinstance(cell, Text) else Text(str(cell)) for cell in column.cells]


def _least(column: Column) -> int:
    """Return how many characters a column needs: numbers and their heading whole, a text in lines of some words."""
    cells = [len(line) for cell in _cells(column) for line in cell.plain.splitlines()]
    words = [str(column.header)] if column.no_wrap else str(column.header).split()
    heading = max(map(len, words), default=0)
    widest = max(cells, default=0)
    longest = max((len(word) for cell in _cells(column) for word in cell.plain.split()), default=0)
    return max(heading, widest if column.no_wrap else max(min(widest, _TEXT), min(longest, _WORD)))


def _needed(drawn: Table, columns: Sequence[Column]) -> int:
    left, right = drawn.padding[3], drawn.padding[1]
    return sum(_least(column) + left + right for column in columns) + (len(columns) + 1 if drawn.box else 0)


def _like(drawn: Table, *, title: bool) -> Table:
    """Return an empty table that looks the same; its caption is left out."""
    from rich.table import Table

    fresh = Table(
        title=drawn.title if title else None,
        box=drawn.box,
        title_justify=drawn.title_justify,
        show_lines=drawn.show_lines,
    )
    fresh.pad_edge, fresh.padding = drawn.pad_edge, drawn.padding
    return fresh


def _parts(drawn: Table, width: int) -> Iterator[Table]:
    """Yield tables with as many columns as fit, each beginning with the first column, which names the row."""
    first, *others = drawn.columns
    groups: list[list[Column]] = [[first]]
    for column in others:
        if len(groups[-1]) > 1 and _needed(drawn, [*groups[-1], column]) > width:
            groups.append([first])
        groups[-1].append(column)
    for place, group in enumerate(groups):
        part = _like(drawn, title=place == 0)
        for column in group:
            part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow="fold")
        for row in zip(*(_cells(column) for column in group), strict=True):
            part.add_row(*row)
        yield part


def _turned(drawn: Table, width: int) -> Table | None:
    """Return the table with a row for each column, or None if that does not fit either."""
    from rich.text import Text

    turned = _like(drawn, title=True)
    first, *others = drawn.columns
    turned.add_column(first.header, overflow="fold")
    for name in _cells(first):
        turned.add_column(name, overflow="fold")
    for column in others:
        turned.add_row(Text(str(column.header)), *_cells(column))
    headings = max(len(str(column.header)) for column in drawn.columns)
    share = (width - min(headings, _TEXT + 10) - 4 * len(turned.columns)) / max(1, drawn.row_count)
    widest = max((_least(column) for column in others), default=0)
    return turned if share >= widest else None
