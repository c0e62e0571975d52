"""`sottovoce ledger`: what a ledger says, whether its chain holds, and a copy for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import note, put_json, put_tables
from sottovoce.core.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.statement.findings import Findings

DOOR = "deploy"
ledger = typer.Typer(
    help="Show, verify or export the account of what private rounds were charged.",
    epilog="Example: sottovoce ledger show runs/clinics",
    no_args_is_help=True,
)

Ledgers = Annotated[
    Path,
    typer.Argument(metavar="RUN_OR_LEDGER", help="A run, a node's folder, or a ledger file.", show_default=False),
]


@ledger.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `ledger --json show` means the same as `ledger show --json`


@ledger.command("show", epilog="Example: sottovoce ledger show runs/clinics")
def _show(context: typer.Context, path: Ledgers, as_json: AsJson = False) -> None:
    """Say whose ledger it is, for which plan, and what was charged of how much."""
    from sottovoce.deployment.node.account import read_account
    from sottovoce.report.tables import grouped
    from sottovoce.statement.ledgers import find_accounts, find_ledgers, read_ledger

    ledgers = [read_ledger(each) for each in find_ledgers(path)]
    if path.is_file() and ledgers and not any(each.entries for each in ledgers):
        raise InputError(f"{path} is no ledger: not one of its lines can be read")
    documents = [each.told() for each in ledgers]
    documents += [read_account(each).told() for each in find_accounts(path)]
    if as_json or context.obj:
        put_json(documents)
        return
    for document in documents:
        remark, problem = document.pop("note", None), document["problem"]
        document = _readable(document)
        put_tables(grouped({**document, "problem": problem or "none"}))
        if remark:
            note(f"note: {remark}")
        if problem:
            place = document.get("ledger", document.get("account"))
            note(f"warning: {place}: {problem}; what is shown are the lines before")


@ledger.command("verify", epilog="Example: sottovoce ledger verify runs/clinics")
def _verify(context: typer.Context, path: Ledgers, as_json: AsJson = False) -> None:
    """Recompute the chain of hashes and check limits; exit 3 if something is wrong."""
    from sottovoce.deployment.node.account import read_account
    from sottovoce.statement.findings import Findings
    from sottovoce.statement.ledgers import check_account, check_ledger, find_accounts, find_ledgers, read_ledger

    findings = Findings()
    for each in find_accounts(path):
        check_account(read_account(each), findings)
    for each in find_ledgers(path):
        check_ledger(read_ledger(each), findings)
    show_findings(findings, as_json=as_json or context.obj)


@ledger.command("export", epilog="Example: sottovoce ledger export runs/clinics --out account.json")
def _export(
    context: typer.Context,
    path: Ledgers,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write there, not to stdout.", show_default=False)
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also of a site or a helper, whose lines tell who took part.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the account as one JSON document, for an auditor; a damaged ledger is not exported (exit 3).

    The ledger of a site or a helper tells who took part in which round, and so does its last hash, which anybody can
    try out. It is exported with --whole only.
    """
    from sottovoce.core.errors import PrivacyError
    from sottovoce.deployment.node.account import read_account
    from sottovoce.report.save import save
    from sottovoce.statement.ledgers import TELLS_WHO, find_accounts, find_ledgers, read_ledger

    documents: list[dict[str, Any]] = []
    for each in find_accounts(path):
        account = read_account(each)
        if account.problem is not None:
            raise PrivacyError(f"{each}: {account.problem}; restore it, nothing was exported")
        documents.append(account.told() | {"account": each.name, "entries": list(account.lines)})
    for each in find_ledgers(path):
        ledger = read_ledger(each)
        if ledger.problem is not None:
            raise PrivacyError(f"{each}: {ledger.problem}; restore it, nothing was exported")
        if ledger.keeper != "server" and not whole:
            raise PrivacyError(f"{each}: {TELLS_WHO}; add --whole if the reader may know that, nothing was exported")
        documents.append(ledger.told(lines=True) | {"ledger": each.name})
    if out is None or as_json or context.obj:
        put_json({"ledgers": documents})
    if out is not None:
        save((json.dumps({"ledgers": documents}, indent=2) + "\n").encode(), out, "--out")
        note(f"wrote {out}")


def _readable(document: dict[str, Any]) -> dict[str, Any]:
    """Return the account of a data set with one line for each experiment; any other document as it is."""
    if "experiments" not in document:
        return document
    words = {}
    for each in document["experiments"]:
        numbers = f"epsilon {_number(each['epsilon'])}, against the server {_number(each['epsilon_server'])}"
        place = f"{each['name']} ({each['experiment'][:8]}, {each.get('year')})"
        words[place] = f"{numbers}, delta {each['delta']:g}, unit {each.get('unit')}"
    return {**document, "experiments": words or "none"}


def _number(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"


def show_findings(findings: Findings, *, strict: bool = False, as_json: bool = False) -> None:
    """Print what a check found, false first, and end with its exit code."""
    if as_json:
        put_json(findings.told(strict=strict))
    else:
        put_tables(_table(findings))
        false, unchecked = len(findings.of("false")), len(findings.of("unchecked"))
        rest = f"; {unchecked} could not be checked" if unchecked else ""
        note(
            f"FALSE: {false} of {len(findings.found)} claims do not hold{rest}" if false else f"nothing is false{rest}"
        )
    if code := findings.exit_code(strict=strict):
        raise typer.Exit(code)


def _table(findings: Findings) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from sottovoce.statement.findings import STATES

    table = Table("", "claim", "what was found", box=None, pad_edge=False)
    words = {"false": "FALSE", "true": "true", "unchecked": "not checked", "beyond": "no file shows"}
    for state in STATES:
        for finding in findings.of(state):
            table.add_row(words[state], escape(finding.claim), escape(finding.detail))
    return table
