"""`sottovoce sweep`: the grid of an experiment file, one run folder each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Out, Quiet, command_line
from sottovoce.cli.output import messages, note, put_json, put_tables, width
from sottovoce.core.errors import RunError

DOOR = "try"
EXAMPLE = 'Example: sottovoce sweep experiment.toml --set \'sweep.scheme.name=["fl-std", "fl-sign"]\''

_WIDE, _SHORT = 120, 10  # a terminal with room for names, and a name that fits any terminal


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
    from sottovoce.config.experiment import load
    from sottovoce.report.tables import table
    from sottovoce.runs.loop import default_folder
    from sottovoce.search.sweep import layout
    from sottovoce.search.sweep import sweep as play

    experiment = load(file, changes)
    points = layout(experiment)
    rounds = {point.experiment.name: point.experiment.rounds for point in points}
    private = {point.experiment.name: point.privacy is not None for point in points}
    started: set[str] = set()
    with view(quiet=quiet, named=True) as shown, messages(shown.say, quiet=quiet, private=any(private.values())):

        def observe(name: str, record: dict[str, Any]) -> None:
            short = _short(name, experiment.experiment.name)
            if name not in started:
                started.add(name)
                planned = rounds.get(name, experiment.experiment.rounds)
                shown.start(short, planned, private=private.get(name, experiment.privacy is not None))
            shown.show(short, record)

        summaries = play(experiment, out, observe=observe)
    if as_json:
        put_json(summaries)
        return
    names = [_short(str(summary["name"]), experiment.experiment.name) for summary in summaries]
    labels, key = _labels(names, width())
    records = [{**summary, "label": label} for summary, label in zip(summaries, labels, strict=True)]
    put_tables(*key, *table(records, width()))
    if not quiet:
        folder = out or default_folder(experiment)
        note(f"{len(summaries)} runs are in {folder}; figures: sottovoce report {folder}/*/ --html report.html")


def _short(name: str, base: str) -> str:
    """Return the name of a point without the part that all points of the grid share."""
    return name.removeprefix(f"{base}-")


def _labels(names: list[str], width: int) -> tuple[list[str], list[str]]:
    """Return what stands for each run in a table, and the lines that explain it.

    Where long names would be folded into columns of a few letters, the runs are numbered.
    """
    if width >= _WIDE or max(map(len, names)) <= _SHORT:
        return names, []
    numbers = [str(number) for number in range(1, 1 + len(names))]
    return numbers, [f"run {number}: {name}" for number, name in zip(numbers, names, strict=True)]
