"""Play one round, as in the papers' algorithm boxes.

The server side is a generator: it yields a `Request` (a phase, and one payload a client) and is sent a `Reply`
(payloads back, or reasons why not). Whoever drives it, a simulation or a network, only supplies *send*.

    server                                           client k
    cohort = sampler.draw(round)
    down   = scheme.downlink(state)      --bytes-->  params  = scheme.receive(down)
                                                     update  = trainer.update(params, shard, scheme.trainable(round))
                                                     message = scheme.encode(update)
    total  = aggregator.sum(sealed)      <--bytes--  sealed  = aggregator.seal(message)
    state  = scheme.decode(total / expected_cohort, state)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.sums import Fold, mean
from sottovoce.schemes.base import Scheme, State

__all__ = ["Aggregator", "Conversation", "Plain", "Reply", "Request", "RoundResult", "Server", "Total", "server_round"]


class Request(NamedTuple):
    """Ask clients something; payloads that are one object are broadcasts. `fold` allows the engine to return a sum."""

    round: int
    phase: str
    payloads: dict[int, bytes]
    fold: Fold | None = None


class Reply(NamedTuple):
    """Hold what came back: payloads, or their folded sum; the size of each; and why others did not answer."""

    payloads: dict[int, bytes]
    failures: dict[int, str]
    sizes: dict[int, int]
    folded: Any = None


Conversation = Generator[Request, Reply, "Total"]


@dataclass
class Total:
    """Hold the sum of a round's messages (None: nothing was released), and what the sum cost."""

    values: NDArray[Any] | None
    senders: int
    bytes_up: int = 0
    bytes_down: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    reason: str | None = None  # why nothing was released
    phases: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes up and down of each phase

    def count(self, request: Request, reply: Reply) -> None:
        """Add what a phase sent and received."""
        up = sum(reply.sizes.values())
        down = sum(len(payload) for payload in request.payloads.values())
        self.phases[request.phase] = (up, down)
        self.bytes_up += up
        self.bytes_down += down
        self.failures.update(reply.failures)


class Aggregator(Protocol):
    """Turn a cohort and a downlink into a total."""

    def collect(self, round_: int, cohort: list[int], down: bytes) -> Conversation:
        """Talk to the cohort until the sum of its messages is known."""
        ...


@dataclass(frozen=True)
class Plain:
    """Sum messages in the clear: one phase."""

    fold: Fold

    def collect(self, round_: int, cohort: list[int], down: bytes) -> Conversation:
        """Ask everyone to train, and add up what comes back."""
        request = Request(round_, "train", dict.fromkeys(cohort, down), self.fold)
        reply = yield request
        total = Total(None, senders=len(reply.sizes))
        total.count(request, reply)
        if total.senders:
            total.values = self.fold.total(reply.folded)
        return total


@dataclass(frozen=True)
class RoundResult:
    """Hold what a round did."""

    state: State
    cohort: int
    total: Total


@dataclass(frozen=True)
class Server:
    """Hold what stays the same from round to round."""

    scheme: Scheme
    cohort: Cohort
    aggregator: Aggregator
    streams: Streams

    def draw(self, round_: int) -> list[int]:
        """Return the clients of a round."""
        drawn: list[int] = self.cohort.draw(self.streams.get(Purpose.COHORT, round_)).tolist()
        return drawn


def server_round(server: Server, state: State, round_: int) -> Generator[Request, Reply, RoundResult]:
    """Play the server's side of one round."""
    scheme = server.scheme
    cohort = server.draw(round_)
    seed = scheme.round_seed(round_)
    down = scheme.downlink(state, seed)
    total = yield from server.aggregator.collect(round_, cohort, down)
    if cohort and not total.senders:
        client, reason = next(iter(total.failures.items()), (cohort[0], "no answer"))
        raise RunError(
            f"round {round_}: none of {len(cohort)} clients sent an update; client {client}: {reason}. "
            "If training diverged, lower client_lr"
        )
    if total.values is not None:
        average = mean(total.values, server.cohort.expected)
        state = scheme.decode(average, state, seed, server.streams.get(Purpose.DECODE, round_))
    if not np.isfinite(np.sum(state["params"], dtype=np.float64)):
        raise RunError(f"round {round_}: the model is no longer finite; lower client_lr or server_lr")
    return RoundResult(state, len(cohort), total)
