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


@dataclass(frozen=True)
class ClassTable:
    """Accuracy by class of runs with the same classes, at their best rounds."""

    classes: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]  # run, attack, and a class's accuracy and its part


def by_class(runs: Sequence[Run], records: Sequence[Facts]) -> list[ClassTable]:
    """Return one table for each set of classes among the runs that say how accurate they are on each class."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for run, record in zip(runs, records, strict=True):
        best = _at_best(run, record)
        if best is not None:
            names = _names(run.path, len(best["accuracy_by_class"]))
            cells = _cells(run, record, best, names)
            found.setdefault(names, []).append((str(record["label"]), attack_words(record), cells))
    return [ClassTable(names, tuple(rows)) for names, rows in found.items()]


def _cells(run: Run, record: Facts, best: Facts, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    source, target = (
        _index(record.get(f"attack_{key}", run.table("threat").get(key)), names) for key in ("source", "target")
    )
    values = list(best["accuracy_by_class"])
    if source is not None and values[source] is None:
        values[source] = best.get("class_accuracy")  # a class that was withheld is measured apart from the others
    parts = {target: "target", source: "attacked"}
    shown = [DIVERGED if diverged(record) else decimal(value) for value in values]
    return tuple((value, parts.get(index, "")) for index, value in enumerate(shown))


def _at_best(run: Run, record: Facts) -> Facts | None:
    """Return the best round, or if the run diverged the last one, that tells the accuracy by class."""
    told = [other for other in run.rounds if isinstance(other.get("accuracy_by_class"), list)]
    best = [other for other in told if other["round"] == record.get("best_round")]
    chosen = best or (told if diverged(record) else [])
    return chosen[-1] if chosen else None


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
    """Return the place of a class that is told by its number or by its name; None for no class."""
    if isinstance(told, int) and not isinstance(told, bool):
        return told if 0 <= told < len(names) else None
    return names.index(str(told)) if str(told) in names else None
