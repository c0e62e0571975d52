"""Reproduce a published table: run its cells, or read those that were run, and put ours beside theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import DataError, InputError
from sottovoce.core.validate import in_range, one_of
from sottovoce.data import load
from sottovoce.models import keeping_features
from sottovoce.runs.folder import Record
from sottovoce.search.runner import Campaign, RunOutcome
from sottovoce.studies.published.compare import compare, ordering, printed_cell, series
from sottovoce.studies.published.setup import Setup, campaign, resolve, setup_of
from sottovoce.studies.published.table import SCALES, Published, Row, ScaleName, read_table

Observer = Callable[[str, int, Record], None]  # name of the cell in words, its rounds, a record of a round


def reproduce(
    name: str,
    *,
    scale: ScaleName = "small",
    rows: Sequence[str] = (),
    seeds: int = 1,
    first_seed: int = 1,
    out: Path | str = "runs/reproduce",
    workers: int | None = None,
    observe: Observer = lambda cell, rounds, record: None,
) -> dict[str, Any]:
    """Return a table with printed numbers and ours, run at a scale with `seeds` seeds from `first_seed` on.

    Cells that were run for this or another table are read; one that was interrupted goes on. A cell that is refused,
    because the accountant or missing data stand against it, says so, and the others are run; if all are, the first
    refusal is raised.
    """
    one_of("scale", scale, SCALES)
    in_range("seeds", seeds, low=1, high=1000)
    in_range("first_seed", first_seed, low=0, high=2**31)
    table = read_table(name)
    chosen = table.chosen(list(rows))
    cells = campaign(out)
    played: list[tuple[Row, list[RunOutcome]]] = []
    with keeping_features():
        for row in chosen:
            outcomes = []
            for seed in range(first_seed, first_seed + seeds):
                told = row.name if seeds == 1 else f"{row.name}, seed {seed}"
                outcomes.append(_play(cells, resolve(table, row, scale, seed, workers), observe, told))
            played.append((row, outcomes))
    problems = [outcome.problem for _, outcomes in played for outcome in outcomes if outcome.problem is not None]
    if problems and not any(outcome.summary for _, outcomes in played for outcome in outcomes):
        raise problems[0]
    return _document(table, scale, range(first_seed, first_seed + seeds), played, cells)


def printed(name: str) -> list[dict[str, Any]]:
    """Return every printed cell of a table: `row`, `column`, `printed`, and `sign` where that is no number."""
    table = read_table(name)
    return [printed_cell(row, column) for row in table.rows for column in table.columns if column in row.printed]


def _play(cells: Campaign, experiment: Experiment, observe: Observer, words: str) -> RunOutcome:
    return cells.play(experiment, lambda record: observe(words, experiment.experiment.rounds, record))


def _document(
    table: Published,
    scale: ScaleName,
    seeds: Sequence[int],
    played: Sequence[tuple[Row, list[RunOutcome]]],
    cells: Campaign,
) -> dict[str, Any]:
    lines = [
        line
        for row, outcomes in played
        for line in compare(table, row, scale, outcomes, _differs(setup_of(table, row, scale)))
    ]
    took = cells.seconds()
    return {
        "name": table.name,
        "title": table.title,
        "source": table.source,
        "kind": table.kind,
        "scale": scale,
        "setup": list(dict.fromkeys(setup_of(table, row, scale).title for row, _ in played)),
        "seeds": len(seeds),
        "unit": table.unit,
        "cells": lines,
        "ordering": ordering(table, lines) if table.kind == "table" else None,
        "series": series(table, [(row, outcomes[0]) for row, outcomes in played]),
        "claims": list(table.claims),
        "notes": list(table.notes),
        "runs": [
            {
                "row": row.name,
                "seed": seed,
                "folder": str(outcome.folder),
                "seconds": took.get(outcome.experiment.experiment.name),
                "refused": outcome.reason,
            }
            for row, outcomes in played
            for seed, outcome in zip(seeds, outcomes, strict=True)
        ],
    }


def _differs(setup: Setup) -> list[str]:
    """Return why the numbers of a set-up cannot be the papers', with the size of the data that is really at hand."""
    told = list(setup.differs)
    if setup.train_records is not None:
        source = str(setup.tables["data"]["source"])
        try:
            records = load(source, setup.tables["data"].get("folder")).records
        except (DataError, InputError):
            return told
        if records != setup.train_records:
            told.append(f"{source} has {records:,} train records here, {setup.train_records:,} in the papers")
    return told
