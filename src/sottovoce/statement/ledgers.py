"""Read ledgers without locking or changing them: the server's, a site's own, and that of a helper of ballots.

Who reads a site's ledger, or a helper's, learns who took part in which round. Against such a reader `epsilon`, which
counts on that secret, does not hold; `epsilon_server` does. The last
hash tells it too: nothing in the lines of a site is random, so that anybody can try all rounds out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sottovoce.core.errors import InputError
from sottovoce.deployment.node.account import ACCOUNTS, AccountRecord
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.privacy.ledger import GENESIS, NOTES, VERSION, chained, split_torn
from sottovoce.statement.findings import Findings

Keeper = Literal["server", "site", "helper"]
KINDS: Final = ("open", "charge", "draws", "torn", *NOTES)
LEDGER: Final = "ledger.jsonl"
_KEEPERS: Final = {
    "server": "the server of a run",
    "site": "a site: its own participations",
    "helper": "the helper of secret ballots",
}
TELLS_WHO: Final = (
    "the lines tell who took part in which round; against whoever reads them epsilon does not hold, epsilon_server does"
)


@dataclass(frozen=True)
class LedgerRecord:
    """The lines of a ledger as far as the chain of hashes holds, and what is wrong with it, if anything."""

    path: Path
    entries: tuple[dict[str, Any], ...]
    problem: str | None
    sha256: str

    @property
    def keeper(self) -> Keeper:
        """Return whose ledger it is: only a server writes down draws, and only a helper ballots."""
        kinds = {entry["kind"] for entry in self.entries}
        if kinds & set(NOTES) or self.path.name == HELPER_LEDGER:
            return "helper"
        return "server" if "draws" in kinds or (self.path.parent / "config.toml").exists() else "site"

    @property
    def charged(self) -> list[int]:
        """Return the rounds that were charged, in the order of their charges; a round can be charged again."""
        return [int(entry["round"]) for entry in self.entries if entry["kind"] == "charge"]

    @property
    def torn(self) -> int:
        """Count the lines that were torn; each counts as a charge of some round."""
        return sum(entry["kind"] == "torn" for entry in self.entries)

    @property
    def spent(self) -> int:
        """Count the charges of rounds."""
        return sum(round_ > 0 for round_ in self.charged) + self.torn

    @property
    def head(self) -> str:
        """Return the hash of the last line."""
        return str(self.entries[-1]["hash"]) if self.entries else GENESIS

    @property
    def opening(self) -> dict[str, Any]:
        """Return the first line, which names the plan and the limit; empty if there is none."""
        return self.entries[0] if self.entries else {}

    def told(self, *, lines: bool = False) -> dict[str, Any]:
        """Return what the ledger says as one JSON object; with `lines` every line of it."""
        beside = [round_ for round_ in self.charged if round_ <= 0]
        return {
            "ledger": str(self.path),
            "keeper": self.keeper,
            "keeper_is": _KEEPERS[self.keeper],
            "plan": self.opening.get("digest"),
            "deployment": self.opening.get("deployment"),
            "limit": self.opening.get("limit"),
            "charges": self.spent,
            "charges_beside_rounds": len(beside),
            "torn": self.torn,
            "lines": len(self.entries),
            "head": self.head,
            "sha256": self.sha256,
            "problem": self.problem,
            **({"entries": list(self.entries)} if lines else {}),
            **({"note": TELLS_WHO} if self.keeper != "server" else {}),
        }


def find_ledgers(path: Path) -> list[Path]:
    """Return the ledgers that a path names: a file, the folder of a run, or a node's folder of states."""
    if path in find_accounts(path) or path.name == ACCOUNTS:
        return []
    if path.is_file():
        return [path]
    if not path.exists():
        raise InputError(f"there is no {path}; name a ledger, or a folder that holds one")
    for pattern in (LEDGER, f"*/{LEDGER}", f"state/*/{LEDGER}"):
        if found := sorted(path.glob(pattern)):
            helper = path / HELPER_LEDGER
            found = [each for each in found if each.parent.name != ACCOUNTS]
            return [*found, *([helper] if pattern == LEDGER and helper.exists() else [])]
    if (path / HELPER_LEDGER).exists():
        return [path / HELPER_LEDGER]
    private = _is_private(path)
    if private is False:
        raise InputError(f"{path} is a run without [privacy]: nothing was charged, and there is no ledger")
    raise InputError(f"{path} holds no {LEDGER}; name a private run, a node's folder or the file itself")


def find_accounts(path: Path) -> list[Path]:
    """Return the accounts of data sets that a path names: one of them, or those of a node's folder."""
    if path.is_file():
        return [path] if path.parent.name == ACCOUNTS and path.suffix == ".jsonl" else []
    folders = (path, path / ACCOUNTS, path / "state" / ACCOUNTS)
    return sorted(each for folder in folders if folder.name == ACCOUNTS for each in folder.glob("*.jsonl"))


def _is_private(path: Path) -> bool | None:
    try:
        return "[privacy]" in (path / "config.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def read_ledger(path: Path) -> LedgerRecord:
    """Read a ledger line by line, up to the first that is wrong."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    lines, torn = split_torn(content)
    entries: list[dict[str, Any]] = []
    problem = None
    for number, line in enumerate(lines, start=1):
        entry = chained(line, len(entries), str(entries[-1]["hash"]) if entries else GENESIS)
        if entry is None or line != json.dumps(entry).encode():
            problem = f"line {number} is damaged: the chain of hashes is broken"
        else:
            problem = _wrong(entry, entries[0] if entries else None)
            problem = problem and f"line {number} {problem}"
        if problem or entry is None:
            break
        entries.append(entry)
    if problem is None and not entries:
        problem = "it is empty"
    if problem is None and torn:
        problem = "it ends in half a line: a write was interrupted, or the end was cut off"
    return LedgerRecord(path, tuple(entries), problem, hashlib.sha256(content).hexdigest())


def _wrong(entry: dict[str, Any], opening: dict[str, Any] | None) -> str | None:
    """Say what is wrong with a line whose hash is right; None if nothing is."""
    kind = entry.get("kind")
    if kind not in KINDS:
        return f"is of unknown kind {kind!r}"
    if (kind == "open") != (opening is None):
        return f"is of kind {kind!r}"
    if opening is None:
        if entry.get("version") != VERSION:
            return f"has version {entry.get('version')!r}, and {VERSION} is known here"
        whole = isinstance(entry.get("limit"), int) and isinstance(entry.get("deployment"), bool)
        return None if whole and isinstance(entry.get("digest"), str) else "lacks limit, deployment or digest"
    if entry.get("digest") != opening["digest"]:
        return "belongs to another plan"
    if kind != "torn" and not isinstance(entry.get("round"), int):
        return "names no round"
    return None


def check_ledger(ledger: LedgerRecord, findings: Findings) -> None:
    """Check what a ledger shows by itself: chain, limit, repeated rounds, and the head that a node keeps beside it."""
    name = str(ledger.path)
    if not findings.decide(
        f"{name}: chain of hashes",
        ledger.problem is None,
        f"{len(ledger.entries)} lines, the last with hash {ledger.head[:16]}",
        str(ledger.problem),
    ):
        return
    limit = int(ledger.opening["limit"])
    findings.decide(
        f"{name}: limit",
        ledger.spent <= limit,
        f"{ledger.spent} of {limit} charges",
        f"{ledger.spent} charges, and the plan allows {limit}",
    )
    if not ledger.opening["deployment"]:
        twice = sorted({round_ for round_ in ledger.charged if ledger.charged.count(round_) > 1})
        if twice:
            findings.false(f"{name}: rounds", f"round {twice[0]} of a simulation is charged twice")
    _check_head(ledger, findings)


def check_account(account: AccountRecord, findings: Findings) -> None:
    """Check what the account of a data set shows by itself: its chain, and the mark that counts its lines."""
    findings.decide(
        f"{account.path}: account",
        account.problem is None,
        f"{len(account.charges)} charges, as many lines as its mark counts",
        str(account.problem),
    )


def _check_head(ledger: LedgerRecord, findings: Findings) -> None:
    """Compare with the head that a node keeps beside its ledger: without one, a cut end does not show."""
    claim, path = f"{ledger.path}: whole", ledger.path.with_name("ledger.head")
    try:
        head = json.loads(path.read_bytes())
        lines, last = int(head["lines"]), str(head["hash"])
    except FileNotFoundError:
        if ledger.keeper != "server":
            findings.unchecked(claim, "no ledger.head lies beside it, so lines that were cut off the end do not show")
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        findings.false(claim, "ledger.head is damaged, which says how far the ledger had come")
        return
    there = 0 < lines <= len(ledger.entries) and ledger.entries[lines - 1]["hash"] == last
    findings.decide(
        claim,
        there,
        f"it holds the {lines} lines that ledger.head counts",
        f"ledger.head counts {lines} lines, the last with hash {last[:16]}; the ledger was cut or replaced",
    )
