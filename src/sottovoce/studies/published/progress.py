"""List the published tables: what there is, what has been run here, and how long it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sottovoce.search.runner import Campaign
from sottovoce.studies.published.setup import campaign, resolve, setup_of
from sottovoce.studies.published.table import SCALES, Published, ScaleName, names, read_table


def listing(out: Path | str = "runs/reproduce") -> list[dict[str, Any]]:
    """Return one entry for each table; of each scale the cells, those that were run with seed 1, and their seconds.

    `seconds` is null while a cell is missing. `expected_seconds` then takes for a missing cell the mean of those with
    the same set-up, and is null where none was run.
    """
    cells = campaign(out)
    took = cells.seconds()
    tables = [read_table(name) for name in names()]
    known = {scale: _known(tables, scale, cells, took) for scale in SCALES}
    return [
        {
            "name": table.name,
            "title": table.title,
            "source": table.source,
            "kind": table.kind,
            **{scale: _progress(table, scale, known[scale]) for scale in SCALES},
        }
        for table in tables
    ]


Known = dict[tuple[str, str], tuple[str, bool, float | None]]  # table and row: set-up, whether it was run, seconds


def _known(tables: list[Published], scale: ScaleName, cells: Campaign, took: dict[str, float]) -> Known:
    known: Known = {}
    for table in tables:
        for row in table.rows:
            experiment = resolve(table, row, scale)
            name = experiment.experiment.name
            done = (cells.folder(experiment) / "summary.json").exists()
            known[table.name, row.name] = setup_of(table, row, scale).title, done, took.get(name) if done else None
    return known


def _progress(table: Published, scale: ScaleName, known: Known) -> dict[str, Any]:
    own = [known[table.name, row.name] for row in table.rows]
    means = _means(known)
    spent = [seconds for _, _, seconds in own if seconds is not None]
    guessed = [seconds if seconds is not None else means.get(setup) for setup, _, seconds in own]
    complete = len(spent) == len(own)
    return {
        "cells": len(own),
        "run": sum(done for _, done, _ in own),
        "seconds": sum(spent) if complete else None,
        "expected_seconds": None if any(value is None for value in guessed) else sum(filter(None, guessed)),
    }


def _means(known: Known) -> dict[str, float]:
    by_setup: dict[str, list[float]] = {}
    for setup, _, seconds in known.values():
        if seconds is not None:
            by_setup.setdefault(setup, []).append(seconds)
    return {setup: sum(values) / len(values) for setup, values in by_setup.items()}
