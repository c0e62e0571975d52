"""`sottovoce audit`: empirical lower bounds beside the proven epsilons."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, Quiet
from sottovoce.cli.output import messages, note, put_json, put_tables
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.files import replace_file

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.studies.audit import Audit

DOOR = "research"
EXAMPLE = "Example: sottovoce audit runs/quickstart, or: sottovoce audit experiment.toml --quick"


def audit(
    what: Annotated[
        Path, typer.Argument(metavar="FILE|RUN", help="An experiment file, or a run folder.", show_default=False)
    ],
    changes: Changes = None,
    games: Annotated[
        int | None,
        typer.Option("--games", metavar="N", min=2, help="Games against the server.", show_default=False),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option("--canaries", metavar="N", min=2, help="Canaries of one run.", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=1, help="Runs against outsiders.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Train nobody, and play fewer games.")] = False,
    secure: Annotated[bool, typer.Option("--secure", help="Play through real secure aggregation.")] = False,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="SHARE", help="With which the lower bounds hold.")
    ] = 0.95,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Other games.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the result as JSON; else RUN/audit.json.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack the guarantee of a configuration, or of a run, and print what the attack shows beside what is proven.

    Ends with exit code 3 if a test accuses the build.
    """
    from sottovoce.config.experiment import load
    from sottovoce.studies.audit import Options, audit_run
    from sottovoce.studies.audit import audit as play

    if what.is_dir() and changes:
        raise InputError("--set changes an experiment file, and a run folder is audited as it was run; leave it out")
    target = out or (what / "audit.json" if what.is_dir() else None)
    if target is not None and not target.parent.is_dir():
        raise InputError(f"--out {target} cannot be written: there is no folder {target.parent}")
    options = Options(
        games=games,
        canaries=canaries,
        seeds=seeds,
        quick=quick,
        secure=secure,
        confidence=confidence,
        seed=seed,
        tell=(lambda what, done, total: None) if quiet else _Teller().tell,
    )
    with messages(quiet=quiet):
        found = audit_run(what, options) if what.is_dir() else play(load(what, changes or []), options)
    document = found.document()
    if target is not None:
        _write(target, document)
    if as_json:
        put_json(document)
    else:
        put_tables(_bounds(found), _tests(found))
        if not quiet:
            note(found.note)
    if target is not None and not quiet:
        note(f"the audit is in {target}")
    if found.accused:
        for reason in found.reasons:
            note(f"accused: {reason}")
        raise typer.Exit(PrivacyError.exit_code)


class _Teller:
    """Progress on stderr: a line after two seconds, and then every ten."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 2.0

    def tell(self, what: str, done: int, total: int) -> None:
        """Say how far it is, if it is time to."""
        if time.monotonic() >= self._next:
            note(f"{what}: {done} of {total}")
            self._next = time.monotonic() + 10.0


def _bounds(found: Audit) -> Table:
    from rich.table import Table

    from sottovoce.report.units import epsilon

    table = Table(title=f"{'ACCUSED' if found.accused else 'not accused'}, confidence {found.confidence:g}")
    for title in ("against", "proven: at most", "shown: at least"):
        table.add_column(title, justify="left" if title == "against" else "right")
    table.add_row("outsiders (epsilon)", epsilon(found.epsilon), epsilon(found.epsilon_lower))
    if not found.aggregators:
        table.add_row("the server (epsilon_server)", epsilon(found.epsilon_server), epsilon(found.epsilon_server_lower))
    if found.epsilon_site is not None:
        table.add_row("another site (epsilon_site)", epsilon(found.epsilon_site), epsilon(found.epsilon_site_lower))
    for each in found.aggregators:
        table.add_row(f"the {each.name} (epsilon_server)", epsilon(found.epsilon_server), epsilon(each.lower))
    return table


def _tests(found: Audit) -> Table:
    from rich.table import Table

    table = Table(title=f"{len(found.tests)} tests; a p value below {found.threshold:.1e} accuses")
    for title in ("test", "statistic", "p value"):
        table.add_column(title, justify="left" if title == "test" else "right")
    for test in found.tests:
        told = ("no" if found.rejects(test) else "yes") if test.statistic is None else f"{test.statistic:.4g}"
        chance = "" if test.statistic is None else f"{test.p_value:.2g}"
        table.add_row(test.name, told, chance, style="bold red" if found.rejects(test) else None)
    return table


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        replace_file(path, json.dumps(document, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror}") from None
