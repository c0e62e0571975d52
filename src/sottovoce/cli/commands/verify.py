"""`sottovoce verify`: check a run or a statement, without data and without trust in who wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.commands.ledger import show_findings
from sottovoce.cli.options import AsJson
from sottovoce.cli.output import waiting

DOOR = "deploy"
EXAMPLE = "Example: sottovoce verify runs/clinics --ledgers node-3/state"


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="STATEMENT|RUN", help="A statement (JSON or HTML) or a run.", show_default=False)
    ],
    ledgers: Annotated[
        list[Path] | None,
        typer.Option("--ledgers", metavar="PATH", help="Ledger of a site or a helper; repeat it.", show_default=False),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="The run that a statement is about.", show_default=False),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            "--root",
            metavar="FINGERPRINT",
            help="Fingerprint of the root key that signs the roster, or the file with it.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 also if something could not be checked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check what can be checked, and say what could not be.

    It needs no data and no network. The plan is solved again from the recorded request, chains of hashes, epsilons,
    totals and digests are recomputed. Exit 0: what could be checked is true. Exit 3: something is false.
    """
    from sottovoce.core.errors import InputError
    from sottovoce.statement.verify import verify_run, verify_statement

    if path.is_dir() and run is not None:
        raise InputError("--run goes with a statement; the run itself is checked without it")
    if not path.exists():
        raise InputError(f"there is no {path}; name a statement or a run folder")
    pinned = None if root is None else _fingerprint(root)
    with waiting("checking"):
        findings = (
            verify_run(path, ledgers or (), pinned)
            if path.is_dir()
            else verify_statement(path, ledgers or (), run, pinned)
        )
    show_findings(findings, strict=strict, as_json=as_json)


def _fingerprint(root: str) -> str:
    """Return the fingerprint that was given, or that a file holds."""
    from sottovoce.core.errors import InputError
    from sottovoce.deployment.roster import check_pin

    path = Path(root)
    try:
        return check_pin(path.read_text(encoding="ascii") if path.is_file() else root)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--root {root} cannot be read: {error}") from None
