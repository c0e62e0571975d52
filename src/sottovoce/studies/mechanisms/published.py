"""The mechanisms thesis' tables 3 to 11 as `sottovoce reproduce` shows them: printed cells, and ours beside them.

A cell is played as the thesis did (mode "printed"): that takes seconds, so both scales are the same. Cells that were
played are kept in one file a data set and seed, and are read by all tables that have them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file
from sottovoce.core.validate import in_range, nearest, one_of
from sottovoce.runs.folder import Record, take_lock
from sottovoce.search.runner import Tell
from sottovoce.studies.mechanisms.settings import NOISELESS, Cell, Mode, Settings
from sottovoce.studies.mechanisms.study import study_cells

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


Facts = dict[str, Any]
Observer = Callable[[str, int, Record], None]
Key = tuple[str, float | None, int, int]

_SCALES: Final = ("small", "full")
_NAMES: Final = {"mnist": "MNIST", "cifar10": "CIFAR-10", "base": "no noise"}
_SETUP: Final = "records and training of the thesis' code (docs/mechanisms.md); no guarantee comes with its noise"
_DIFFERS: Final = {
    "mnist": "fresh draws of records, of our own seed",
    "cifar10": "cifar10 may be the packed subset of 10,000 images; fresh draws of records, of our own seed",
}


def names() -> list[str]:
    """Return the numbers of the tables."""
    return [str(table) for table in TABLES]


def listing(out: Path | str = "runs/reproduce") -> list[dict[str, Any]]:
    """Return one entry a table; both scales are the same."""
    return [_entry(table, Path(out)) for table in TABLES]


def reproduce(
    name: str,
    *,
    scale: str = "small",
    rows: Sequence[str] = (),
    seeds: int = 1,
    first_seed: int = 1,
    out: Path | str = "runs/reproduce",
    workers: int | None = None,
    observe: Observer = lambda cell, rounds, record: None,
) -> dict[str, Any]:
    """Return a table with printed accuracies and ours, `seeds` seeds from `first_seed` on; `workers` is unused."""
    one_of("scale", scale, _SCALES)
    in_range("seeds", seeds, low=1, high=1000)
    in_range("first_seed", first_seed, low=0, high=2**31)
    table = int(name.rpartition(" ")[2])
    chosen = _chosen(table, rows)
    played = {seed: _play(chosen, seed, Path(out), observe) for seed in range(first_seed, first_seed + seeds)}
    runs = [
        {"row": _row(cell), "seed": seed, "folder": str(_file(Path(out), cell.data, seed).parent), **_took(facts, cell)}
        for seed, facts in played.items()
        for cell in chosen
    ]
    return {
        **_head(table),
        "scale": scale,
        "setup": [_SETUP],
        "seeds": seeds,
        "unit": None,
        "cells": [_line(cell, [facts[cell.data, _key(cell)] for facts in played.values()]) for cell in chosen],
        "ordering": None,
        "series": [],
        "claims": [],
        "notes": ["accuracy is the mean over ten iterations, as printed; why noise seems to help: docs/mechanisms.md"],
        "runs": runs,
    }


def printed(name: str) -> list[dict[str, Any]]:
    """Return every printed cell of a table: `row`, `column`, `printed`; each is a number, so `sign` is null."""
    return [
        {"row": _row(cell), "column": "accuracy", "printed": cell.printed, "sign": None}
        for cell in printed_cells(int(name))
    ]


def _play(cells: Sequence[TableCell], seed: int, out: Path, observe: Observer) -> dict[tuple[str, Key], Facts]:
    """Return the facts of cells, from the file of their data set and seed or played now and appended to it."""
    found: dict[tuple[str, Key], Facts] = {}
    for data in dict.fromkeys(cell.data for cell in cells):
        file = _file(out, data, seed)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with take_lock(file.parent, file.parent):
                have = _known(out, data, seed)
                _write(file, have.values())  # without a line that was cut off
                for cell in (cell for cell in cells if cell.data == data):
                    if _key(cell) not in have:
                        have[_key(cell)] = _played(cell, seed, file, observe)
                    found[data, _key(cell)] = have[_key(cell)]
        except OSError as error:
            raise InputError(f"{file.parent} cannot be written: {error.strerror}; choose another --out") from None
    return found


def _played(cell: TableCell, seed: int, file: Path, observe: Observer) -> Facts:
    settings = Settings(mode="printed", data=cell.data, seed=seed, test_records=1000)
    own = () if cell.epsilon is None else (cell.epsilon,) * cell.clients
    (facts,) = study_cells(settings, [Cell(cell.mechanism, own, cell.clients, cell.samples)])  # type: ignore[arg-type]
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(facts) + "\n")
    observe(_row(cell), 1, {"round": 1, "accuracy": facts["accuracy"], "bytes_up": 0, "bytes_down": 0})
    return facts


def _known(out: Path, data: str, seed: int) -> dict[Key, Facts]:
    """Return the cells that were played; a line that was cut off is none."""
    file = _file(out, data, seed)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return {(row["mechanism"], row["epsilon"], row["clients"], row["samples"]): row for row in rows}


def _write(file: Path, rows: Iterable[Facts]) -> None:
    replace_file(file, "".join(json.dumps(row) + "\n" for row in rows))


def _file(out: Path, data: str, seed: int) -> Path:
    return out / "mechanisms" / f"{data}-seed-{seed}" / "cells.jsonl"


def _line(cell: TableCell, facts: Sequence[Facts]) -> dict[str, Any]:
    values = [float(one["accuracy"]) for one in facts]
    ours = mean(values)
    return {
        "row": _row(cell),
        "column": "accuracy",
        "printed": cell.printed,
        "ours": ours,
        "difference": ours - cell.printed,
        "spread": stdev(values) if len(values) > 1 else None,
        "seeds": len(values),
        "diverged": False,
        "unit": None,
        "notes": [_DIFFERS[cell.data]],
        "note": _DIFFERS[cell.data],
    }


def _chosen(table: int, patterns: Sequence[str]) -> list[TableCell]:
    """Return the cells whose rows hold one of the words, in any case; all cells if there are no words."""
    cells = list(printed_cells(table))
    words = [word.strip().lower() for pattern in patterns for word in pattern.split(",") if word.strip()]
    for word in words:
        if not any(word in _row(cell).lower() for cell in cells):
            guess = nearest(word, [_row(cell).lower() for cell in cells])
            hint = f"did you mean {guess!r}?" if guess else f"it has rows such as {_row(cells[0])!r}"
            raise InputError(f"table {table} has no row {word!r}; {hint}")
    return [cell for cell in cells if not words or any(word in _row(cell).lower() for word in words)]


def _row(cell: TableCell) -> str:
    noise = cell.mechanism.capitalize() if cell.mechanism not in NOISELESS else "no noise"
    epsilon = "" if cell.epsilon is None else f" {cell.epsilon:g}"
    return f"{_NAMES[cell.data]} {noise}{epsilon}: {cell.clients} clients of {cell.samples} records"


def _key(cell: TableCell) -> Key:
    return cell.mechanism, cell.epsilon, cell.clients, cell.samples


def _took(facts: dict[tuple[str, Key], Facts], cell: TableCell) -> dict[str, Any]:
    return {"seconds": facts[cell.data, _key(cell)]["seconds"], "refused": None}


def _head(table: int) -> dict[str, Any]:
    cells = printed_cells(table)
    data = " and ".join(dict.fromkeys(_NAMES[cell.data] for cell in cells))
    kinds = dict.fromkeys(cell.mechanism for cell in cells if cell.mechanism not in NOISELESS)
    noise = ", ".join(kind.capitalize() for kind in kinds) or "no noise"
    return {
        "name": str(table),
        "title": f"federated logistic regression, {noise}, on {data}",
        "source": f"BSc thesis Tab. {table}",
        "kind": "table",
    }


def _entry(table: int, out: Path) -> dict[str, Any]:
    cells = printed_cells(table)
    known = {data: _known(out, data, 1) for data in {cell.data for cell in cells}}
    done = [known[cell.data][_key(cell)] for cell in cells if _key(cell) in known[cell.data]]
    spent = sum(facts["seconds"] for facts in done)
    progress = {
        "cells": len(cells),
        "run": len(done),
        "seconds": spent if len(done) == len(cells) else None,
        "expected_seconds": spent / len(done) * len(cells) if done else None,
    }
    return {**_head(table), **dict.fromkeys(_SCALES, progress)}
