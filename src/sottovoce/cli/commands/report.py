"""`sottovoce report`: compare runs, from their folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Wide
from sottovoce.cli.output import note, put, put_json, put_tables, width
from sottovoce.core.errors import InputError

DOOR = "try"
EXAMPLE = "Example: sottovoce report runs/std runs/top --html report.html"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write a page with figures; it works offline.", show_default=False
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png", metavar="FILE", help="Also draw the matrix of attacked runs; as SVG to a .svg.", show_default=False
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Serve the page on this machine and follow runs that go on, until Ctrl-C."),
    ] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table and, with --html, in figures; unfinished runs too.

    Runs under more than one attack or fraction of malicious clients are laid out in a robustness matrix below.

    The ledger of a private run is checked. A damaged folder is named, and does not keep the others from being shown.
    """
    from sottovoce.report.decision import decide
    from sottovoce.report.matrix import matrix_tables, remarks, views
    from sottovoce.report.png import can_draw
    from sottovoce.report.robustness import cells
    from sottovoce.report.runs import facts, lead, read_runs
    from sottovoce.report.tables import table, warnings
    from sottovoce.runs.population import totals

    can_draw(png)
    read, damaged = read_runs(runs)
    if watch:
        if html is not None or png is not None or as_json:
            raise InputError("--watch serves the page and writes nothing; leave out --html, --png and --json")
        _watch(runs)
        return
    told = facts(read)
    records, matrix = [*told, *damaged], cells(read, told)
    for warning in warnings(records):
        note(f"warning: {warning}")
    if png is not None:
        from sottovoce.report.png import write_robustness_png

        write_robustness_png(views(matrix, lead(read)), remarks(matrix), png)
    if html is not None:
        from sottovoce.report.html import write_html

        write_html(read, html, damaged)
    if as_json:
        put_json(
            {
                "decision": decide(records, lead(read)),
                "runs": records,
                "robustness": [cell.told() for cell in matrix],
                "populations": totals(records),
                "html": None if html is None else str(html),
                "png": None if png is None else str(png),
            }
        )
    else:
        put(decide(records, lead(read)) + "\n\n")
        put_tables(*table(records, width()), *matrix_tables(matrix, lead(read), width()))
    if html is not None:
        note(f"the report is in {html}")
    if png is not None:
        note(f"the robustness matrix is in {png}")


def _watch(runs: list[Path]) -> None:
    """Serve until Ctrl-C, which is how watching ends and no failure."""
    from sottovoce.report.watch import Watch

    with Watch(runs) as server:
        try:
            whom = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
            note(f"the report is at {server.address} and follows {whom}; Ctrl-C ends it")
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            note("no longer followed")
