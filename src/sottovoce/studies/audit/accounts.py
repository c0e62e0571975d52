"""What must be true of every account of a private run: the server's ledger and, with ballots, the helper's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import Verdict
from sottovoce.threats.audit.finding import AuditFinding, checked


class Names(NamedTuple):
    """What the checks of one account are called, and how its sentences speak of it."""

    chain: str
    plan: str
    rounds: str
    budget: str
    account: str  # "the ledger"
    by: str = ""  # " by the helper"


def check_account(
    names: Names, chain: Verdict, opened: dict[str, Any], plan: PrivacyPlan, released: Iterable[int]
) -> list[AuditFinding]:
    """Return the checks of an account: whole, of the plan, and with a charge for every release, within the budget."""
    missing = sorted(set(released).difference(chain.charged))
    first = f"the first of them round {missing[0]}" if missing else ""
    return [
        checked(names.chain, chain.problem is None, f"{names.account} does not hold: {chain.problem}"),
        checked(
            names.plan,
            opened.get("digest") == plan.digest() and opened.get("limit") == plan.rounds,
            f"{names.account} is that of another plan than the one that config.toml solves to",
        ),
        checked(names.rounds, not missing, f"{len(missing)} rounds were released and never charged{names.by}, {first}"),
        checked(
            names.budget,
            len({round_ for round_ in chain.charged if round_ > 0}) <= plan.rounds,
            f"more than {plan.rounds} rounds were charged{names.by}, which is what the budget affords",
        ),
    ]
