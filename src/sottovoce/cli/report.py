"""`sottovoce report`: compare runs, from their folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import note, put_json, put_tables, width

__all__ = ["EXAMPLE", "report"]

EXAMPLE = "Example: sottovoce report runs/std runs/top --html report.html"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write a page with figures; it works offline.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table and, with --html, in figures; unfinished runs too.

    The ledger of a private run is checked. A damaged folder is named, and does not keep the others from being shown.
    """
    from sottovoce.report.runs import DAMAGED, facts, read_runs
    from sottovoce.report.tables import table

    read, damaged = read_runs(runs)
    records = [*facts(read), *damaged]
    for record in records:
        problem = record["reason"] if record["status"] == DAMAGED else (record["ledger"] or {}).get("problem")
        if problem:
            note(f"warning: {record['label']}: {problem}")
    if html is not None:
        from sottovoce.report.html import write_html

        write_html(read, html, damaged)
    if as_json:
        put_json({"runs": records, "html": None if html is None else str(html)})
    else:
        put_tables(*table(records, width()))
    if html is not None:
        note(f"the report is in {html}")
