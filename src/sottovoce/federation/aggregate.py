"""What a round's sum is made of: what clients send as it is (`Direct`), or by secure aggregation (`secure`)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Reply, Request, Sum
from sottovoce.secagg.sizes import Sizes

__all__ = ["Aggregator", "Conversation", "Direct", "Spend", "Total"]


@dataclass
class Total:
    """The sum of a round's messages (None: nothing was released), and what it cost; for the operator alone."""

    values: NDArray[Any] | None = None
    clip_norm: float = 0.0  # of the next round
    senders: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # of the failures: clients that went away, for no fault of their own
    reason: str | None = None  # why nothing was released
    rejected: bool = False  # by the guard: the sum was released, and is not used
    phases: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes up and down of each phase
    clients: dict[int, Sizes] = field(default_factory=dict)  # bytes of each client, over all phases
    between_servers: int = 0  # bytes that several servers send each other
    wire_up: int = 0  # bytes on the server's own connection, with all that carries the messages; 0: there is none
    wire_down: int = 0

    def count(self, request: Request, reply: Reply) -> None:
        """Add what a phase sent and received."""
        up = sum(reply.sizes.values())
        down = sum(len(payload) for payload in request.payloads.values())
        self.phases[request.phase] = (up, down)
        self.bytes_up += up
        self.bytes_down += down
        for client, payload in request.payloads.items():
            before = self.clients.get(client, Sizes(0, 0))
            self.clients[client] = Sizes(before.up + reply.sizes.get(client, 0), before.down + len(payload))
        self.wire_up += reply.wire[0]
        self.wire_down += reply.wire[1]
        self.failures.update(reply.failures)
        self.failures.update(reply.left)
        self.left.update(reply.left)


Conversation = Generator[Request, Reply, Total]
Spend = Callable[[], None]


class Aggregator(Protocol):
    """A way to learn the sum of a cohort's messages."""

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to the cohort until the sum of its messages is known; call `spend` before it can be opened."""
        ...


@dataclass(frozen=True)
class Direct:
    """The sum of what clients send, in one phase: in the clear, or as the exact integers of an ideal secure sum."""

    coding: Coding
    fewest: Callable[[int], int]  # how many of a cohort must answer

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone to train, and add up what comes back."""
        summed = Sum(self.coding.fold)
        request = Request(round_, "train", dict.fromkeys(cohort, down), take=summed.take, sum=summed, opening=True)
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
        needed = self.fewest(len(cohort))
        if total.senders < needed:
            total.reason = f"round {round_}: {total.senders} messages, but {needed} are needed; nothing was released"
            return total
        spend()
        total.values, total.clip_norm = self.coding.open(summed.total(), terms, total.senders, round_)
        return total
