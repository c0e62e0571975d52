"""Put an experiment together: the place where data, model, scheme, privacy and federation meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.core.vectors import Vector
from sottovoce.data import Dataset, Partition, mean_balanced_size
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.measure import coordinate_importance, measured_clip_norm
from sottovoce.federation.aggregate import Aggregator, Direct
from sottovoce.federation.client import setup_message
from sottovoce.federation.coding import Clear, Coding, FloatGrid, Private, SignGrid
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Engine, Enrolment, Evaluator, drive
from sottovoce.federation.leaving import Leaving
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.quorum import Fewest
from sottovoce.federation.round import Account, Server
from sottovoce.federation.secure import Registry, Secure, Standing
from sottovoce.federation.shared import Arrays
from sottovoce.federation.vote import Election, Vote, hold_vote
from sottovoce.federation.worker import Blueprint
from sottovoce.models import LocalTraining, Network
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.vote import vote_plan
from sottovoce.schemes import Scheme, State
from sottovoce.secagg import Policy

__all__ = ["Assembly", "Ready"]


@dataclass(frozen=True)
class Ready:
    """Hold a federation that can play: everything that needed the engine is known."""

    scheme: Scheme
    setup: bytes
    coding: Coding
    server: Server
    plan: PrivacyPlan | None
    policy: Policy | None = None  # what clients of a secure run insist on
    election: Election | None = None  # if the clients voted for the coordinates

    def enrol(self, assembly: Assembly, engine: Engine, state: State | None = None) -> None:
        """Send the set-up to all clients; a resumed run hands them what they had kept."""
        memory = {} if state is None else self.scheme.replica(state)
        private = self.plan is not None
        engine.enrol(Enrolment(assembly.scheme, self.setup, self.coding, private, self.policy, memory))


@dataclass(frozen=True)
class Assembly:
    """Hold the parts of an experiment, checked against each other, before anything has been computed."""

    experiment: Experiment
    dataset: Dataset
    splits: dict[str, Dataset]  # "held_out" and "public", where there are such
    network: Network
    partition: Partition
    cohort: Cohort
    scheme: Scheme
    seeds: Seeds

    @property
    def weighted(self) -> bool:
        """Tell whether clients count by |D_k|: as the scheme's box has it, or as asked; in a private run never."""
        if self.experiment.privacy is not None:
            return False
        asked = self.experiment.aggregation.weighting
        return self.scheme.weighted if asked == "auto" else asked == "records"

    @cached_property
    def mean_size(self) -> float:
        """Return the mean number of records that a client trains with: what is left after balancing."""
        if not self.experiment.client.balanced:
            return self.partition.mean_size
        return mean_balanced_size(self.partition, self.dataset.y_train)

    @cached_property
    def start(self) -> Vector:
        """Return w_0."""
        return self.network.initialise(self.seeds.public.get(Purpose.INIT))

    def training(self) -> LocalTraining:
        """Return how clients train."""
        client = self.experiment.client
        return LocalTraining(
            local_steps=1 if self.scheme.single_step else client.local_steps,
            batch_size=None if client.batch_size == "all" else client.batch_size,
            client_lr=client.client_lr,
            optimizer=client.optimizer,
            momentum=client.momentum,
        )

    def blueprint(self) -> Blueprint:
        """Return what a worker needs to act for clients."""
        client = self.experiment.client
        return Blueprint(
            network=self.network,
            training=self.training(),
            trainer=client.trainer,
            device=client.device,
            partition=self.partition,
            balanced=client.balanced,
            seed=self.seeds.seed,
            mean_size=self.mean_size if self.weighted else None,
        )

    @contextmanager
    def engine(self) -> Iterator[tuple[Engine, Evaluator]]:
        """Start the engine, and give with it what computes on the data."""
        with LocalEngine(self.blueprint(), self.arrays(), self.experiment.engine.workers or None) as local:
            yield Leaving(local, self.experiment.make_dropout(), self.seeds.world), local

    def ready(self, evaluator: Evaluator) -> Ready:
        """Bind the scheme and solve the plan; some schemes and clippings need the public data for it.

        Coordinates that the clients vote for are not known yet: the vote spends budget, so `elect` waits for a ledger.
        """
        chosen = self.scheme.needs_importance and self.vote_plan is None
        bound = self._bind(coordinate_importance(self, evaluator) if chosen else None)
        plan = self.plan(measured_clip_norm(self, evaluator, bound))
        coding = self.coding(bound, plan)
        policy = self._policy(coding, bound, plan)
        setup = setup_message(bound, self.seeds.public)
        aggregator = self._aggregator(coding, policy, plan, setup)
        server = Server(bound, self.cohort, aggregator, self.seeds.server, self._server_step(), plan)
        return Ready(bound, setup, coding, server, plan, policy)

    def elect(self, ready: Ready, engine: Engine, account: Account) -> Ready:
        """Let the clients vote for the coordinates, if these are theirs to choose.

        Guarantee: the account is charged before the sum of the votes is opened.
        """
        if self.vote_plan is None:
            return ready
        vote = self.voting(ready, self.vote_plan)
        engine.enrol(Enrolment(vote.scheme, vote.setup, vote.coding, private=True, policy=vote.policy))
        election = drive(engine, hold_vote(vote.server.with_account(account), self.start))
        return replace(self.with_importance(ready, election.importance), election=election)

    def voting(self, ready: Ready, plan: PrivacyPlan) -> Ready:
        """Return the federation as it votes, charged for `plan`; nobody is asked yet. The clients bind its scheme."""
        training = replace(self.training(), local_steps=self.experiment.scheme.public_steps)
        vote = Vote(kept=ready.scheme.length, training=training)
        bound = vote.bind(self.network.dim, seed=self.seeds.public.seed, start=self.start)
        coding = Private(plan, self.seeds)
        policy = self._policy(coding, bound, plan)
        if policy is not None:
            policy = replace(policy, key_life="round")  # a vote is one round
        setup = setup_message(bound, self.seeds.public)
        aggregator = self._aggregator(coding, policy, plan, setup)
        server = Server(bound, self.cohort, aggregator, self.seeds.server, plan=plan)
        return Ready(vote, setup, coding, server, plan, policy)

    def with_importance(self, ready: Ready, importance: Vector) -> Ready:
        """Return the federation with coordinates chosen by their importance."""
        scheme = self._bind(importance)
        setup = setup_message(scheme, self.seeds.public)
        aggregator = self._aggregator(ready.coding, ready.policy, ready.plan, setup)
        server = replace(ready.server, scheme=scheme, aggregator=aggregator)
        return replace(ready, scheme=scheme, setup=setup, server=server)

    def plan(self, clip_norm: float | None = None) -> PrivacyPlan | None:
        """Solve the privacy plan; None if the run is not private."""
        table = self.experiment.privacy
        if table is None:
            return None
        given = table.clip_norm if clip_norm is None else clip_norm
        bound = self.scheme.bind(self.network.dim)
        if given is None and bound.form == "floats" and table.clipping == "fixed":
            raise InputError('[privacy] clip_norm is missing; set it, or clipping = "public" or "adaptive"')
        start = 0.0 if bound.form == "signs" else 1.0  # adaptive clipping finds its way from anywhere
        return PrivacyPlan.solve(
            **self._private_keys,
            **table.model_dump(include={"epsilon", "epsilon_server", "noise_multiplier", "clipping", "grid", "bits"}),
            clip_norm=start if given is None else given,
            rounds=self.experiment.experiment.rounds,
            length=bound.length,
            form=bound.form,
            spent=() if self.vote_plan is None else tuple(self.vote_plan.events()),
        )

    @cached_property
    def vote_plan(self) -> PrivacyPlan | None:
        """Solve the plan of the clients' vote for the coordinates; None if there is none."""
        table = self.experiment.privacy
        if table is None or table.vote_noise_multiplier is None:
            return None
        kept = self.scheme.bind(self.network.dim).length
        noise = table.vote_noise_multiplier
        plan, _ = vote_plan(kept=kept, noise_multiplier=noise, length=self.network.dim, **self._private_keys)
        if table.epsilon is not None and plan.epsilon >= table.epsilon:
            raise PrivacyError(
                f"the vote alone costs epsilon {plan.epsilon:.4g} at vote_noise_multiplier {noise:g}, but the budget "
                f"is {table.epsilon:g}; raise vote_noise_multiplier or epsilon"
            )
        return plan

    @property
    def _private_keys(self) -> dict[str, Any]:
        """Return what every private release of the run has in common."""
        keys = {} if self.experiment.privacy is None else self.experiment.privacy.model_dump()
        for own in ("epsilon", "epsilon_server", "noise_multiplier", "vote_noise_multiplier"):
            keys.pop(own, None)
        for own in ("clipping", "clip_norm", "grid", "bits"):
            keys.pop(own, None)
        return keys | {
            "clients": self.cohort.clients,
            "sample_rate": float(self.cohort.sample_rate),
            "sampling": self.cohort.sampling,
            "threshold": float(self.threshold),
            "colluders": self.experiment.aggregation.colluders,
            "cohort_cap": self.cohort.cap,
        }

    @property
    def threshold(self) -> Fraction:
        """Return the share of a cohort that must stay to the end."""
        given = self.experiment.aggregation.threshold
        if given is None:
            return Fraction(2, 3)
        expected = Fraction(self.cohort.expected)
        number = given if given > 1 else given * expected
        if number > expected:
            raise InputError(f"[aggregation] threshold must be at most the cohort of {float(expected):g}, got {given}")
        if 2 * number <= expected:
            raise InputError(
                f"[aggregation] threshold must be above half of the cohort of {float(expected):g}, got {given}"
            )
        # Of n clients floor(share * n) + 1 are needed; half of an odd cohort is no whole number.
        return max(Fraction(1, 2), (given - 1) / expected) if given > 1 else given

    def fewest(self, plan: PrivacyPlan | None) -> Callable[[int], int]:
        """Return how many of a cohort must answer; a private run asks for those that its noise was shared among."""
        if self.experiment.secure == "none":
            return Fewest(Fraction(0))
        return Fewest(self.threshold, self.cohort.least) if plan is None else plan.shares.survivors

    def coding(self, bound: Scheme, plan: PrivacyPlan | None) -> Coding:
        """Return how messages travel."""
        if plan is not None:
            return Private(plan, self.seeds)
        if self.experiment.secure == "none":
            return Clear(bound.form, bound.length, self.cohort.most)
        if bound.form == "signs":
            return SignGrid(bound.length, self.cohort.most)
        return FloatGrid(bound.length, self.cohort.most, self.experiment.aggregation.largest)

    def _bind(self, scores: Vector | None) -> Scheme:
        return self.scheme.bind(self.network.dim, seed=self.seeds.public.seed, start=self.start, importance=scores)

    def _policy(self, coding: Coding, bound: Scheme, plan: PrivacyPlan | None) -> Policy | None:
        """Return what every client of a secure run insists on; it follows from the configuration alone."""
        if self.experiment.secure != "real":
            return None
        table = self.experiment.aggregation
        return Policy(
            config_digest=hashlib.sha256(json.dumps(self.experiment.identity(), sort_keys=True).encode()).digest(),
            bits=coding.bits,
            length=bound.length if plan is None else plan.word_length,
            threshold=self.fewest(plan),
            fewest=max(2, self.cohort.least if plan is None else plan.shares.floor),
            colluders=table.colluders,
            graph_share=table.graph_colluders,
            neighbours=table.neighbours,
            key_life=table.key_life,
        )

    def _aggregator(self, coding: Coding, policy: Policy | None, plan: PrivacyPlan | None, setup: bytes) -> Aggregator:
        if policy is None:
            return Direct(coding, self.fewest(plan))
        registry = Registry(self.seeds, self.cohort.clients)
        # Every coding of a secure run is made of words.
        secure = Secure(coding, policy.bind(setup), registry)  # type: ignore[arg-type]
        return Standing(secure) if policy.key_life == "session" else secure

    def _server_step(self) -> ServerStep:
        return ServerStep(**self.experiment.server.model_dump(), rounds=self.experiment.experiment.rounds)

    def arrays(self) -> Arrays:
        """Return the records that workers share."""
        arrays: dict[str, NDArray[Any]] = {
            "x_train": self.dataset.x_train,
            "y_train": self.dataset.y_train,
            "x_test": self.dataset.x_test,
            "y_test": self.dataset.y_test,
        }
        for name, split in self.splits.items():
            arrays[f"x_{name}"], arrays[f"y_{name}"] = split.x_train, split.y_train
        return arrays
