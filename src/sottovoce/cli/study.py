"""`sottovoce study`: studies of the papers that are no run of a federation's own kind."""

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

__all__ = ["app"]

app = typer.Typer(
    help="Play a study of the papers: mechanisms of privacy on logistic regression.",
    epilog="Example: sottovoce study mechanisms experiments/mechanisms/mnist-printed.toml",
    no_args_is_help=True,
)


@app.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `study --json mechanisms` means the same as `study mechanisms --json`


@app.command("mechanisms", epilog="Example: sottovoce study mechanisms --set study.mode=printed --png mechanisms.png")
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
    from sottovoce.report.with_matplotlib import can_draw
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
