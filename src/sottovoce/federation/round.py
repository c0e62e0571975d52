"""Play one round, as in the papers' algorithm boxes.

The server side is a generator: it yields a `Request` (a phase, and one payload a client), whoever drives it hands each
answer to the request's `take` as it comes, and sends a `Reply` (how much came, and why the rest did not). A simulation
and a network differ only in that.

    server                                           client k
    cohort = sampler.draw(round)
    down   = scheme.downlink(state)      --bytes-->  params  = scheme.receive(down)
                                                     update  = trainer.update(params, shard, scheme.trainable(round))
                                                     message = scheme.encode(update)
                                                     words   = coding.words(message)            clip, grid, noise share
    total  = aggregator.collect(cohort)  <--bytes--  sealed  = coding.payload / mask(words)
    account.charge(round), before the total is opened
    state  = scheme.decode(total / expected_cohort, state)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.sums import Fold, mean
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.base import Scheme, State

__all__ = [
    "Account",
    "Aggregator",
    "Conversation",
    "Direct",
    "Reply",
    "Request",
    "RoundResult",
    "Server",
    "Take",
    "Total",
    "draws_commitment",
    "server_round",
]

LEFT = "left before "  # how the reason of a client that dropped out begins


Take = Callable[[int, bytes], None]


class Request(NamedTuple):
    """Ask clients something.

    `take` is called with each answer, once and as it comes, so that no engine need hold a cohort's vectors; an error it
    raises is that client's failure. With a `fold`, an engine may return the answers' sum instead of calling `take`.
    `opening` requests are the same for all clients of the cohort, so that an engine may tell several at once. Nobody
    else hears them: who and how many are in a cohort is known to the server and to the cohort alone.
    """

    round: int
    phase: str
    payloads: dict[int, bytes]
    take: Take
    fold: Fold | None = None
    opening: bool = False


class Reply(NamedTuple):
    """Hold the size of each answer that was taken, why others were not, and the folded sum if the engine made one."""

    sizes: dict[int, int]
    failures: dict[int, str]
    folded: Any = None


@dataclass
class Total:
    """Hold the sum of a round's messages (None: nothing was released), and what the sum cost."""

    values: NDArray[Any] | None = None
    clip_norm: float = 0.0  # of the next round
    senders: int = 0
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


class Account(Protocol):
    """The account of a private run: what was drawn and what was spent, on disk before anything is opened."""

    def drawn(self, round_: int, commitment: str) -> None:
        """Record a commitment to how often each client has been drawn by now."""
        ...

    def charge(self, round_: int) -> None:
        """Charge a round; on return its sum may be opened."""
        ...


Conversation = Generator[Request, Reply, Total]
Spend = Callable[[], None]


class Aggregator(Protocol):
    """Turn a cohort and a downlink into a total."""

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to the cohort until the sum of its messages is known; call `spend` before it can be opened."""
        ...


@dataclass(frozen=True)
class Direct:
    """Sum what clients send, in one phase: in the clear, or as the exact integers that a secure sum would give."""

    coding: Coding
    fewest: Callable[[int], int]  # how many of a cohort must answer

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone to train, and add up what comes back."""
        fold = self.coding.fold
        folded = fold.empty()
        request = Request(
            round_,
            "train",
            dict.fromkeys(cohort, down),
            take=lambda _, payload: fold.add(folded, payload),
            fold=fold,
            opening=True,
        )
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
        needed = self.fewest(len(cohort))
        if total.senders < needed:
            total.reason = f"round {round_}: {total.senders} messages, but {needed} are needed; nothing was released"
            return total
        spend()
        if reply.folded is not None:
            folded = reply.folded
        total.values, total.clip_norm = self.coding.open(fold.total(folded), terms, total.senders, round_)
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
    streams: Streams  # the server's own
    step: ServerStep = field(default_factory=ServerStep)
    plan: PrivacyPlan | None = None
    account: Account | None = None  # a private round is refused without one

    def with_account(self, account: Account) -> Server:
        """Return a server that charges every round before it opens its sum."""
        return replace(self, account=account)

    def init(self, params: NDArray[np.float32]) -> State:
        """Return the state before round 1."""
        state = self.scheme.init(params)
        if self.plan is not None:
            state["draws"] = np.zeros(self.cohort.clients, np.int32)
            state["draws_salt"] = np.frombuffer(self.streams.key(Purpose.SETUP), np.uint8)
            state["clip_norm"] = np.array(self.plan.request.clip_norm, np.float32)
        return state

    def draw(self, state: State, round_: int) -> tuple[list[int], State]:
        """Return the clients of a round; a private run draws exactly as its plan is charged."""
        rng = self.streams.get(Purpose.COHORT, round_)
        if self.plan is None:
            return self.cohort.draw(rng).tolist(), {}
        drawn = self.plan.draw_cohort(state["draws"], rng)
        return drawn.clients.tolist(), {"draws": drawn.draws}

    def record_draws(self, round_: int, state: State) -> None:
        """Bind the draws to the account before anybody is asked, so that no later run can forget one."""
        if self.plan is None:
            return
        if self.account is None:
            raise PrivacyError(f"round {round_}: a private round needs a ledger, and this server has none")
        self.account.drawn(round_, draws_commitment(state))

    def spend(self, round_: int) -> None:
        """Charge a round of a private run."""
        if self.account is not None:
            self.account.charge(round_)


def draws_commitment(state: State) -> str:
    """Return a hash that binds how often each client was drawn and tells nobody; the salt stays in the checkpoint."""
    draws = state["draws"].astype("<i4").tobytes()
    return hashlib.sha256(b"sottovoce draws" + state["draws_salt"].tobytes() + draws).hexdigest()


def server_round(server: Server, state: State, round_: int) -> Generator[Request, Reply, RoundResult]:
    """Play the server's side of one round."""
    scheme = server.scheme
    cohort, drawn = server.draw(state, round_)
    server.record_draws(round_, {**state, **drawn})
    terms = Terms(len(cohort), float(state.get("clip_norm", 0.0)))
    seed = scheme.round_seed(round_)
    down = scheme.downlink(state, seed)
    if server.plan is not None:
        down += terms.pack()
    total = yield from server.aggregator.collect(round_, cohort, down, terms, lambda: server.spend(round_))
    _check_alive(round_, cohort, total)
    state = {**state, **drawn}
    if total.values is None or (not cohort and server.plan is None):
        return RoundResult(state, len(cohort), total)
    average, kept = server.step.step(mean(total.values, server.cohort.expected), state, round_)
    decoded = scheme.decode(average, state, seed, server.streams.get(Purpose.DECODE, round_))
    if not np.isfinite(np.sum(decoded["params"], dtype=np.float64)):
        raise RunError(f"round {round_}: the model is no longer finite; lower client_lr or server_lr")
    kept |= server.step.follow(decoded["params"], state, round_)
    if server.plan is not None:
        kept["clip_norm"] = np.array(total.clip_norm, np.float32)
    return RoundResult({**state, **kept, **decoded}, len(cohort), total)


def _check_alive(round_: int, cohort: list[int], total: Total) -> None:
    """Raise if every client failed by itself, as when training diverges; clients that left are not failures."""
    failed = {client: reason for client, reason in total.failures.items() if not reason.startswith(LEFT)}
    if cohort and len(failed) == len(cohort):
        client, reason = next(iter(failed.items()))
        raise RunError(
            f"round {round_}: none of {len(cohort)} clients sent an update; client {client}: {reason}. "
            "If training diverged, lower client_lr"
        )
