"""`sottovoce plan`: what a run will cost, before any training."""

from __future__ import annotations

from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile
from sottovoce.cli.output import messages, put_json, put_tables, waiting

__all__ = ["EXAMPLE", "plan"]

EXAMPLE = "Example: sottovoce plan experiment.toml --set scheme.name=fl-top --set scheme.ratio=0.1"


def plan(
    file: ExperimentFile,
    changes: Changes = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a round of real clients; no private sum is opened.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a run will cost, before any training: bytes and privacy, and time if it is to be measured."""
    from sottovoce.experiment.config import load
    from sottovoce.experiment.plan import plan as reckon
    from sottovoce.report.tables import grouped

    experiment = load(file, changes or [])
    with messages(), waiting("playing a round to time it" if measure else "working out what it costs"):
        costs = reckon(experiment, measure=measure)
    if as_json:
        put_json(costs)
    else:
        put_tables(grouped(costs))
