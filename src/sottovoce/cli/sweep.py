"""`sottovoce sweep`: the grid of an experiment file, one run folder each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Out, Quiet, command_line
from sottovoce.cli.output import note, put_json, put_tables, width
from sottovoce.core.errors import RunError

__all__ = ["EXAMPLE", "sweep"]

EXAMPLE = 'Example: sottovoce sweep experiments/quickstart.toml --set \'sweep.scheme.name=["fl-std", "fl-sign"]\''


def sweep(
    file: ExperimentFile, changes: Changes = None, out: Out = None, quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Run every point of the \\[sweep] grid; finished ones are not run again."""
    try:
        _sweep(file, changes or [], out, quiet=quiet, as_json=as_json)
    except KeyboardInterrupt:
        again = command_line("sweep", file, changes, out, quiet=quiet, as_json=as_json)
        note(f"interrupted; go on with: {again}")
        raise typer.Exit(RunError.exit_code) from None


def _sweep(file: Path, changes: list[str], out: Path | None, *, quiet: bool, as_json: bool) -> None:
    from sottovoce.cli.progress import view
    from sottovoce.experiment.config import load
    from sottovoce.experiment.run import default_folder
    from sottovoce.experiment.sweep import layout
    from sottovoce.experiment.sweep import sweep as play
    from sottovoce.report.tables import table

    experiment = load(file, changes)
    rounds = {point.experiment.name: point.experiment.rounds for point in layout(experiment)}
    started: set[str] = set()
    with view(quiet=quiet, named=True) as shown:

        def observe(name: str, record: dict[str, Any]) -> None:
            if name not in started:
                started.add(name)
                shown.start(name, rounds.get(name, experiment.experiment.rounds))
            shown.show(name, record)

        summaries = play(experiment, out, observe=observe)
    if as_json:
        put_json(summaries)
        return
    records = [{**summary, "label": summary.get("name")} for summary in summaries]
    put_tables(*table(records, width()))
    if not quiet:
        folder = out or default_folder(experiment)
        note(f"{len(summaries)} runs are in {folder}; figures: sottovoce report {folder}/*/ --html report.html")
