"""Put an experiment together: the place where data, model, scheme and federation meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.data import Dataset, Partition, load, partition
from sottovoce.experiment.config import Experiment
from sottovoce.federation.client import setup_message
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.round import Aggregator, Plain, Server
from sottovoce.federation.shared import Arrays
from sottovoce.federation.sums import BallotSum, FloatSum
from sottovoce.federation.worker import Blueprint
from sottovoce.models import LocalTraining, Network, network
from sottovoce.schemes import Scheme, importance

__all__ = ["Assembly", "assemble"]


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
        """Tell whether clients count by |D_k|."""
        return self.scheme.weighted and self.experiment.aggregation.weighting != "equal"

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
        return LocalEngine(blueprint, self._arrays(), self.experiment.engine.workers or None)

    def start(self) -> Vector:
        """Return w_0."""
        return self.network.initialise(self.streams.get(Purpose.INIT))

    def bind(self, engine: LocalEngine) -> Scheme:
        """Return the scheme bound to the model; some need the public data for it."""
        start = self.start()
        scores = self._importance(engine, start) if self.scheme.needs_importance else None
        return self.scheme.bind(self.network.dim, seed=self.streams.seed, start=start, importance=scores)

    def setup(self, bound: Scheme) -> bytes:
        """Return the message that every client gets once."""
        return setup_message(bound, self.streams.seed)

    def server(self, bound: Scheme) -> Server:
        """Return the server."""
        return Server(bound, self.cohort, self._aggregator(bound), self.streams)

    def _aggregator(self, bound: Scheme) -> Aggregator:
        if bound.form == "ballots":
            return Plain(BallotSum(bound.length))
        return Plain(FloatSum(bound.length, self.cohort.most))

    def _importance(self, engine: LocalEngine, start: Vector) -> Vector:
        table = self.experiment.scheme
        records = len(self.splits["public"].y_train)

        def gradient(params: Vector, step: int) -> Vector:
            rng = self.streams.get(Purpose.PUBLIC, step)
            return engine.gradient(params, "public", rng.permutation(records)[: table.public_batch])

        return importance(gradient, start, table.public_steps, self.experiment.client.client_lr)

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


def assemble(experiment: Experiment) -> Assembly:
    """Load the data and check that all parts fit."""
    streams = Streams(experiment.experiment.seed)
    table = experiment.data
    scheme = experiment.make_scheme()
    dataset = load(table.source, folder=table.folder)
    splits: dict[str, Dataset] = {}
    if table.held_out:
        dataset, splits["held_out"] = dataset.split(table.held_out, streams.get(Purpose.SPLIT, 0))
    if scheme.needs_importance:
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
    return Assembly(experiment, dataset, splits, net, owners, cohort, scheme, streams)


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
    _, chosen = public.split(min(table.public_samples, len(public.y_train) - 1), streams.get(Purpose.SPLIT, 1))
    return dataset, chosen
