"""`sottovoce statement`: one page that says what a run asked, sent and promised, and can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, RunFolderPath
from sottovoce.cli.output import note, put, put_tables

DOOR = "deploy"
EXAMPLE = "Example: sottovoce statement runs/clinics --html statement.html"


def statement(
    run: RunFolderPath,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that prints well.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the JSON there.", show_default=False)
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(
            "--twin", metavar="RUN", help="The same run without privacy: tells its price.", show_default=False
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            "--public",
            metavar="WORDS",
            help="For --twin on records of your own: who made them public.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what a finished run asked of whom, what left each site, and what is promised against whom.

    Everything in it may be published. `sottovoce verify` checks it: nobody need trust who wrote it.
    """
    from dataclasses import replace

    from rich.markup import escape
    from rich.table import Table

    from sottovoce.core.errors import InputError
    from sottovoce.report.save import save
    from sottovoce.statement.evidence import gather_evidence
    from sottovoce.statement.page import statement_page, statement_text
    from sottovoce.statement.statement import make_statement, number, percent
    from sottovoce.statement.twin import twin_record

    evidence = gather_evidence(run)
    if twin is not None:
        evidence = replace(evidence, twin=twin_record(evidence.config, gather_evidence(twin).record(), public))
    elif public is not None:
        raise InputError("--public is about the records of a --twin; name that run too, or leave it out")
    document = make_statement(evidence)
    if html is not None:
        save(statement_page(document).encode(), html, "--html")
    if out is not None:
        save(statement_text(document).encode(), out, "--out")
    if as_json:
        put(statement_text(document))
    else:
        put(document["in_one_sentence"] + "\n\n")
        table = Table("against", "epsilon", "right guesses at most", "note", box=None, pad_edge=False)
        for each in document["against"]:
            guesses = percent(each["odds"]["right_guesses_at_most"])
            table.add_row(each["who"], number(each["epsilon"]), guesses, escape(each["note"] or ""))
        put_tables(table)
        put("\nnot protected:\n" + "".join(f"- {line}\n" for line in document["not_protected"]))
    for path in (html, out):
        if path is not None:
            note(f"the statement is in {path}; anybody can check it: sottovoce verify {path}")
