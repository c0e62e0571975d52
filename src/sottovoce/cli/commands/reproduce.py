"""`sottovoce reproduce`: a published table or figure, ours beside theirs."""

from __future__ import annotations

import os
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
Named = Annotated[
    str | None,
    typer.Option(
        "--campaign",
        metavar="NAME",
        help="Play a list of rows, the most telling first: evidence, mechanisms, or a .toml file.",
        show_default=False,
    ),
]
Part = Annotated[
    str,
    typer.Option("--part", metavar="K/N", help="Of a campaign on N machines: the rows of machine K."),
]
Cells = Annotated[
    Path,
    typer.Option("--cells", metavar="DIR", help="Where a campaign keeps its results, a small file a row and seed."),
]
Judged = Annotated[
    bool,
    typer.Option("--evidence", help="Show all printed rows: what was run by campaigns, and whether it held."),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="With --evidence: also write the page.", show_default=False),
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
    campaign: Named = None,
    part: Part = "1/1",
    cells: Cells = Path("results/cells"),
    judged: Judged = False,
    html: Html = None,
    quiet: Quiet = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a published table or figure: theirs, ours, and why they differ.

    Runs that were done for this or another table are read, not repeated.
    """
    from sottovoce.studies.catalogue import OUT

    if [name is not None, listed, campaign is not None, judged].count(True) != 1:
        raise InputError("give the name of a table, or --list, or --campaign, or --evidence, and one of them only")
    if html is not None and not judged:
        raise InputError("--html writes the page of --evidence; leave it out here")
    folder = out or OUT
    if judged:
        _evidence(cells, html, as_json=as_json)
        return
    if campaign is not None:
        _campaign(campaign, part, cells, folder, workers, quiet=quiet, as_json=as_json)
        return
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


def _campaign(
    name: str, part: str, cells: Path, folder: Path, workers: int | None, *, quiet: bool, as_json: bool
) -> None:
    from sottovoce.cli.progress import view
    from sottovoce.studies.campaign import RowTask, play, read_campaign

    chosen, share = read_campaign(name), _share(part)
    if hasattr(os, "nice"):
        os.nice(10)  # hours of work: others on this machine come first
    outcomes: list[dict[str, str | None]] = []
    started: set[str] = set()
    with view(quiet=quiet, named=True) as shown, messages(shown.say, quiet=quiet):

        def observe(cell: str, rounds: int, record: dict[str, Any]) -> None:
            if cell not in started:
                started.add(cell)
                shown.start(cell, rounds)
            shown.show(cell, record)

        def tell(done: int, total: int, task: RowTask) -> None:
            started.clear()
            shown.say(f"{done + 1} of {total}: {task.words}")

        try:
            for task, reason in play(
                chosen, cells, part=share, out=folder, workers=workers, observe=observe, tell=tell
            ):
                outcomes.append({"table": task.table, "row": task.row, "reason": reason})
                if reason is not None:
                    shown.say(f"not run: {task.words}: {reason}")
        except KeyboardInterrupt:
            note(f"interrupted; go on with: sottovoce reproduce --campaign {shlex.quote(name)} and the same options")
            raise typer.Exit(RunError.exit_code) from None
    failed = [outcome for outcome in outcomes if outcome["reason"] is not None]
    if as_json:
        put_json({"campaign": name, "cells": str(cells), "played": len(outcomes) - len(failed), "not_run": failed})
    else:
        put(f"{len(outcomes) - len(failed)} rows played, {len(failed)} not run; results are in {cells}\n")
        note(f"the page of all printed rows: sottovoce reproduce --evidence --cells {cells} --html evidence.html")
    if outcomes and len(failed) == len(outcomes):
        raise RunError(f"no row of campaign {name} could be played; the first: {failed[0]['reason']}")


def _share(part: str) -> tuple[int, int]:
    number, slash, of = part.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise InputError(f"--part must be K/N with K from 1 to N, got {part!r}; for the second of three: --part 2/3")
    return int(number), int(of)


def _evidence(cells: Path, html: Path | None, *, as_json: bool) -> None:
    from sottovoce.report.evidence import evidence_table, write_evidence
    from sottovoce.studies.campaign import evidence

    if not cells.is_dir():
        raise InputError(f"--cells: {cells} is no folder; it is made by `sottovoce reproduce --campaign evidence`")
    document = evidence(cells)
    if html is not None:
        write_evidence(document, html)
        note(f"wrote {html}")
    if as_json:
        put_json(document)
        return
    put_tables(evidence_table(document))


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
