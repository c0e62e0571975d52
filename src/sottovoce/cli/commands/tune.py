"""`sottovoce tune`: choose settings on public data only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Quiet
from sottovoce.cli.output import messages, note, put_json, put_tables
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.remote import printable

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.search.cells import Step

DOOR = "plan"
EXAMPLE = "Example: sottovoce tune experiment.toml --on mnist --budget 40 --out chosen.toml"

_SHOWN = 10  # settings in the table; tune.csv has all

On = Annotated[
    str, typer.Option("--on", metavar="PUBLIC", help="Public data: a name, or a file of your own.", show_default=False)
]
ChosenFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="The file to write; else FILE-tuned.toml.", show_default=False),
]
Runs = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Where the runs go; else runs/<name>-tune.", show_default=False),
]
Budget = Annotated[int, typer.Option("--budget", metavar="N", help="Most runs of the search.")]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", help="Seeds with which the best settings are run.")]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="First of these seeds; else 10001.", show_default=False)
]
Records = Annotated[
    int | None,
    typer.Option(
        "--records", metavar="N", min=1, help="Train records of the file's own data, if unknown.", show_default=False
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=0, help="Worker processes; 0 is one a core.", show_default=False),
]


def tune(
    file: ExperimentFile,
    on: On,
    changes: Changes = None,
    out: ChosenFile = None,
    runs: Runs = None,
    budget: Budget = 30,
    seeds: Seeds = 3,
    seed: Seed = None,
    records: Records = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Choose settings on public data, never on the clients', and write the chosen file.

    Searches the \\[tune] table. Runs that are finished are read, not repeated.
    """
    words = ["sottovoce", "tune", str(file), "--on", on]
    for change in changes or ():
        words += ["--set", change]
    words += ["--budget", str(budget), "--seeds", str(seeds)]
    for option, value in (("--seed", seed), ("--records", records)):
        words += [] if value is None else [option, str(value)]
    command = shlex.join(words)
    places = {"--out": out, "--runs": runs, "--workers": workers}
    more = [str(word) for option, value in places.items() if value is not None for word in (option, value)]
    flags = [flag for flag, given in (("--quiet", quiet), ("--json", as_json)) if given]
    try:
        document = _tune(
            file,
            on,
            changes or [],
            out or file.with_name(f"{file.stem}-tuned.toml"),
            runs,
            command,
            quiet=quiet,
            keys={"budget": budget, "seeds": seeds, "records": records, "workers": workers}
            | ({} if seed is None else {"first_seed": seed}),
        )
    except KeyboardInterrupt:
        note(f"interrupted; go on with: {shlex.join([*words, *more, *flags])}")
        raise typer.Exit(RunError.exit_code) from None
    if as_json:
        put_json(document)
        return
    put_tables(_table(document))
    if not quiet:
        for remark in document["notes"]:
            note(f"note: {remark}")
        note(f"the chosen file is {document['out']}; all settings that were tried: {document['runs_folder']}/tune.csv")


def _tune(
    file: Path,
    public: str,
    changes: list[str],
    out: Path,
    runs: Path | None,
    command: str,
    *,
    quiet: bool,
    keys: dict[str, Any],
) -> dict[str, Any]:
    from sottovoce.config.experiment import parse, read_tables
    from sottovoce.runs.loop import default_folder
    from sottovoce.search.tune import chosen_file
    from sottovoce.search.tune import tune as choose

    tables = read_tables(file, changes)
    experiment = parse(tables, where=file.name)
    _check_out(out)
    folder = runs or default_folder(experiment).with_name(f"{experiment.experiment.name}-tune")
    with _progress(keys["budget"], quiet=quiet) as (observe, say), messages(say, quiet=quiet):
        tuned = choose(tables, public, folder, observe=observe, **keys)
    try:
        with out.open("x", encoding="utf-8") as written:
            written.write(chosen_file(tuned, command))
    except FileExistsError:
        _check_out(out)
    return tuned.document | {"out": str(out), "runs_folder": str(folder)}


def _check_out(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out} exists already and is not overwritten; choose another with --out")
    if not out.parent.is_dir():
        raise InputError(f"{out} cannot be written: there is no folder {out.parent}; make it, or choose another --out")


def _table(document: dict[str, Any]) -> Table:
    """Return the chosen setting and the best others, most seeds first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from sottovoce.report.units import decimal

    keys = list(document["axes"])
    ranked = sorted(
        (trial for trial in document["tried"] if trial["score"] is not None),
        key=lambda trial: (trial["settings"] != document["chosen"], -len(trial["scores"]), -trial["score"]),
    )
    metric = str(document["metric"]).replace("_", " ")
    left = len(document["tried"]) - len(ranked[:_SHOWN])
    caption = (
        f"{metric} on {document['scored_records']} train records of {document['public']} that no client held; the "
        f"first line is chosen. A score that chose among {len(ranked)} is too good: it is no result."
        + (f"\n{left} more in tune.csv" if left else "")
    )
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(caption), caption_justify="left")
    for key in keys:
        drawn.add_column(Text(key), justify="right", overflow="fold")
    drawn.add_column("score", justify="right")
    drawn.add_column("seeds", justify="right")
    for trial in ranked[:_SHOWN]:
        values = (Text(_words(trial["settings"][key])) for key in keys)
        drawn.add_row(*values, decimal(trial["score"]), str(len(trial["scores"])))
    return drawn


def _words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(settings: dict[str, Any] | None) -> str:
    return ", ".join(f"{key.split('.')[-1]} {_words(value)}" for key, value in (settings or {}).items())


@contextmanager
def _progress(budget: int, *, quiet: bool) -> Iterator[tuple[Callable[[Step], None], Callable[[str], None]]]:
    """Give what shows a search: a line at the end of each run and, on a terminal, a bar for the run that goes on."""
    if quiet:
        yield (lambda step: None), note
        return
    if not sys.stderr.isatty():
        yield (lambda step: _say_end(step, budget, note)), note
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )

    def say(text: str) -> None:
        bar.console.print(printable(text), markup=False, highlight=False)

    with bar:
        task = bar.add_task("starting", total=1)

        def show(step: Step) -> None:
            if step.record is not None:
                done = int(step.record["round"])
                bar.update(task, description=f"run {step.run} of {budget}", completed=done, total=step.rounds)
            _say_end(step, budget, say)

        yield show, say


def _say_end(step: Step, budget: int, say: Callable[[str], None]) -> None:
    from sottovoce.report.units import decimal

    if step.reason is not None:
        say(f"{_setting(step.settings)}: cannot be run: {step.reason}")
    if step.score is None:
        return
    best = f"; best so far {decimal(step.best_score)} with {_setting(step.best)}"
    say(f"run {step.run} of {budget}: {_setting(step.settings)}, seed {step.seed}: {decimal(step.score)}{best}")
