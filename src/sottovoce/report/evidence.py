"""Show every printed row of the documents and what was run of it: a table of counts, and a page with a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.report.pages import page_environment
from sottovoce.report.save import save
from sottovoce.report.units import ABSENT, human_seconds

if TYPE_CHECKING:
    from rich.table import Table

Document = Mapping[str, Any]


def evidence_table(document: Document) -> Table:
    """Return one line a table: how many of its rows were run, and of how many the printed numbers held."""
    from rich.table import Table as RichTable

    counts = document["counts"]
    printed = sum(counts.values()) - counts["ours"]
    drawn = RichTable(
        caption=f"{printed} printed rows: {counts['held']} held, {counts['not held']} not held, "
        f"{counts['not run']} not run; held: within {document['near']:g} of what is printed"
    )
    for head in ("name", "what", "rows", "held", "not held", "not run"):
        drawn.add_column(head, no_wrap=head != "what")
    for table in document["tables"]:
        verdicts = [row["verdict"] for row in table["rows"] if row["verdict"] != "ours"]
        found = (str(verdicts.count(verdict)) for verdict in ("held", "not held", "not run"))
        drawn.add_row(table["name"], table["title"], str(len(verdicts)), *found)
    return drawn


def write_evidence(document: Document, path: Path) -> None:
    """Write the page; it needs no network."""
    save(evidence_page(document).encode(), path, "--html")


def evidence_page(document: Document) -> str:
    """Return the page: all rows, filtered by verdict or words in the browser, differences as colours."""
    text: str = (
        page_environment()
        .get_template("evidence.html")
        .render(
            css=Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
            tables=[{**table, "rows": [_row(row) for row in table["rows"]]} for table in document["tables"]],
            counts=document["counts"],
            printed=sum(document["counts"].values()) - document["counts"]["ours"],
            near=document["near"],
        )
    )
    return text


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    how = []
    if row["setting"]:
        seeds = row["seeds"]
        how.append(f"{row['setting']}; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
    if row["cpu_seconds"]:
        how.append(f"{human_seconds(row['cpu_seconds'])} of CPU")
    if row["commits"]:
        how.append(f"commit {', '.join(row['commits'])}")
    return {**row, "cells": [_cell(cell) for cell in row["cells"]], "how": "; ".join(how)}


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    metric = not cell["column"].startswith("cost") and cell["column"] not in ("round", "epsilon")
    difference = cell["difference"] if metric else None
    ours = ABSENT if cell["ours"] is None else f"{cell['ours']:.4g}"
    return {
        "name": cell["column"].replace("_", " "),
        "printed": cell["sign"] or f"{cell['printed']:.6g}",
        "ours": "-" if cell["diverged"] else ours,
        "difference": None if difference is None or cell["diverged"] else f"{difference:+.3f}",
        "heat": "" if difference is None or cell["diverged"] else _heat(difference),
    }


def _heat(difference: float) -> str:
    """Return the class of a colour: nothing within three points, then three steps to either side."""
    steps = sum(abs(difference) > edge + 1e-9 for edge in (0.03, 0.06, 0.12))
    return "" if steps == 0 else f"{'above' if difference > 0 else 'below'}-{steps}"
