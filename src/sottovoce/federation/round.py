"""Play one round, as in the papers' algorithm boxes.

The server side is a generator: it yields a `Request` (a phase, and one payload a client) and is sent a `Reply` (how
much came, and why the rest did not). A simulation and a network differ only in who drives it (`engine`).

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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.core.streams import NamedStreams, Purpose
from sottovoce.federation.aggregation.aggregator import Aggregator, Costs, Total
from sottovoce.federation.coding import Terms
from sottovoce.federation.cohort import Cohort, PlainSampler, PrivateSampler, Sampler
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.growth import CONVERGED, gone, with_gone
from sottovoce.federation.guard import EnergyGuard
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.sums import mean
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.base import Scheme, State


class Account(Protocol):
    """The account of a private run: what was drawn and what was spent, on disk before anything is opened."""

    def drawn(self, round_: int, commitment: str) -> None:
        """Record a commitment to how often each client has been drawn by now."""
        ...

    def charge(self, round_: int) -> None:
        """Charge a round; on return its sum may be opened."""
        ...


@dataclass(frozen=True)
class RoundResult:
    """What a round did."""

    state: State
    cohort: int
    total: Total


@dataclass(frozen=True)
class Server:
    """The server's side: what stays the same from round to round."""

    scheme: Scheme
    cohort: Cohort
    aggregator: Aggregator
    streams: NamedStreams  # the server's own
    step: ServerStep = field(default_factory=ServerStep)
    plan: PrivacyPlan | None = None
    account: Account | None = None  # a private round is refused without one
    guard: EnergyGuard | None = None  # what refuses a private sum that is too long
    goes_on: bool = False  # a round that breaks the model is thrown away, as under attack, and does not end the run
    invited: Cohort | None = None  # whom a run that is not private draws, if more than it needs
    begin: Callable[[int, State], None] | None = None  # told of a round and its draws before anybody is asked
    watch: Callable[[int, Total], None] | None = None  # an audit's: shown each total before anything is made of it

    @property
    def sampler(self) -> Sampler:
        """Return how cohorts are drawn."""
        return PlainSampler(self.invited or self.cohort) if self.plan is None else PrivateSampler(self.plan)

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
        """Return the clients of a round, and what must be kept of the draw."""
        cohort, kept = self.sampler.draw(state, self.streams.get(Purpose.COHORT, round_))
        if "gone" in state:
            absent = gone(state)
            cohort = [client for client in cohort if client not in absent]
        return cohort, kept

    def expected(self, state: State) -> float:
        """Return the public number that sums are divided by: the expected cohort without those who left for good.

        Where records or persons are protected it is the expected number of them.
        """
        if self.plan is not None and self.plan.request.of_sites:
            return self.plan.expected_cohort
        if "gone" not in state:
            return self.cohort.expected
        return self.cohort.expected * (1 - len(gone(state)) / self.cohort.clients)

    def record_draws(self, round_: int, state: State) -> None:
        """Bind the draws to the account before anybody is asked, so that no later run can forget one."""
        if self.begin is not None:
            self.begin(round_, state)
        if self.plan is None:
            return
        if self.account is None:
            raise PrivacyError(f"round {round_}: a private round needs a ledger, and this server has none")
        self.account.drawn(round_, draws_commitment(state))

    def rejects(self, total: Total, terms: Terms) -> bool:
        """Tell whether the guard refuses a released sum; it reads nothing else, so this costs no privacy."""
        if self.guard is None or self.plan is None or total.values is None:
            return False
        clip_norm = self.plan.request.clip_norm if self.plan.adaptive is None else terms.clip_norm
        stddev = self.plan.stddev(None if self.plan.adaptive is None else clip_norm)
        return self.guard.excess(total.values, stddev, clip_norm) > 0

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
    # Who votes hears nothing about the others; where clients share the noise they must know among how many.
    told = 0 if server.plan is not None and server.plan.shares.by_aggregators else len(cohort)
    terms = Terms(told, float(state.get("clip_norm", 0.0)))
    seed = scheme.round_seed(round_)
    down = scheme.downlink(state, seed)
    if server.plan is not None:
        down += terms.pack()
    total = yield from server.aggregator.collect(round_, cohort, down, terms, lambda: server.spend(round_))
    if server.watch is not None:
        server.watch(round_, total)
    if not server.goes_on and total.values is None:
        _check_alive(round_, cohort, total, named=server.plan is None)
    state = {**state, **drawn}
    expected = server.expected(state)
    if total.failures:
        state = {**state, **with_gone(state, server.cohort.clients, total.failures)}
    total.rejected = server.rejects(total, terms)
    if total.values is None or total.rejected or (not cohort and server.plan is None):
        return RoundResult(state, len(cohort), total)
    try:
        state = _moved(server, state, round_, seed, total.values, total.clip_norm, expected)
    except RunError:
        if not server.goes_on:
            raise
    return RoundResult(state, len(cohort), total)


def _moved(
    server: Server,
    state: State,
    round_: int,
    seed: int,
    values: NDArray[Any],
    clip_norm: float,
    expected: float,
) -> State:
    """Return the state after the step that a released sum asks for."""
    scheme = server.scheme
    average, kept = server.step.step(mean(values, expected), state, round_)
    decoded = scheme.decode(average, state, seed, server.streams.get(Purpose.DECODE, round_))
    params, moments = server.step.adapt(state["params"], decoded["params"], state, round_)
    decoded, kept = {**decoded, "params": params}, kept | moments
    if not np.isfinite(np.sum(decoded["params"], dtype=np.float64)):
        raise RunError(f"round {round_}: the model is no longer finite; lower client_lr or server_lr")
    kept |= server.step.follow(decoded["params"], state, round_)
    if server.plan is not None:
        kept["clip_norm"] = np.array(clip_norm, np.float32)
    return {**state, **kept, **decoded}


def _check_alive(round_: int, cohort: list[int], total: Total, *, named: bool) -> None:
    """Raise if every client failed by itself, as when training diverges; clients that left are not failures."""
    failed = {c: reason for c, reason in total.failures.items() if c not in total.left and reason != CONVERGED}
    if cohort and len(failed) == len(cohort):
        client, reason = next(iter(failed.items()))
        who = f"client {client}" if named else "one of them"
        raise RunError(
            f"round {round_}: no client sent an update; {who}: {reason}. If training diverged, lower client_lr"
        )


def costs_of(server: Server, state: State) -> Costs:
    """Return the costs of a server's rounds from this state on; sizes that depend on the cohort take the expected one.

    Guarantee: the result depends on the configuration alone, not on a draw or on anybody's data.
    """
    down = downlink_size(server.scheme, state, private=server.plan is not None)
    expected = server.cohort.expected
    return replace(server.aggregator.costs(max(1, round(expected)), down), cohort=expected)


def downlink_size(scheme: Scheme, state: State, *, private: bool) -> int:
    """Return the bytes of one downlink: the model or what stands for it, and in a private run the round's terms."""
    if scheme.replica(state):  # its clients are sent what the last round decided: take a round after the first
        rng = np.random.default_rng(0)
        state = scheme.decode(np.zeros(scheme.length, np.float32), state, scheme.round_seed(1), rng)
    down = len(scheme.downlink(state, scheme.round_seed(1)))
    return down + len(Terms(0, 0.0).pack()) if private else down
