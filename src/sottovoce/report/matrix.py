"""Lay the robustness matrix out: one view a quantity, for the terminal, the page and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from sottovoce.report.attacks import DIVERGED
from sottovoce.report.robustness import SeedGroup, in_words, worth_a_matrix
from sottovoce.report.units import ABSENT, count, decimal

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_TITLES: Final = {
    "attack_success": "attack success",
    "class_accuracy": "accuracy on the attacked class",
}
_DIGITS: Final = 3
_TOLD: Final = ("of", "boost", "collude", "source", "target")  # of an attack, beside its name and fraction


@dataclass(frozen=True)
class MatrixView:
    """One quantity of the matrix, row by row."""

    quantity: str
    rows: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    cells: tuple[tuple[SeedGroup | None, ...], ...]  # None: there is no such run

    @property
    def title(self) -> str:
        """Return the quantity for people."""
        return _TITLES.get(self.quantity, self.quantity.replace("_", " "))

    @property
    def headings(self) -> list[tuple[str, int]]:
        """Return the upper line of the head: an attack and how many columns it spans."""
        return [(name, len(list(inside))) for name, inside in groupby(self.columns, key=lambda column: column[0])]

    def text(self, cell: SeedGroup | None) -> str:
        """Return what stands in a cell; an average that leaves runs out says how many are in it."""
        if cell is None:
            return ""
        value, runs = cell.mean(self.quantity), len(cell.runs)
        if cell.diverged == runs:
            return DIVERGED
        if value is None:
            return ABSENT
        shown = decimal(value, _DIGITS) + ("*" if cell.unfinished else "")
        return shown if not cell.diverged else f"{shown} ({runs - cell.diverged}/{runs})"

    def share(self, cell: SeedGroup | None) -> float | None:
        """Return the depth of a cell's colour, from 0 to 1, or None where there is nothing to colour."""
        value = None if cell is None else cell.mean(self.quantity)
        return None if value is None else min(1.0, max(0.0, value))

    def words(self, cell: SeedGroup) -> str:
        """Return everything about a cell in one sentence: the runs, their spread, and what went wrong."""
        how = in_words(cell.how, [key for key in _TOLD if key in cell.how])
        place = ", ".join([cell.row, " ".join(filter(None, cell.column)), *how])
        found = []
        for quantity, values in cell.values.items():
            value = cell.mean(quantity)
            if value is not None:
                spread = f" ({decimal(min(values))} to {decimal(max(values))})" if len(values) > 1 else ""
                found.append(f"{_TITLES.get(quantity, quantity.replace('_', ' '))} {decimal(value)}{spread}")
        if cell.diverged:
            found.append("diverged" if len(cell.runs) == 1 else f"{cell.diverged} of {len(cell.runs)} diverged")
        if cell.unfinished:
            found.append("unfinished" if len(cell.runs) == 1 else f"{cell.unfinished} of {len(cell.runs)} unfinished")
        if cell.rejected is not None:
            found.append(f"{count(cell.rejected)} rounds rejected")
        whose = f"average of {len(cell.runs)} runs: " if len(cell.runs) > 1 else "run "
        return f"{place}: {'; '.join(found) or ABSENT} — {whose}{', '.join(cell.labels)}"


def views(found: Sequence[SeedGroup], quantity: str) -> list[MatrixView]:
    """Return the views that there is something to see in: `quantity`, and what targeted attacks came to.

    A column in which no run has a value is left out of the latter; one in which all runs diverged is not a result of
    theirs.
    """
    if not worth_a_matrix(found):
        return []
    drawn = [_view(found, quantity)]
    for name in _TITLES:
        targeted = {cell.column for cell in found if cell.values.get(name)}
        if targeted:
            drawn.append(_view([cell for cell in found if cell.column in targeted], name))
    return drawn


def remarks(found: Sequence[SeedGroup]) -> list[str]:
    """Return what a reader must know of the averages, and of settings that the columns do not tell."""
    said = []
    sizes = sorted({len(cell.runs) for cell in found})
    if sizes and sizes[-1] > 1:
        how_many = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        seeds = "that differ in their seeds" if all(cell.different_seeds for cell in found) else "in the same place"
        said.append(f"a cell is the average of {how_many} runs {seeds}")
    if any(cell.diverged for cell in found):
        said.append(f"{DIVERGED}: diverged, the final model only guesses")
        partly = next((cell for cell in found if 0 < cell.diverged < len(cell.runs)), None)
        if partly is not None:
            runs = len(partly.runs)
            held = f"({runs - partly.diverged}/{runs})"
            said.append(f"{held}: {partly.diverged} of {runs} runs diverged, and the average is over the others")
    if any(cell.unfinished for cell in found):
        said.append("*: a run is unfinished and counts with its best round so far")
    keys = {
        key
        for cell in found
        for other in found
        if cell.column == other.column and not (cell.unfinished or other.unfinished)
        for key in {**cell.how, **other.how}
        if cell.how.get(key) != other.how.get(key)
    }
    if keys:
        said.append(f"within a column, runs differ in {', '.join(f'[threat] {key}' for key in sorted(keys))}")
    return said


def matrix_tables(found: Sequence[SeedGroup], quantity: str, width: int) -> list[Table | Text]:
    """Return the matrix for a terminal, cut between columns where it would be wider than `width` characters."""
    from rich.text import Text

    drawn = [_table(view, part) for view in views(found, quantity) for part in _parts(view, width)]
    # A line of its own, because a caption is folded to the width of its table.
    return [*drawn, *([Text("; ".join(said))] if drawn and (said := remarks(found)) else [])]


def _view(found: Sequence[SeedGroup], quantity: str) -> MatrixView:
    rows = {cell.place[0]: cell.row for cell in found}
    columns = {cell.place[1]: cell.column for cell in found}
    placed = {cell.place: cell for cell in found}
    return MatrixView(
        quantity,
        rows=tuple(rows[row] for row in sorted(rows)),
        columns=tuple(columns[column] for column in sorted(columns)),
        cells=tuple(tuple(placed.get((row, column)) for column in sorted(columns)) for row in sorted(rows)),
    )


def _parts(view: MatrixView, width: int) -> list[list[int]]:
    """Return the columns of each table, as many as fit beside the rows' names."""
    shown = [
        max(*map(len, heading), *(len(view.text(cells[index])) for cells in view.cells))
        for index, heading in enumerate(view.columns)
    ]
    names = max(map(len, view.rows))
    parts: list[list[int]] = [[]]
    used = names
    for index, size in enumerate(shown):
        if parts[-1] and used + 3 + size > width:
            parts.append([])
            used = names
        parts[-1].append(index)
        used += 3 + size
    return parts


def _table(view: MatrixView, part: Sequence[int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"\n{view.title}, best round" + ("" if part[0] == 0 else ", continued")
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title), title_justify="left")
    drawn.add_column(Text("scheme"), overflow="fold")
    for index, (attack, share) in ((index, view.columns[index]) for index in part):
        # An attack stands over the first of its columns only.
        again = index != part[0] and attack == view.columns[index - 1][0]
        drawn.add_column(Text(f"{'' if again else attack}\n{share}"), justify="right", overflow="fold")
    for row, cells in zip(view.rows, view.cells, strict=True):
        # Text, not str: a scheme may be called "[red]".
        drawn.add_row(Text(row), *(Text(view.text(cells[index])) for index in part))
    return drawn
