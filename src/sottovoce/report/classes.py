"""Tell class by class what became of attacked runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.report.attacks import DIVERGED, attack_words, diverged
from sottovoce.report.runs import Facts, Run
from sottovoce.report.units import decimal

__all__ = ["ClassTable", "by_class"]


@dataclass(frozen=True)
class ClassTable:
    """Accuracy by class of runs with the same classes, at their best rounds."""

    classes: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]  # run, attack, and a class's accuracy and its part


def by_class(runs: Sequence[Run], records: Sequence[Facts]) -> list[ClassTable]:
    """Return one table for each set of classes among the runs that say how accurate they are on each class."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for run, record in zip(runs, records, strict=True):
        values = _at_best(run, record)
        if values:
            names = _names(run.path, len(values))
            parts = {_index(run.table("threat").get(key), names): word for key, word in _PARTS}
            cells = tuple(
                (DIVERGED if diverged(record) else decimal(value), parts.get(index, ""))
                for index, value in enumerate(values)
            )
            found.setdefault(names, []).append((str(record["label"]), attack_words(record), cells))
    return [ClassTable(names, tuple(rows)) for names, rows in found.items()]


_PARTS = (("target", "target"), ("source", "attacked"))


def _at_best(run: Run, record: Facts) -> list[Any]:
    """Return the accuracy by class in the best round, or in the last one that tells it if the run diverged."""
    told = [other for other in run.rounds if isinstance(other.get("accuracy_by_class"), list)]
    best = [other for other in told if other["round"] == record.get("best_round")]
    chosen = best or (told if diverged(record) else [])
    return list(chosen[-1]["accuracy_by_class"]) if chosen else []


def _names(folder: Path, classes: int) -> tuple[str, ...]:
    try:
        told = json.loads((folder / "preprocessing.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = None
    names = told.get("class_names") if isinstance(told, Mapping) else None
    if isinstance(names, list) and len(names) == classes:
        return tuple(map(str, names))
    return tuple(str(index) for index in range(classes))


def _index(told: Any, names: Sequence[str]) -> int | None:
    """Return the place of a class that is told by its number or by its name."""
    if isinstance(told, int) and not isinstance(told, bool):
        return told
    return names.index(str(told)) if str(told) in names else None
