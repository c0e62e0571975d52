"""The stages of a run as data, and the server's and the client's side of each of them.

A run is a list of conversations with its clients: a vote or a warm start before round 1, the training, and the
measurements beside it. Server, node, helper and plan all get them from `stages`. To add one, write its scheme and its
server's side in `federation/stages`, and add a line to `stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from sottovoce.assembly.aggregator import make_aggregator, make_reference
from sottovoce.assembly.measure import MEASURED, coordinate_importance, measured_clip_norm
from sottovoce.assembly.parts import Parts
from sottovoce.assembly.protection import Protection, everyone, unit_measure
from sottovoce.core.errors import WireError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.robust import Reference
from sottovoce.federation.client import Knowledge, read_setup, setup_message, split_setup
from sottovoce.federation.coding import Coding
from sottovoce.federation.engine import Engine, Enrolment, Evaluator, Reply, Request
from sottovoce.federation.guard import EnergyGuard
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.round import RoundResult, Server
from sottovoce.federation.stages.evaluation import EVALUATION, Measure
from sottovoce.federation.stages.vote import Vote, hold_vote
from sottovoce.federation.stages.warm_start import find_start
from sottovoce.federation.stages.whiten import find_whitening, whiten_scheme
from sottovoce.federation.units import head_lr, unit_lr
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import Scheme, State
from sottovoce.secagg import Policy
from sottovoce.secagg.ballots import BallotTerms

VOTE: Final = "vote"
WARM_START: Final = "warm start"
WHITEN: Final = "whitening"
TRAINING: Final = "training"
MEASUREMENT: Final = "measurement"

_BEFORE: Final = range(1)  # round 0, before the first

Ask = Callable[[Server, Vector], Generator[Request, Reply, RoundResult]]


def stages(protection: Protection) -> dict[str, Stage]:
    """Return the stages of a run by their names, in the order in which they begin."""
    rounds = protection.parts.experiment.experiment.rounds
    found = [
        _vote(protection),
        _warm_start(protection),
        _whiten(protection),
        Stage(TRAINING, protection.parts.scheme, protection, range(1, rounds + 1), key_life=None, trains=True),
        _measurement(protection, rounds),
    ]
    return {stage.name: stage for stage in found if stage is not None}


def _vote(protection: Protection) -> Stage | None:
    """Return the clients' vote for the coordinates."""
    if protection.vote_plan is None:
        return None
    parts = protection.parts
    training = replace(parts.training(), local_steps=parts.experiment.scheme.public_steps)
    scheme = Vote(kept=parts.scheme.bind(parts.network.dim).length, training=training)
    charged = replace(protection, plan=protection.vote_plan)
    return Stage(VOTE, scheme, charged, _BEFORE, gives="importance", ask=hold_vote)


def _warm_start(protection: Protection) -> Stage | None:
    """Return the message of every client from which the first model is found."""
    if protection.parts.warm is None:
        return None
    charged = replace(protection, parts=everyone(protection.parts), plan=protection.warm_plan)
    return Stage(WARM_START, protection.parts.warm, charged, _BEFORE, gives="params", ask=find_start)


def _whiten(protection: Protection) -> Stage | None:
    """Return the message of every client from which the whitening of features is found.

    Its clients have features that are not whitened, also after the numbers are known.
    """
    parts, whitening = protection.parts, protection.parts.network.whitening
    if whitening is None:
        return None
    scheme = whiten_scheme(whitening, ballots=parts.experiment.protocol.counts_votes)
    parts = replace(everyone(parts), network=parts.network.with_numbers(None))
    charged = replace(protection, parts=parts, plan=protection.whiten_plan)
    return Stage(WHITEN, scheme, charged, _BEFORE, gives="whitening", ask=find_whitening)


def _measurement(protection: Protection, rounds: int) -> Stage | None:
    """Return the measurements by clients; a loss is cut off at twice that of guessing.

    A measurement without quorum shows, as it has no mean; so it is not covered by noise.
    """
    parts = protection.parts
    if parts.experiment.evaluation != "federated":
        return None
    scheme: Scheme = Measure(task=parts.network.task)
    if parts.units is not None:
        scheme = unit_measure(parts)
    charged = replace(protection, plan=protection.evaluation_plan)
    numbers = range(EVALUATION + 1, EVALUATION + rounds + 1)
    return Stage(MEASUREMENT, scheme, charged, numbers, records="held_out", beside=True, covers=False)


@dataclass(frozen=True)
class Stage:
    """One conversation of a run: its scheme, what protects it, and the numbers of its rounds."""

    name: str
    scheme: Scheme  # not bound
    protection: Protection  # its own plan, and parts with its own cohort
    rounds: range
    records: Literal["train", "held_out"] = "train"  # of a client: those that it answers with
    gives: Literal["importance", "params", "whitening"] | None = (
        None  # of a stage before round 1: what training takes from it
    )
    ask: Ask | None = None  # the server's side of a stage before round 1
    key_life: Literal["round", "session"] | None = "round"  # of a secure sum; None: as the file says
    beside: bool = False  # beside the training, in sessions of its own; nothing of it is the server's to choose
    covers: bool = True  # between machines a failure of it is covered by noise
    trains: bool = False  # its rounds are the training

    @property
    def plan(self) -> PrivacyPlan | None:
        """Return the plan that it is charged for; None if it is not private, or its clip norm is not measured yet."""
        return self.protection.plan

    @property
    def parts(self) -> Parts:
        """Return the parts of the run, with the cohort of this stage."""
        return self.protection.parts

    def coding(self, bound: Scheme) -> Coding:
        """Return how its messages travel."""
        return self.protection.coding(bound, self.plan)

    def ballot_terms(self, setup: bytes) -> BallotTerms | None:
        """Return the terms of a real count of its ballots; None if there is none."""
        return self.protection.ballot_terms(self.plan, setup, self.rounds[0])

    def policy(self, bound: Scheme) -> Policy | None:
        """Return what its clients insist on; None if nothing is masked."""
        policy = self.protection.policy(bound, self.plan)
        if policy is None or self.key_life is None:
            return policy
        return replace(policy, key_life=self.key_life, last_round=self.rounds[-1])

    def bind(self, importance: Vector | None = None) -> Scheme:
        """Return the scheme as the server binds it; some need to know how much each coordinate matters."""
        parts = self.parts
        seed = parts.seeds.public.seed
        return self.scheme.bind(parts.network.dim, seed=seed, start=parts.start, importance=importance)

    def heard(self, setup: bytes) -> Stage:
        """Return a node's stage with the numbers of the public front that the set-up carries, if there is one.

        Guarantee: how many they are, and which layers train, is as the node's own file says; no plan depends on them.
        """
        parts = self.parts
        seed, payload = split_setup(setup)
        network = parts.network.told(payload, Streams(seed).get(Purpose.INIT))
        if network.layout != parts.network.layout:
            raise WireError("the server's set-up trains other layers than the experiment file")
        return replace(self, protection=replace(self.protection, parts=replace(parts, network=network)))

    def client_side(self, setup: bytes) -> Knowledge:
        """Return what a node knows: from its own copy of the file, and from the set-up message that it has `heard`."""
        parts = self.parts
        if self.beside:
            bound = self.bind()
            setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
        else:
            bound = read_setup(self.scheme, parts.network, setup)
        policy = self.policy(bound)
        return Knowledge(
            scheme=bound,
            coding=self.coding(bound),
            keys=parts.parties.keys,
            private=self.plan is not None,
            mean_size=parts.mean_size if parts.weighted and not self.beside else None,
            policy=None if policy is None else policy.bind(setup),
            ballot=self.ballot_terms(setup),
            last_round=self.rounds[-1],
        )

    def server_side(self, evaluator: Evaluator | None = None) -> ServerSide:
        """Return the server's side; training may ask the evaluator which coordinates matter and how long messages are.

        Without an evaluator nothing is computed: such coordinates and the numbers of a whitening are made up, and a
        measured clip norm is 1. No size,
        noise multiplier or epsilon depends on either.

        Coordinates that the clients vote for are not known yet: the vote spends budget, so it waits for a ledger.
        """
        if not self.trains:
            return ServerSide.of(self, self.bind(), ServerStep())
        if evaluator is None and (whitening := self.parts.network.whitening) is not None and whitening.numbers is None:
            network = self.parts.network.with_numbers(np.zeros(whitening.length, np.float32))
            parts = replace(self.parts, network=network)
            return replace(self, protection=replace(self.protection, parts=parts)).server_side()
        bound = self.bind(self._importance(evaluator))
        stage = replace(self, protection=self.protection.measured(self._clip_norm(evaluator, bound)))
        experiment = self.parts.experiment
        keys = experiment.server.step_keys
        if keys["lr"] == "auto":
            keys["lr"] = self._unit_lr(stage, bound)
        step = ServerStep(**keys, rounds=experiment.experiment.rounds)
        return ServerSide.of(stage, bound, step, make_reference(self.parts, bound, evaluator))

    def _unit_lr(self, stage: Stage, bound: Scheme) -> float:
        """Return the server's step where the file leaves it to the plan; signs have a step of their own."""
        if stage.plan is None or bound.form == "signs":
            return 1.0
        if not stage.plan.request.of_sites:
            return head_lr(stage.plan)
        weights = [name for name, shape in self.parts.network.trained.layout.tensors if len(shape) > 1]
        return unit_lr(stage.plan, momentum=self.parts.experiment.server.momentum, deep=len(weights) > 1)

    def _importance(self, evaluator: Evaluator | None) -> Vector | None:
        if not self.scheme.needs_importance:
            return None
        if evaluator is None:
            return made_up_importance(self.parts)
        return coordinate_importance(self.parts, evaluator) if self.protection.vote_plan is None else None

    def _clip_norm(self, evaluator: Evaluator | None, bound: Scheme) -> float | None:
        if evaluator is not None:
            return measured_clip_norm(self.parts, evaluator, bound)
        table = self.parts.experiment.privacy
        return 1.0 if table is not None and table.clipping in MEASURED else None


def made_up_importance(parts: Parts) -> Vector:
    """Return an importance of each coordinate that nobody has measured or voted for; sizes do not depend on it."""
    return np.arange(parts.network.dim, 0, -1, dtype=np.float32)


@dataclass(frozen=True)
class ServerSide:
    """The server's side of a stage: everything that had to be computed beforehand is known, and rounds can begin."""

    stage: Stage
    scheme: Scheme  # bound, as the server holds it
    enrolment: Enrolment
    server: Server
    reference: Reference | None = None  # what a defence compares updates with

    @classmethod
    def of(cls, stage: Stage, bound: Scheme, step: ServerStep, reference: Reference | None = None) -> ServerSide:
        """Put the server's side together for a bound scheme."""
        parts, plan, policy = stage.parts, stage.plan, stage.policy(bound)
        if plan is not None:
            divisor = plan.expected_cohort if plan.request.of_sites else parts.cohort.expected
            bound = bound.with_noise(plan.stddev() / divisor)
        coding = stage.coding(bound)
        setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
        server = Server(
            bound,
            parts.cohort,
            make_aggregator(
                stage.protection,
                coding,
                policy,
                setup,
                covers=stage.covers,
                reference=reference,
                first_round=stage.rounds[0],
            ),
            parts.seeds.server,
            step,
            plan,
            guard=_guard(parts) if stage.trains and not bound.once else None,
            goes_on=stage.beside or parts.threat is not None,
            watch=parts.watch,
        )
        ballot = stage.ballot_terms(setup)
        enrolment = Enrolment(
            stage.scheme, setup, coding, plan is not None, policy, ballot, measures=stage.records == "held_out"
        )
        return cls(stage, bound, enrolment, server, reference)

    @property
    def protection(self) -> Protection:
        """Return what protects the clients."""
        return self.stage.protection

    @property
    def plan(self) -> PrivacyPlan | None:
        """Return the privacy plan; None if the stage is not private."""
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

    def with_whitening(self, numbers: Vector) -> ServerSide:
        """Return the side whose clients whiten their features by these numbers, which their set-up carries."""
        stage, parts = self.stage, self.stage.parts
        parts = replace(parts, network=parts.network.with_numbers(numbers))
        stage = replace(stage, protection=replace(stage.protection, parts=parts))
        return ServerSide.of(stage, stage.bind(), self.server.step, self.reference)

    def with_importance(self, importance: Vector) -> ServerSide:
        """Return the side with coordinates chosen by their importance."""
        return ServerSide.of(self.stage, self.stage.bind(importance), self.server.step)


def _guard(parts: Parts) -> EnergyGuard | None:
    """Return what refuses sums that are too long; without a bound of the user's, 0.6 clip norms for each client."""
    table = parts.experiment.server
    if table.guard == "none":
        return None
    bound = 0.6 * parts.cohort.expected if table.guard_bound is None else table.guard_bound
    return EnergyGuard(bound, table.guard_width)
