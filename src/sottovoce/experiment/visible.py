"""Say which epsilon of a run between machines holds: what outsiders saw decides about the amplified one.

The amplified epsilon counts on a secret: who was drawn. A round whose failure shows tells something about its cohort,
which no accountant here charges for. A round without quorum is therefore covered (`Secure.covers`). What cannot be
covered is a round that was open when the server stopped, a pause after nobody answered, and an end because too many
rounds had no quorum. After any of them the amplified epsilon is null, and `epsilon_server`, which counts on no secret
but the noise, is what holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sottovoce.core.errors import RunError
from sottovoce.experiment.deployed import Deployed
from sottovoce.experiment.records import Record
from sottovoce.federation.aggregate import Total
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.budget import cost_of
from sottovoce.schemes import State

__all__ = ["PAUSED", "STOPPED", "UNMEASURED", "VOID", "Aborts", "deployed_epsilon", "seen", "with_seen"]

VOID: Final = 1
PAUSED: Final = 2
STOPPED: Final = 3
UNMEASURED: Final = 4
_REASONS: Final = {
    VOID: "a round was open when the server stopped, and everybody sees that it is void",
    PAUSED: "the server paused after a round that nobody answered, which shows that it failed",
    STOPPED: "the run ended and was resumed because too many rounds had no quorum, which shows that they failed",
    UNMEASURED: "a measurement by clients had too few answers, and everybody sees that it is missing",
}
NOT_AGAINST: Final = "the broker and whoever watches the traffic: they see who was sampled; epsilon_server holds there"


def seen(state: State) -> bool:
    """Tell whether anything happened by which outsiders learnt of a cohort."""
    return "seen" in state


def with_seen(state: State, event: int) -> State:
    """Return the state with the first event that outsiders saw; it stays for the rest of the run."""
    return state if seen(state) else {**state, "seen": np.array(event, np.int8)}


def deployed_epsilon(summary: Record, state: State, plan: PrivacyPlan | None, *, void: int) -> Record:
    """Return what the summary of a run between machines says beside, or in place of, the amplified epsilon."""
    told: Record = {"deployed": True, "void_rounds": void}
    if plan is None:
        return told
    reason = _REASONS[int(state["seen"])] if seen(state) else None
    told |= {"epsilon_reason": reason, "epsilon_not_against": NOT_AGAINST}
    if reason is not None:
        told |= dict.fromkeys(("epsilon", "epsilon_spent", "epsilon_best_round"))
        told["privacy"] = {**summary["privacy"], "epsilon": None, "cost": cost_of(plan).exposed().told()}
    return told


@dataclass
class Aborts:
    """The count of rounds without quorum since the server was started, and the pauses after those nobody answered."""

    deployed: Deployed
    count: int = 0
    pause: float = 0.0

    def after(self, state: State, cohort: int, total: Total, *, last: bool) -> State:
        """Count a round; return the state with what outsiders will see of it: nothing if it is the last one."""
        self.count += total.reason is not None
        if total.reason is None or total.bytes_up or not cohort:
            self.pause = 0.0
        else:
            longest = self.deployed.longest_back_off
            self.pause = min(longest, 2 * self.pause if self.pause else self.deployed.back_off)
        if last:
            return state
        if self._over:
            return with_seen(state, STOPPED)
        return with_seen(state, PAUSED) if self.pause else state

    def wait(self, round_: int) -> None:
        """End the run if too many rounds had no quorum, or pause before the next one if nobody answered."""
        if self._over:
            raise RunError(
                f"round {round_}: {self.count} rounds had too few answers since the server was started; see that the "
                "nodes are there, and the helper of ballots if there is one, and go on with --resume"
            )
        if self.pause:
            self.deployed.sleep(self.pause)

    @property
    def _over(self) -> bool:
        return self.count >= self.deployed.max_aborts
