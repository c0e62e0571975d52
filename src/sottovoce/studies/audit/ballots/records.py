"""Check the account that the helper of a run kept: `helper-ledger.jsonl`, beside the leader's.

Like all checks of records these have no chance in them, and tell nothing about who was counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from sottovoce.studies.audit.accounts import Names, check_account
from sottovoce.threats.audit.finding import AuditFinding, checked

_HELPER = Names(
    "helper's chain",
    "helper's plan",
    "rounds charged by the helper",
    "helper's charges within the budget",
    "the helper's account",
    " by the helper",
)


def check_helper(
    run: Path, plan: PrivacyPlan, released: Iterable[int], entries: list[dict[str, Any]]
) -> list[AuditFinding]:
    """Return the checks of the helper's account: `entries` are its lines, `released` the rounds of the run's records.

    A helper at another institution keeps its account there; this is for runs that started their own.
    """
    chain = verify(run / HELPER_LEDGER)
    opened = entries[0] if entries else {}
    if chain.problem is not None:
        entries = []  # nothing that stands in it can be relied on
    notes = [entry for entry in entries if entry.get("kind") == "ballots"]
    return [
        *check_account(_HELPER, chain, opened, plan, released),
        checked(
            "helper reserved before it charged",
            _in_order(entries),
            "the helper charged a round before it wrote down whom it counts",
        ),
        checked(
            "participations by the helper",
            _most_counted(notes) <= plan.max_participations,
            f"the helper counted a client in more than {plan.max_participations} rounds, which is the cap",
        ),
        checked("helper's transfers", _forward(notes), "transfers of one session went back, and rows were used twice"),
    ]


def _in_order(entries: list[dict[str, Any]]) -> bool:
    """Tell whether every charge comes after a line that says whom its round counts."""
    reserved: set[Any] = set()
    for entry in entries:
        if entry.get("kind") == "ballots":
            reserved.add(entry.get("round"))
        if entry.get("kind") == "charge" and entry.get("round") not in reserved:
            return False
    return True


def _most_counted(notes: list[dict[str, Any]]) -> int:
    """Return the most rounds in which one client was counted; a simulation that repeats a round counts the same."""
    rounds: dict[Any, set[int]] = defaultdict(set)
    for note in notes:
        rounds[note.get("round")].update(note.get("clients", ()))
    counted = Counter(client for clients in rounds.values() for client in clients)
    return max(counted.values(), default=0)


def _forward(notes: list[dict[str, Any]]) -> bool:
    """Tell whether the transfers of each session only went forward."""
    reached: dict[Any, int] = {}
    for note in notes:
        session, counter = note.get("session"), int(note.get("counter", 0))
        if counter < reached.get(session, 0):
            return False
        reached[session] = counter
    return True
