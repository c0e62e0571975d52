"""A federation that can play: the scheme bound, the plans solved, the server's side put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import Seeds
from sottovoce.core.vectors import Vector
from sottovoce.experiment.defence import make_defence
from sottovoce.experiment.engines import start_workers
from sottovoce.experiment.helped import remote_count
from sottovoce.experiment.measure import MEASURED, coordinate_importance, measured_clip_norm, public_records
from sottovoce.experiment.opening import Opening, vote_of, warm_of
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection
from sottovoce.federation.aggregate import Aggregator, Direct, Total
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.ballots.ideal import IdealCount
from sottovoce.federation.ballots.real import RealCount
from sottovoce.federation.client import setup_message
from sottovoce.federation.coding import Clear, Coding
from sottovoce.federation.costs import costs_of
from sottovoce.federation.engine import Engine, Enrolment, Evaluator, drive
from sottovoce.federation.evaluation import EVALUATION, Measure
from sottovoce.federation.guard import EnergyGuard
from sottovoce.federation.leaving import Leaving
from sottovoce.federation.malicious import Malicious
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.own_records import OwnRecords
from sottovoce.federation.robust import Reference, Robust
from sottovoce.federation.round import Account, Server
from sottovoce.federation.secure import Registry, Secure, Standing
from sottovoce.federation.topology import Serverless, Servers
from sottovoce.federation.vote import Election, Vote, hold_vote
from sottovoce.models import training_seconds
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import Scheme, State
from sottovoce.secagg import Policy

__all__ = [
    "Ready",
    "elect",
    "evaluation_policy",
    "make_ready",
    "make_unmeasured",
    "measure_scheme",
    "measuring",
    "own_records",
    "start_engine",
    "voting",
    "warming",
    "with_importance",
]


Opened = Callable[[int, State], None]

_SECONDS_A_PEER: Final = 3e-4  # of a client's keys, shares and masks for each other client of a secure sum


@dataclass(frozen=True)
class Ready:
    """A federation that can play: everything that had to be computed beforehand is known."""

    protection: Protection
    scheme: Scheme  # bound, as the server holds it
    enrolment: Enrolment
    server: Server
    election: Election | None = None  # if the clients voted for the coordinates

    @property
    def plan(self) -> PrivacyPlan | None:
        """Return the privacy plan; None if the run is not private."""
        return self.server.plan

    @property
    def coding(self) -> Coding:
        """Return how messages travel."""
        return self.enrolment.coding

    @property
    def setup(self) -> bytes:
        """Return what every client is told once."""
        return self.enrolment.setup

    @property
    def policy(self) -> Policy | None:
        """Return what the clients of a secure run insist on."""
        return self.enrolment.policy

    def enrol(self, engine: Engine, state: State | None = None) -> None:
        """Send the set-up to all clients; a resumed run hands them what they had kept."""
        engine.enrol(self.enrolment if state is None else replace(self.enrolment, memory=self.scheme.replica(state)))


@contextmanager
def start_engine(parts: Parts, only: Collection[str] | None = None) -> Iterator[tuple[Engine, Evaluator]]:
    """Start the engine that the experiment names, and give with it what computes on the data, or on some splits."""
    experiment = parts.experiment
    with start_workers(experiment.engine, parts.blueprint(), parts.arrays(only), _seconds(parts)) as workers:
        engine: Engine = Leaving(workers, experiment.make_dropout(), parts.seeds.world)
        if parts.threat is not None:
            engine = Malicious(engine, parts.threat.choice, parts.seeds.world)
        yield engine, workers


def _seconds(parts: Parts) -> float:
    """Return about how long one core computes for a run; it decides about processes and about nothing else."""
    each = training_seconds(parts.network, parts.training(), parts.mean_size)
    if parts.experiment.secure == "real":
        each += parts.cohort.expected * _SECONDS_A_PEER
    return parts.experiment.experiment.rounds * parts.cohort.expected * each


def own_records(parts: Parts) -> OwnRecords:
    """Return what computes on the server's own records: those that it tests with, and public ones."""
    tested = ["test"] if parts.experiment.evaluation == "server" else []
    return OwnRecords(parts.blueprint(), parts.arrays([*tested, *parts.splits]))


def make_ready(protection: Protection, evaluator: Evaluator) -> Ready:
    """Bind the scheme and put the server together; some schemes and clippings need the public data for it.

    Coordinates that the clients vote for are not known yet: the vote spends budget, so `elect` waits for a ledger.
    """
    parts = protection.parts
    chosen = parts.scheme.needs_importance and protection.vote_plan is None
    bound = _bind(parts, coordinate_importance(parts, evaluator) if chosen else None)
    protection = protection.measured(measured_clip_norm(parts, evaluator, bound))
    policy = protection.policy(bound, protection.plan)
    step = ServerStep(**parts.experiment.server.step_keys, rounds=parts.experiment.experiment.rounds)
    reference = _reference(parts, bound, evaluator)
    return _put_together(protection, parts.scheme, bound, protection.plan, policy, step, reference)


def make_unmeasured(protection: Protection) -> Ready:
    """Put the server together with nothing computed, for a plan: coordinates are made up, a measured clip norm is 1.

    No size, noise multiplier or epsilon depends on either.
    """
    parts, table = protection.parts, protection.parts.experiment.privacy
    made_up = np.arange(parts.network.dim, 0, -1, dtype=np.float32) if parts.scheme.needs_importance else None
    bound = _bind(parts, made_up)
    protection = protection.measured(1.0 if table is not None and table.clipping in MEASURED else None)
    policy = protection.policy(bound, protection.plan)
    return _put_together(protection, parts.scheme, bound, protection.plan, policy, ServerStep(), _nothing_to_compare)


def _nothing_to_compare(round_: int, down: bytes) -> Vector:
    raise InputError(f"round {round_} of a plan is not played")


def elect(
    ready: Ready, engine: Engine, account: Account, opened: Opened | None = None, known: Vector | None = None
) -> Ready:
    """Let the clients vote for the coordinates, if these are theirs to choose; `known` is what they voted before.

    Guarantee: the account is charged before the sum of the votes is opened.
    """
    plan = ready.protection.vote_plan
    if plan is None:
        return ready
    vote, start = voting(ready, plan), ready.protection.parts.start
    if known is not None:
        costs = costs_of(vote.server, vote.server.init(start))
        return replace(with_importance(ready, known), election=Election(known, 0, Total(), costs))
    vote.enrol(engine)
    server = replace(vote.server.with_account(account), opened=opened)
    election = drive(engine, hold_vote(server, start))
    return replace(with_importance(ready, election.importance), election=election)


def voting(ready: Ready, plan: PrivacyPlan) -> Ready:
    """Return the federation as it votes, charged for `plan`; nobody is asked yet."""
    return _opened(vote_of(ready.protection, plan))


def warming(ready: Ready) -> Ready | None:
    """Return the federation as it finds a warm start, with every client; None if training begins at w_0."""
    warm = warm_of(ready.protection)
    return None if warm is None else _opened(warm)


def _opened(opening: Opening) -> Ready:
    parts = opening.protection.parts
    bound = opening.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    policy = opening.policy(bound)
    return _put_together(opening.protection, opening.scheme, bound, opening.plan, policy, ServerStep())


def measuring(ready: Ready) -> Ready | None:
    """Return the federation as it measures its model; None if the clients do not.

    A measurement without quorum shows, as it has no mean; so it is not covered by noise.
    """
    parts = ready.protection.parts
    if parts.experiment.evaluation != "federated":
        return None
    protection = replace(ready.protection, plan=ready.protection.evaluation_plan)
    scheme = measure_scheme(parts)
    bound = scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    policy = evaluation_policy(protection, bound)
    told = _put_together(protection, scheme, bound, protection.plan, policy, ServerStep())
    server, aggregator = told.server, told.server.aggregator
    if isinstance(aggregator, Secure):
        server = replace(server, aggregator=replace(aggregator, covers=False))
    return replace(
        told, enrolment=replace(told.enrolment, measures=True), server=replace(server, guard=None, goes_on=True)
    )


def measure_scheme(parts: Parts) -> Measure:
    """Return the scheme of measurements; a loss is cut off at twice that of guessing."""
    return Measure(binary=parts.network.binary, loss_bound=2 * math.log(parts.network.classes))


def evaluation_policy(protection: Protection, bound: Scheme) -> Policy | None:
    """Return what clients insist on when they measure: keys of a round, and as many rounds as are paid for."""
    policy = protection.policy(bound, protection.plan)
    rounds = protection.parts.experiment.experiment.rounds
    return None if policy is None else replace(policy, key_life="round", last_round=EVALUATION + rounds)


def with_importance(ready: Ready, importance: Vector) -> Ready:
    """Return the federation with coordinates chosen by their importance."""
    protection = ready.protection
    scheme = _bind(protection.parts, importance)
    return _put_together(protection, protection.parts.scheme, scheme, ready.plan, ready.policy, ready.server.step)


def _bind(parts: Parts, scores: Vector | None) -> Scheme:
    return parts.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start, importance=scores)


def _put_together(
    protection: Protection,
    told: Scheme,
    bound: Scheme,
    plan: PrivacyPlan | None,
    policy: Policy | None,
    step: ServerStep,
    reference: Reference | None = None,
) -> Ready:
    """Return a federation for a bound scheme; `told` is the same before its binding, as clients have it."""
    parts = protection.parts
    if plan is not None:
        bound = bound.with_noise(plan.stddev() / parts.cohort.expected)
    coding = protection.coding(bound, plan)
    setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
    server = Server(
        bound,
        parts.cohort,
        _spread(parts, _aggregator(protection, coding, policy, plan, setup, reference)),
        parts.seeds.server,
        step,
        plan,
        guard=None if isinstance(bound, Vote) or bound.once else _guard(parts),
        goes_on=parts.threat is not None,
        watch=parts.watch,
    )
    ballot = protection.ballot_terms(plan, setup)
    return Ready(protection, bound, Enrolment(told, setup, coding, plan is not None, policy, ballot), server)


def _guard(parts: Parts) -> EnergyGuard | None:
    """Return what refuses sums that are too long; without a bound of the user's, 0.6 clip norms for each client."""
    table = parts.experiment.server
    if table.guard == "none":
        return None
    bound = 0.6 * parts.cohort.expected if table.guard_bound is None else table.guard_bound
    return EnergyGuard(bound, table.guard_width)


def _reference(parts: Parts, bound: Scheme, evaluator: Evaluator) -> Reference | None:
    """Return what makes the server's own message in a round, from all public records; None if no defence asks."""
    defence = make_defence(parts.experiment.aggregation)
    if defence is None or not defence.needs_reference:
        return None
    records = public_records(parts)

    def message(round_: int, down: bytes) -> Vector:
        task = bound.receive(down, {})
        return evaluator.public_message(bound, task.params, task.seed, records, round_)

    return message


def _spread(parts: Parts, aggregator: Aggregator) -> Aggregator:
    """Return an aggregator with as many servers as asked for: one, several or none."""
    servers = 1 if parts.experiment.switches is None else parts.experiment.switches.servers
    if servers == 1:
        return aggregator
    return Serverless(aggregator) if servers == 0 else Servers(aggregator, servers)


def _aggregator(
    protection: Protection,
    coding: Coding,
    policy: Policy | None,
    plan: PrivacyPlan | None,
    setup: bytes,
    reference: Reference | None,
) -> Aggregator:
    table, cohort = protection.parts.experiment.aggregation, protection.parts.cohort
    defence = make_defence(table)
    if defence is not None:
        if not isinstance(coding, Clear):  # the tables refuse it before; without a word it would be no defence
            raise InputError(f"{defence.name} cannot judge updates that the server does not see")
        return Robust(coding, protection.fewest(plan), defence, table.defence_attackers, cohort.expected, reference)
    if isinstance(coding, Ballots):
        count = protection.ballot_terms(plan, setup)
        simulated, link = Seeds(protection.parts.seeds.seed), protection.parts.link
        registry = protection.parts.keys or Registry(simulated, cohort.clients)
        if count is not None and link is not None:
            return remote_count(protection.parts, coding, count, registry, setup, link)
        if protection.parts.deployment:
            raise PrivacyError("a deployed count of ballots needs a helper elsewhere; name it in [aggregation] helper")
        return IdealCount(coding) if count is None else RealCount(coding, count, registry, simulated)
    if policy is None:
        return Direct(coding, protection.fewest(plan))
    seeds = protection.parts.seeds
    keys = protection.parts.keys
    if keys is None:
        if protection.parts.deployment:
            raise PrivacyError("a deployed run needs the keys that clients registered; a simulation's are everybody's")
        keys = Registry(Seeds(seeds.seed), cohort.clients)
    covers = plan is not None and protection.parts.keys is not None  # between machines nobody may see who failed
    secure = Secure(coding, policy.bind(setup), keys, seeds.server, covers)
    return Standing(secure) if policy.key_life == "session" else secure
