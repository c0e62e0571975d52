"""Records that come to a client round by round, and clients that leave when they have learnt enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import State

CONVERGED: Final = "has converged and leaves for good"


@dataclass(frozen=True)
class Growth:
    """How many records come to a client in each round, and whether it keeps those of earlier rounds."""

    records: int
    cumulative: bool

    def of(self, records: NDArray[Any], round_: int) -> NDArray[Any]:
        """Return those of a client's records that it trains with in a round; before round 1, those of round 1."""
        last = max(1, round_) * self.records
        return records[:last] if self.cumulative else records[last - self.records : last]


def converged(update: Vector, tolerance: float) -> bool:
    """Tell whether every weight that was trained is within the tolerance of the model that it was trained from."""
    return tolerance > 0 and float(np.max(np.abs(update), initial=0.0)) < tolerance


def gone(state: State) -> frozenset[int]:
    """Return the clients that have left for good."""
    return frozenset(np.flatnonzero(state["gone"]).tolist()) if "gone" in state else frozenset()


def too_few_left(state: State) -> bool:
    """Tell whether so many have left for good that there is nobody to federate with."""
    return "gone" in state and int(np.sum(~state["gone"])) < 2


def with_gone(state: State, clients: int, failures: dict[int, str]) -> State:
    """Return what must be kept of who has left for good, after a round; nothing if nobody has."""
    leaving = [client for client, reason in failures.items() if reason == CONVERGED]
    if not leaving and "gone" not in state:
        return {}
    marks = np.array(state["gone"]) if "gone" in state else np.zeros(clients, np.bool_)
    marks[leaving] = True
    return {"gone": marks}
