"""Put an experiment together: the place where data, model, scheme, privacy and federation meet."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.data import Dataset, Partition, load, partition
from sottovoce.experiment.config import Experiment
from sottovoce.federation.client import setup_message
from sottovoce.federation.coding import BallotGrid, Clear, Coding, Grid, Private
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.round import Aggregator, Direct, Server
from sottovoce.federation.secure import Secure
from sottovoce.federation.shared import Arrays
from sottovoce.federation.worker import Blueprint
from sottovoce.models import LocalTraining, Network, network
from sottovoce.privacy import PrivacyPlan, public_clip_norm
from sottovoce.schemes import Scheme, State, importance

__all__ = ["Assembly", "Ready", "assemble"]


@dataclass(frozen=True)
class Ready:
    """Hold a federation that can play: everything that needed the engine is known."""

    scheme: Scheme
    setup: bytes
    coding: Coding
    server: Server
    plan: PrivacyPlan | None

    def enrol(self, assembly: Assembly, engine: LocalEngine, state: State | None = None) -> None:
        """Send the set-up to all clients; a resumed run hands them what they had kept."""
        memory = {} if state is None else self.scheme.replica(state)
        engine.enrol(assembly.scheme, self.setup, self.coding, private=self.plan is not None, memory=memory)


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
    streams: Streams

    @property
    def weighted(self) -> bool:
        """Tell whether clients count by |D_k|; in a private run they never do."""
        private = self.experiment.privacy is not None
        return self.scheme.weighted and not private and self.experiment.aggregation.weighting != "equal"

    @cached_property
    def start(self) -> Vector:
        """Return w_0."""
        return self.network.initialise(self.streams.get(Purpose.INIT))

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

    def engine(self) -> LocalEngine:
        """Start the engine."""
        client = self.experiment.client
        blueprint = Blueprint(
            network=self.network,
            training=self.training(),
            trainer=client.trainer,
            device=client.device,
            partition=self.partition,
            balanced=client.balanced,
            seed=self.streams.seed,
            mean_size=self.partition.mean_size if self.weighted else None,
        )
        workers = self.experiment.engine.workers or None
        return LocalEngine(blueprint, self._arrays(), workers, self.experiment.make_dropout())

    def ready(self, engine: LocalEngine) -> Ready:
        """Bind the scheme and solve the plan; some schemes and clippings need the public data for it."""
        scores = self._importance(engine) if self.scheme.needs_importance else None
        bound = self.scheme.bind(self.network.dim, seed=self.streams.seed, start=self.start, importance=scores)
        clip_norm = None
        if self.experiment.privacy is not None and self.experiment.privacy.clipping == "public":
            clip_norm = self._public_clip_norm(engine, bound)
        plan = self.plan(clip_norm)
        coding = self.coding(bound, plan)
        server = Server(
            bound, self.cohort, self._aggregator(coding, bound, plan), self.streams, self._server_step(), plan
        )
        return Ready(bound, setup_message(bound, self.streams.seed), coding, server, plan)

    def plan(self, clip_norm: float | None = None) -> PrivacyPlan | None:
        """Solve the privacy plan; None if the run is not private."""
        table = self.experiment.privacy
        if table is None:
            return None
        given = table.clip_norm if clip_norm is None else clip_norm
        bound = self.scheme.bind(self.network.dim)
        if given is None and bound.form == "floats" and table.clipping in ("fixed", "private"):
            raise InputError('[privacy] clip_norm is missing; set it, or clipping = "public" or "adaptive"')
        keys = table.model_dump(exclude={"clip_norm"})
        start = 0.0 if bound.form == "ballots" else 1.0  # adaptive clipping finds its way from anywhere
        return PrivacyPlan.solve(
            **keys,
            clip_norm=start if given is None else given,
            clients=self.cohort.clients,
            sample_rate=float(self.cohort.sample_rate),
            sampling=self.cohort.sampling,
            rounds=self.experiment.experiment.rounds,
            length=bound.length,
            form=bound.form,
            threshold=float(self.threshold),
            colluders=self.experiment.aggregation.colluders,
            cohort_cap=self.cohort.cap,
        )

    @property
    def threshold(self) -> Fraction:
        """Return the share of a cohort that must stay to the end."""
        given = self.experiment.aggregation.threshold
        if given is None:
            may_leave = self.experiment.make_dropout().possible or self.experiment.secure == "real"
            return Fraction(2, 3) if may_leave else Fraction(1)
        expected = Fraction(self.cohort.expected)
        share = given / expected if given > 1 else given
        if share > 1:
            raise InputError(f"[aggregation] threshold must be at most the cohort of {float(expected):g}, got {given}")
        if 2 * share <= 1:
            raise InputError(
                f"[aggregation] threshold must be above half of the cohort of {float(expected):g}, got {given}"
            )
        return share

    def fewest(self, plan: PrivacyPlan | None) -> Callable[[int], int]:
        """Return how many of a cohort must answer; a private run asks for those that its noise was shared among."""
        if self.experiment.secure == "none":
            return Fewest(Fraction(0))
        return Fewest(self.threshold) if plan is None else plan.shares.survivors

    def coding(self, bound: Scheme, plan: PrivacyPlan | None) -> Coding:
        """Return how messages travel."""
        if plan is not None:
            return Private(plan, self.streams)
        if self.experiment.secure == "none":
            return Clear(bound.form, bound.length, self.cohort.most)
        if bound.form == "ballots":
            return BallotGrid(bound.length, self.cohort.most)
        return Grid(bound.length, self.cohort.most, self.experiment.aggregation.largest)

    def _aggregator(self, coding: Coding, bound: Scheme, plan: PrivacyPlan | None) -> Aggregator:
        if self.experiment.secure != "real":
            return Direct(coding, self.fewest(plan))
        table = self.experiment.aggregation
        digest = hashlib.sha256(json.dumps(self.experiment.identity(), sort_keys=True).encode()).digest()
        return Secure(
            coding=coding,  # type: ignore[arg-type]  # every coding of a secure run is made of words
            fewest=self.fewest(plan),
            streams=self.streams,
            config_digest=digest,
            length=bound.length if plan is None else plan.word_length,
            colluders=table.colluders,
            neighbours=table.neighbours,
        )

    def _server_step(self) -> ServerStep:
        return ServerStep(**self.experiment.server.model_dump(), rounds=self.experiment.experiment.rounds)

    def _importance(self, engine: LocalEngine) -> Vector:
        table = self.experiment.scheme
        records = len(self.splits["public"].y_train)

        def gradient(params: Vector, step: int) -> Vector:
            rng = self.streams.get(Purpose.PUBLIC, 0, step)
            return engine.gradient(params, "public", rng.permutation(records)[: table.public_batch])

        return importance(gradient, self.start, table.public_steps, self.experiment.client.client_lr)

    def _public_clip_norm(self, engine: LocalEngine, bound: Scheme) -> float:
        """Return a quantile of the norms of updates made from public records, dealt out like the clients'."""
        records = len(self.splits["public"].y_train)
        each = max(1, min(records, round(self.partition.mean_size)))
        order = self.streams.get(Purpose.PUBLIC, 2).permutation(records)
        shards = [order[start : start + each] for start in range(0, records - each + 1, each)]
        norms = engine.public_norms(bound, self.start, shards)
        quantile = 0.5 if self.experiment.privacy is None else self.experiment.privacy.clip_quantile
        return public_clip_norm(norms, quantile=quantile)

    def _arrays(self) -> Arrays:
        arrays: dict[str, NDArray[Any]] = {
            "x_train": self.dataset.x_train,
            "y_train": self.dataset.y_train,
            "x_test": self.dataset.x_test,
            "y_test": self.dataset.y_test,
        }
        for name, split in self.splits.items():
            arrays[f"x_{name}"], arrays[f"y_{name}"] = split.x_train, split.y_train
        return arrays


@dataclass(frozen=True)
class Fewest:
    """Say how many of a cohort must answer: floor(share * n) + 1, or all of them for a share of 1."""

    share: Fraction

    def __call__(self, cohort: int) -> int:
        """Return the number for one cohort."""
        if self.share == 0:
            return min(cohort, 1)
        return cohort if self.share == 1 else min(cohort, math.floor(self.share * cohort) + 1)


def assemble(experiment: Experiment) -> Assembly:
    """Load the data and check that all parts fit."""
    streams = Streams(experiment.experiment.seed)
    table = experiment.data
    scheme = experiment.make_scheme()
    dataset = load(table.source, folder=table.folder)
    splits: dict[str, Dataset] = {}
    if table.held_out:
        dataset, splits["held_out"] = dataset.split(table.held_out, streams.get(Purpose.SPLIT, 0))
    from_public = experiment.privacy is not None and experiment.privacy.clipping == "public"
    if scheme.needs_importance or from_public:
        dataset, splits["public"] = _public(experiment, dataset, streams)
    owners = partition(
        table.partition,
        dataset.y_train,
        table.clients,
        streams,
        concentration=table.concentration,
        shards_per_client=table.shards_per_client,
        records_per_client=table.records_per_client,
        ids=dataset.ids,
    )
    cohort = Cohort(
        clients=owners.clients,
        sample_rate=experiment.cohort.sample_rate,
        sampling=experiment.cohort.sampling,
        cap=experiment.cohort.cap,
    )
    net = network(
        experiment.model.name,
        dataset.shape,
        dataset.classes,
        input_scale=dataset.input_scale,
        hidden=experiment.model.hidden,
    )
    scheme.bind(net.dim)  # refuses a ratio or a chunking that does not fit this model
    assembly = Assembly(experiment, dataset, splits, net, owners, cohort, scheme, streams)
    assembly.fewest(assembly.plan(1.0 if from_public else None))  # refuses a budget or a threshold that cannot be kept
    return assembly


def _public(experiment: Experiment, dataset: Dataset, streams: Streams) -> tuple[Dataset, Dataset]:
    """Return the private data and the public slice; the slice is cut off unless another data set gives it."""
    table = experiment.scheme
    if table.public is None or table.public == experiment.data.source:
        return dataset.split(table.public_samples, streams.get(Purpose.SPLIT, 1))
    public = load(table.public, folder=experiment.data.folder)
    if public.shape != dataset.shape or public.classes > dataset.classes:
        raise InputError(
            f"[scheme] public = {table.public!r} has records of shape {public.shape} and {public.classes} classes, "
            f"{experiment.data.source!r} has {dataset.shape} and {dataset.classes}; they must match"
        )
    public = replace(public, input_scale=dataset.input_scale)
    _, chosen = public.split(min(table.public_samples, public.records - 1), streams.get(Purpose.SPLIT, 1))
    return dataset, chosen
