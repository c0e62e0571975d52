"""Say whether the amplified epsilon of a run holds: the plan decides, and what outsiders saw.

The amplified epsilon counts on a secret: who was drawn. A round whose failure shows tells something about its cohort.
The plan charges for rounds with too few answers by an answer rate; without a rate that it can charge there is no
epsilon. With one such a round has a probability of about delta, so if it happens all the same the rate is not true,
and epsilon is null. Between machines the sum of such a round is covered (`Secure.covers`); the pause after nobody
answered, and the end after too many such rounds, are not. A round that was open when the server stopped is seen too.
After any of them `epsilon_server`, which counts on no secret but the noise, is what holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sottovoce.assembly.parties import BackOff
from sottovoce.core.errors import RunError
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.privacy.budget import cost_of
from sottovoce.runs.records import Record, RoundEntry
from sottovoce.schemes import State

VOID: Final = 1
UNMEASURED: Final = 4
UNANSWERED: Final = 5  # 2 and 3 of older checkpoints are kinds of it
_REASONS: Final = {
    VOID: "a round was open when the server stopped, and everybody sees that it is void",
    UNMEASURED: "a measurement by clients had too few answers, and everybody sees that it is missing",
    UNANSWERED: "a round had too few answers, which is next to impossible at the answer rate that is charged",
}
NOT_AGAINST: Final = "the broker and whoever watches the traffic: they see who was sampled; epsilon_server holds there"


def seen(state: State) -> bool:
    """Tell whether anything happened by which outsiders learnt of a cohort."""
    return "seen" in state


def with_seen(state: State, event: int) -> State:
    """Return the state with the first event that outsiders saw; it stays for the rest of the run."""
    return state if seen(state) else {**state, "seen": np.array(event, np.int8)}


def why_no_epsilon(plan: PrivacyPlan, state: State) -> str | None:
    """Say why a run has no amplified epsilon; None if it has one.

    Where records or persons are protected, which sites took part is public and no secret of the plan.
    """
    if plan.epsilon_reason is not None or not seen(state) or plan.request.of_sites:
        return plan.epsilon_reason
    return _REASONS.get(int(state["seen"]), _REASONS[UNANSWERED])


def visible_epsilon(summary: Record, state: State, plan: PrivacyPlan | None) -> Record:
    """Return what the summary of a private run says beside, or in place of, the amplified epsilon."""
    if plan is None:
        return {}
    reason = why_no_epsilon(plan, state)
    told: Record = {"epsilon_reason": reason}
    if reason is not None:
        told |= dict.fromkeys(("epsilon", "epsilon_spent", "epsilon_best_round"))
        cost = cost_of(plan).exposed().told()
        told["privacy"] = {**summary["privacy"], "epsilon": None, "epsilon_reason": reason, "cost": cost}
    return told


def deployed_facts(plan: PrivacyPlan | None, *, void: int, seeded: bool, lasting: bool) -> Record:
    """Return what only the summary of a run between machines says; `lasting` keys are not those of a trial."""
    told: Record = {"deployed": not seeded, "trial": not lasting, "void_rounds": void}
    return told if plan is None else told | {"epsilon_not_against": NOT_AGAINST}


@dataclass(frozen=True)
class EpsilonReading:
    """Instrument that tells the plan's epsilon, what is spent of it and, under adaptive clipping, the next clip norm.

    The first two are null where no epsilon can be promised, and after outsiders saw a failure.
    """

    plan: PrivacyPlan | None
    ledger: Ledger | None

    def after(self, entry: RoundEntry) -> None:
        """Tell what is promised and spent."""
        plan, ledger = self.plan, self.ledger
        if plan is not None and entry.total.reason is not None:
            entry.state = with_seen(entry.state, UNANSWERED)
        if plan is None or ledger is None or why_no_epsilon(plan, entry.state) is not None:
            entry.public |= {"epsilon": None, "epsilon_spent": None}
        else:
            spent = plan.epsilon_after(ledger.spent_after(entry.round))
            entry.public |= {"epsilon": plan.epsilon, "epsilon_spent": spent}
        if plan is not None and plan.adaptive is not None:
            entry.public["clip_norm"] = float(entry.state["clip_norm"])


@dataclass
class Aborts:
    """The count of rounds without quorum since the server was started, and the pauses after those nobody answered."""

    back_off: BackOff
    count: int = 0
    pause: float = 0.0

    def after(self, entry: RoundEntry) -> None:
        """Count a round, and tell the operator."""
        total = entry.total
        self.count += total.reason is not None
        if total.reason is None or total.bytes_up or not entry.cohort:
            self.pause = 0.0
        else:
            self.pause = min(self.back_off.longest, 2 * self.pause if self.pause else self.back_off.first)
        entry.secret["rounds_without_quorum"] = self.count

    def wait(self, round_: int) -> None:
        """End the run after a round if too many had no quorum, or pause before the next one if nobody answered."""
        if self._over:
            raise RunError(
                f"round {round_}: {self.count} rounds had too few answers since the server was started; see that the "
                "nodes are there, and the helper of ballots if there is one, and go on with --resume"
            )
        if self.pause:
            self.back_off.sleep(self.pause)

    @property
    def _over(self) -> bool:
        return self.count >= self.back_off.max_aborts
