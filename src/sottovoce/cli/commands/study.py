"""`sottovoce study`: studies that are more than one run, or no run of a federation's own kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, Out, Quiet
from sottovoce.cli.output import messages, note, put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "research"
study = typer.Typer(
    help="Play a study: mechanisms of privacy on logistic regression, or ballots against noisy shares.",
    epilog="Example: sottovoce study mechanisms experiments/mechanisms/mnist-printed.toml",
    no_args_is_help=True,
)


@study.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `study --json mechanisms` means the same as `study mechanisms --json`


@study.command("mechanisms", epilog="Example: sottovoce study mechanisms --set study.mode=printed --png mechanisms.png")
def _mechanisms(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The study, a TOML file; else a small one.", show_default=False),
    ] = None,
    changes: Changes = None,
    out: Out = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Write the curves as a picture.", show_default=False),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", metavar="DIR", help="Folder of another study, to draw too.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a folder: play what it lacks.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Play federated logistic regression with noise on the clients' weights, beside the printed accuracies."""
    from sottovoce.report.png import can_draw
    from sottovoce.studies.mechanisms import printed_curves, read_cells, read_settings, run_study

    can_draw(png)
    others = [cell for folder in also or () for cell in read_cells(folder)]
    settings = read_settings(file, changes or [])
    folder = out or Path("runs") / settings.name
    with messages(quiet=quiet):
        cells = run_study(settings, folder, resume=resume, tell=_teller(quiet=quiet))
    if png is not None:
        from sottovoce.report.mechanisms import write_mechanisms_png

        write_mechanisms_png([*cells, *others], printed_curves(), png)
    if as_json or context.obj:
        put_json({"mode": settings.mode, "data": settings.data, "folder": str(folder), "cells": cells})
    else:
        put_tables(_table(cells))
    if not quiet:
        note(f"the cells are in {folder}")


@study.command("ballots", epilog="Example: sottovoce study ballots experiments/threats/ballots-small.toml --seeds 5")
def _ballots(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A private experiment, whose epsilon all arms have.")],
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", metavar="NAME", help="An attack; may be repeated.")
    ] = None,
    fractions: Annotated[
        list[float] | None, typer.Option("--fraction", metavar="F", help="Share of malicious clients; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Runs of each cell.")] = 1,
    changes: Changes = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Play three arms at one epsilon: noisy shares and ballots under attack, and both without one."""
    from sottovoce.config.experiment import load
    from sottovoce.planning.plan import plan
    from sottovoce.studies.ballots import ARMS, arm_of, play_arms, rows_of

    experiment = load(file, changes or [])
    folder = out or Path("runs") / f"{experiment.experiment.name}-arms"
    seed = experiment.experiment.seed
    votes = {arm: float(plan(arm_of(experiment, arm, "", 0.0, seed))["votes"]) for arm in ARMS}
    with messages(quiet=quiet):
        cells = play_arms(
            experiment,
            folder,
            attacks=attacks or ["gradient-ascent", "out-backdoor"],
            fractions=fractions or [0.01, 0.1],
            seeds=seeds,
            tell=_teller(quiet=quiet),
        )
    rows = [row._asdict() for row in rows_of(cells, votes)]
    if as_json or context.obj:
        put_json({"folder": str(folder), "rows": rows})
    else:
        put_tables(_arms(rows))
    if not quiet:
        note(f"the runs are in {folder}")


def _arms(rows: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("attack", "malicious", "arm", "accuracy", "lowest", "attack succeeds", "lost", "A", "bytes up"):
        drawn.add_column(title, overflow="fold")
    for row in sorted(rows, key=lambda row: (row["attack"], row["fraction"], row["arm"])):
        success = "" if row["attack_success"] is None else f"{row['attack_success']:.3f}"
        lost = f"{row['lost']} of {row['seeds']}" if row["attack"] else ""
        numbers = (f"{row['accuracy']:.3f}", f"{row['accuracy_lowest']:.3f}", success, lost)
        who = f"{row['fraction']:.0%}" if row["attack"] else ""
        drawn.add_row(row["attack"] or "none", who, row["arm"], *numbers, f"{row['votes']:.3g}", f"{row['bytes_up']:,}")
    return drawn


def _teller(*, quiet: bool) -> Callable[[int, int, str], None]:
    """Return what says on stderr which cell is played, at most every two seconds."""
    last = time.monotonic()

    def tell(done: int, total: int, what: str) -> None:
        nonlocal last
        if not quiet and time.monotonic() - last >= 2.0:
            last = time.monotonic()
            note(f"cell {min(done + 1, total)} of {total}: {what}")

    return tell


def _table(cells: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table

    from sottovoce.studies.mechanisms import beside

    printed = {cell[1:6]: cell.printed for cell in beside(cells)}
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("data", "mode", "mechanism", "epsilon", "clients", "records", "printed", "ours", "last", "local"):
        drawn.add_column(title, overflow="fold")
    for cell in cells:
        epsilon = "" if cell["epsilon"] is None else f"{cell['epsilon']:g}"
        key = (cell["data"], cell["mechanism"], cell["epsilon"], cell["clients"], cell["samples"])
        there = printed.get(key)
        drawn.add_row(
            cell["data"],
            cell["mode"],
            cell["mechanism"],
            epsilon,
            str(cell["clients"]),
            str(cell["samples"]),
            "" if there is None else f"{there:.2f}",
            *(f"{cell[key]:.3f}" for key in ("accuracy", "accuracy_last", "local_accuracy_last")),
        )
    return drawn
