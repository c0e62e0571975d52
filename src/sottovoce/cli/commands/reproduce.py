"""`sottovoce reproduce`: a published table or figure, ours beside theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Quiet, Wide
from sottovoce.cli.output import messages, note, put, put_json, put_tables
from sottovoce.core.errors import InputError, RunError

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "research"
EXAMPLE = 'Example: sottovoce reproduce 5.5 --rows "FL-TOP-DP, FL-STD-DP" --seeds 3'

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A table or figure, such as 5.5, 3 or fig-6.1.", show_default=False)
]
Scale = Annotated[
    str, typer.Option("--scale", metavar="SCALE", help="small: minutes; full: as in the papers, hours or days.")
]
Rows = Annotated[
    list[str] | None,
    typer.Option(
        "--rows",
        metavar="WORDS",
        help="Only rows with one of these words (commas between).",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where runs are; else runs/reproduce.", show_default=False)
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=0, help="Worker processes; 0 is one a core.", show_default=False),
]
Png = Annotated[
    Path | None, typer.Option("--png", metavar="FILE", help="Of a figure: write it as a picture.", show_default=False)
]


def reproduce(
    name: Name = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what there is and what was run.")] = False,
    scale: Scale = "small",
    rows: Rows = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Runs of each row; ours is their mean.")] = 1,
    out: Out = None,
    workers: Workers = None,
    png: Png = None,
    quiet: Quiet = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a published table or figure: theirs, ours, and why they differ.

    Runs that were done for this or another table are read, not repeated.
    """
    from sottovoce.studies.catalogue import OUT

    if listed == (name is not None):
        raise InputError("give the name of a table, or --list, and not both")
    folder = out or OUT
    if name is None:
        _list(folder, as_json=as_json)
        return
    try:
        document = _reproduce(name, scale, rows or [], seeds, folder, workers, png, quiet=quiet)
    except KeyboardInterrupt:
        note(f"interrupted; go on with: {_again(name, scale, rows, seeds, out, workers, quiet=quiet, as_json=as_json)}")
        raise typer.Exit(RunError.exit_code) from None
    if as_json:
        put_json(document)
    else:
        _show(document)


def _reproduce(
    name: str,
    scale: str,
    words: list[str],
    seeds: int,
    folder: Path,
    workers: int | None,
    png: Path | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    from sottovoce.cli.progress import view
    from sottovoce.core.validate import one_of
    from sottovoce.report.png import can_draw
    from sottovoce.report.published import write_series_png
    from sottovoce.studies.catalogue import study_of

    can_draw(png)
    one_of("--scale", scale, ("small", "full"))
    study = study_of(name)
    started: set[str] = set()
    with view(quiet=quiet, named=True) as shown, messages(shown.say, quiet=quiet):

        def observe(cell: str, rounds: int, record: dict[str, Any]) -> None:
            if cell not in started:
                started.add(cell)
                shown.start(cell, rounds)
            shown.show(cell, record)

        document = study.reproduce(
            name,
            scale="full" if scale == "full" else "small",
            rows=words,
            seeds=seeds,
            out=folder,
            workers=workers,
            observe=observe,
        )
    if png is not None:
        if not document["series"]:
            raise InputError(f"{document['name']} is no figure, so there is nothing for --png to draw; remove it")
        write_series_png(document, png)
        note(f"wrote {png}")
    return document


def _show(document: dict[str, Any]) -> None:
    from sottovoce.report.published import footnotes, ordering_words, published_table, series_table

    drawn: list[Table] = [published_table(document)] if document["cells"] else []
    if document["series"]:
        drawn.append(series_table(document))
    put_tables(*drawn)
    said = footnotes(document)
    if document["ordering"] is not None:
        said.append(ordering_words(document["ordering"]))
    put("".join(f"{line}\n" for line in said))
    spent = [run["seconds"] for run in document["runs"] if run["seconds"] is not None]
    note(f"{len(document['runs'])} runs of {sum(spent):.0f} s in all")


def _list(folder: Path, *, as_json: bool) -> None:
    from sottovoce.report.published import listing_table
    from sottovoce.studies.catalogue import listing

    entries = listing(folder)
    if as_json:
        put_json(entries)
        return
    put_tables(listing_table(entries))


def _again(
    name: str,
    scale: str,
    rows: list[str] | None,
    seeds: int,
    out: Path | None,
    workers: int | None,
    *,
    quiet: bool,
    as_json: bool,
) -> str:
    words = ["sottovoce", "reproduce", name, "--scale", scale]
    for given in rows or ():
        words += ["--rows", given]
    for option, value in (("--seeds", seeds if seeds != 1 else None), ("--out", out), ("--workers", workers)):
        words += [] if value is None else [option, str(value)]
    return shlex.join([*words, *(flag for flag, given in (("--quiet", quiet), ("--json", as_json)) if given)])
