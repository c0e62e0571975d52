"""The thesis' tables 3 to 11 and the curves of its figures 7 to 19, as printed and beside our own cells."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import InputError
from sottovoce.studies.mechanisms.settings import Cell, Mode, Settings
from sottovoce.studies.mechanisms.study import Tell, study_cells

__all__ = ["TABLES", "Curve", "TableCell", "beside", "printed_cells", "printed_curves", "table_cells"]

TABLES: Final = range(3, 12)


class TableCell(NamedTuple):
    """One printed cell, and ours beside it."""

    table: int
    data: str
    mechanism: str
    epsilon: float | None  # None: the base case
    clients: int
    samples: int
    printed: float
    ours: float | None = None  # None: not played


class Curve(NamedTuple):
    """One printed curve: the accuracy after each iteration."""

    figures: tuple[int, ...]
    data: str
    mechanism: str
    epsilon: float | None
    clients: int
    samples: int
    accuracy: tuple[float, ...]


@cache
def printed_cells(table: int | None = None) -> tuple[TableCell, ...]:
    """Return the printed cells of one table, or of all."""
    if table is not None and table not in TABLES:
        raise InputError(f"the mechanisms thesis has accuracies in tables {TABLES[0]} to {TABLES[-1]}, got {table}")
    return tuple(
        TableCell(
            row["table"],
            row["data"],
            row["mechanism"],
            row["epsilon"] or None,
            row["clients"],
            row["samples"],
            row["accuracy"],
        )
        for row in _read("printed.toml")["cell"]
        if table in (None, row["table"])
    )


@cache
def printed_curves() -> tuple[Curve, ...]:
    """Return the curves of all figures."""
    return tuple(
        Curve(
            tuple(row["figures"]),
            row["data"],
            row["mechanism"],
            row["epsilon"] or None,
            row["clients"],
            row["samples"],
            tuple(row["accuracy"]),
        )
        for row in _read("figures.toml")["curve"]
    )


def beside(facts: Iterable[dict[str, Any]], table: int | None = None) -> list[TableCell]:
    """Return printed cells with those of `facts` (of `run_study`, `study_cells` or a folder's cells.jsonl) beside."""
    ours = {
        (row["data"], row["mechanism"], row["epsilon"], row["clients"], row["samples"]): row["accuracy"]
        for row in facts
        if len(set(row["epsilons"])) <= 1
    }
    return [cell._replace(ours=ours.get(cell[1:6])) for cell in printed_cells(table)]


def table_cells(
    table: int, *, mode: Mode = "printed", seed: int = 1, tell: Tell = lambda done, total, what: None
) -> list[TableCell]:
    """Play every cell of one printed table and return them all, printed and ours; nothing is written.

    In mode "right" the noise is the true one, at the settings' own regulariser. A base case is played as the thesis
    did: with fresh data.
    """
    return _filled(printed_cells(table), mode, seed, tell)


def _filled(cells: Sequence[TableCell], mode: Mode, seed: int, tell: Tell) -> list[TableCell]:
    facts: list[dict[str, Any]] = []
    for data in dict.fromkeys(cell.data for cell in cells):
        wanted: list[Cell] = []
        for cell in cells:
            if cell.data == data:
                own = () if cell.epsilon is None else (cell.epsilon,) * cell.clients
                wanted.append(Cell(cell.mechanism, own, cell.clients, cell.samples))  # type: ignore[arg-type]
        tests = 1000 if mode == "printed" else 0
        settings = Settings(mode=mode, data=data, seed=seed, test_records=tests)
        facts += study_cells(settings, wanted, tell)
    return [cell for cell in beside(facts, cells[0].table) if cell.ours is not None]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
