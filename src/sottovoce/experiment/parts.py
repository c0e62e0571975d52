"""The parts of an experiment: data, network, owners of the records, cohort and scheme, loaded and checked.

Nothing is computed or written here, and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.provenance import Owned, Provenance, Public
from sottovoce.core.streams import Owners, Purpose, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.data import (
    WEIGHTED,
    Dataset,
    Partition,
    TableKeys,
    augmented,
    balanced_size,
    is_table,
    load,
    mean_balanced_size,
    mean_of_clients,
    partition,
    read_like,
    read_records,
)
from sottovoce.data.divided import Away
from sottovoce.data.elsewhere import Elsewhere
from sottovoce.data.partition import PAPER_SIZE
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.defence import check_defended_cohort
from sottovoce.experiment.fronts import make_network, threads
from sottovoce.experiment.given import NOTHING, Given
from sottovoce.experiment.public import check_chosen, check_no_client, cuts_public, is_clients, load_public
from sottovoce.experiment.switches_table import check_records
from sottovoce.experiment.threat import ATTACKED, Threat, aim, beset
from sottovoce.federation.aggregate import Total
from sottovoce.federation.ballots.remote import Link
from sottovoce.federation.ballots.terms import CountKeys
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.growth import Growth
from sottovoce.federation.local_evaluation import records_aside
from sottovoce.federation.shared import Arrays
from sottovoce.federation.worker import Blueprint
from sottovoce.models import LocalTraining, Model, all_features
from sottovoce.privacy.release import Boundary
from sottovoce.schemes import Scheme
from sottovoce.secagg import run_digest

__all__ = ["Parts", "check_held_out", "gather", "needs_public"]


@dataclass(frozen=True)
class Parts:
    """The parts of an experiment, checked against each other, before anything has been computed."""

    experiment: Experiment
    dataset: Dataset
    splits: dict[str, Dataset]  # "held_out" and "public", where there are such
    network: Model
    partition: Partition
    cohort: Cohort
    scheme: Scheme  # not yet bound to the network
    seeds: Owners
    threat: Threat | None = None  # None: everyone is honest
    warm: Scheme | None = None  # what finds the model that training begins at; not bound
    keys: Mapping[int, bytes] | None = None  # that clients registered; None: a simulation's
    count: CountKeys | None = None  # of the aggregators of a deployed run; None: a simulation's
    link: Link | None = None  # the server's way to the helper of a deployed run
    leader_signing: bytes | None = field(default=None, repr=False)  # of the server of a deployed count
    deployment: bool = False  # played between machines, with secrets that nobody can repeat
    run: bytes = run_digest(b"a simulation", b"")  # what secure sums are bound to; empty on a node before it is told
    watch: Callable[[int, Total], None] | None = None  # an audit's, of every sum; None in a run

    @property
    def boundary(self) -> Boundary:
        """Return what decides whether a value computed from records may leave the run."""
        return _boundary(self.experiment)

    def provenance(self, split: str) -> Provenance:
        """Say whose the records of a split are; an attack is measured on test records, held-out ones are clients'."""
        return Owned() if split == "held_out" else self.dataset.test_from or Owned()

    @property
    def weighted(self) -> bool:
        """Tell whether clients count by |D_k|: as the scheme's box has it, or as asked.

        In a private run and under a defence never: a client could claim any number of records.
        """
        if self.experiment.privacy is not None or self.experiment.aggregation.defence != "none":
            return False
        if self.growth is not None:
            return False
        asked = self.experiment.aggregation.weighting
        return self.scheme.weighted if asked == "auto" else asked == "records"

    @property
    def growth(self) -> Growth | None:
        """Return how records come to clients round by round; None: all are there from the start."""
        table = self.experiment.switches
        return None if table is None or not table.new_records else Growth(table.new_records, table.cumulative)

    @property
    def counts(self) -> Provenance:
        """Say whose the numbers of records are: declared, those of a known data set, or the clients'."""
        table = self.experiment.data
        dealt = table.records_per_client is not None and table.partition in ("iid", "virtual")
        if dealt or isinstance(self.partition, Elsewhere):
            return Public("[data]")
        return self.dataset.counts_from

    @property
    def public_size(self) -> float:
        """Return the mean number of records of a client as far as it may be told.

        Where the numbers of a private run are the clients', it is [data] mean_records; if that is not declared, a batch
        or ten records.
        """
        if self.boundary.passes(self.counts):
            return self.partition.mean_size
        return self.experiment.data.mean_records or self.training().batch_size or PAPER_SIZE

    @cached_property
    def mean_size(self) -> float:
        """Return the mean number of records that a client trains with: after balancing, without those it keeps out.

        Guarantee: in a private run it does not depend on the clients' records, as bytes, joules and S follow from it.
        """
        if not self.boundary.passes(self.counts):
            return self.public_size
        table, owners, labels = self.experiment.client, self.partition, self.dataset.y_train
        if isinstance(owners, Elsewhere):  # nobody knows more than the public mean
            return owners.mean_size
        if isinstance(owners, Away):
            return owners.trained
        if not table.held_out:
            return owners.mean_size if table.sampled is None else mean_balanced_size(owners, labels, table.sampled)

        def trained(client: int) -> int:
            size = owners.size(client)
            if table.sampled is not None:
                size = balanced_size(labels[owners.records(client)], table.sampled)
            return size - records_aside(size, table.held_out)

        return mean_of_clients(owners, trained)

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
            adam_epsilon=client.adam_epsilon,
            prox=client.prox,
            weighted_loss=client.balanced == WEIGHTED,
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
            balanced=client.sampled,
            seed=self.seeds.seed,
            mean_size=self.mean_size if self.weighted else None,
            held_out=client.held_out,
            behaviour=None if self.threat is None else self.threat.behaviour,
            hoard=None if self.threat is None else self.threat.hoard,
            growth=self.growth,
            leave_within=0.0 if self.experiment.switches is None else self.experiment.switches.leave_within,
        )

    def arrays(self, only: Collection[str] | None = None) -> Arrays:
        """Return the records that workers share, or those of some splits.

        Where a front reads records before anything trains, these are its features, computed here and once.
        """
        data = self.dataset
        pairs = {"train": (data.x_train, data.y_train), "test": (data.x_test, data.y_test)}
        if isinstance(self.partition, Away):
            del pairs["train"]  # every machine has its own
        pairs |= {name: (split.x_train, split.y_train) for name, split in self.splits.items()}
        arrays: dict[str, NDArray[Any]] = {}
        for name, (x, y) in pairs.items():
            if only is None or name in only:
                arrays[f"x_{name}"] = all_features(self.network, x, threads(self.experiment))
                arrays[f"y_{name}"] = y
        if self.threat is not None and self.threat.labels is not None:
            arrays["y_malicious"] = self.threat.labels
        return arrays


def gather(experiment: Experiment, given: Given = NOTHING, front: bytes | None = b"") -> Parts:
    """Load the data and check that the parts fit; parts that are given take the place of those in the tables.

    `front` are the numbers of a front that was fitted before, as a run folder keeps them; None: they are yet to come.
    Where `[engine] data` names a folder, no train record is read: the machines of the cluster have them.
    """
    if experiment.engine.data is not None:
        from sottovoce.experiment.division import gather_divided  # which comes back here for all the rest

        return gather_divided(experiment, given, front)
    seeds = Seeds(experiment.experiment.seed)
    streams = seeds.world
    table = experiment.data
    if table.shape is not None and given.dataset is None:
        raise InputError(
            "[data] shape describes records that only nodes hold, and there are none here; play the run between "
            "machines, or remove shape, classes and scale"
        )
    scheme = _scheme(experiment, given)
    keys = TableKeys(label=table.label, id=table.id, split=table.split, schema=table.schema, aside=experiment.aside)
    dataset = given.dataset or load(table.source, folder=table.folder, table=keys, classes=table.classes)
    if table.classes not in (None, dataset.classes):
        raise InputError(
            f"[data] classes is {table.classes}, but the records have {dataset.classes}; correct it, or leave it out"
        )
    _check_preprocessing(experiment, dataset)
    check_chosen(experiment, dataset)
    dataset = _tested(experiment, dataset)
    dataset, pair = aim(experiment, dataset)
    whole = dataset
    records = dataset.records
    splits: dict[str, Dataset] = {}
    if table.held_out:
        dataset, splits["held_out"] = dataset.split(table.held_out, streams.get(Purpose.SPLIT, 0))
    if needs_public(experiment, scheme):
        own = (dataset, given.public) if given.public is not None else None
        dataset, splits["public"] = own or _public(experiment, dataset, whole, streams)
    dataset = augmented(dataset, table.augment, streams.get(Purpose.SPLIT, 2))
    if given.partition is not None and table.augment > 1:
        raise InputError("the given partition is of the train records as they are; remove [data] augment")
    if given.partition is not None and dataset.records != records:
        raise InputError(
            f"the given partition is of all {records} train records, but {records - dataset.records} of them would be "
            "set aside; remove [data] held_out, and name another data set in [scheme] public"
        )
    owners = given.partition or partition(
        table.partition,
        dataset.y_train,
        table.clients,
        streams,
        concentration=table.concentration,
        shards_per_client=table.shards_per_client,
        records_per_client=table.records_per_client,
        pools=table.pools,
        ids=dataset.ids,
    )
    cohort = Cohort(
        clients=owners.clients,
        sample_rate=experiment.cohort.sample_rate,
        sampling=experiment.cohort.sampling,
        cap=experiment.cohort.cap,
        floor=experiment.cohort.floor,
    )
    check_defended_cohort(experiment.aggregation, cohort)
    check_records(experiment.switches, experiment.experiment.rounds, owners, experiment.client.held_out)
    threat, dataset, attacked, owners = beset(experiment, scheme, dataset, owners, pair, cohort.expected)
    if attacked is not None:
        splits[ATTACKED] = attacked
    net = make_network(experiment, whole, seeds, given.network, front)
    scheme = scheme.fit(net.layout)
    scheme.bind(net.dim)  # refuses a ratio or a chunking that does not fit this model
    warm = experiment.make_warm()
    return Parts(experiment, dataset, splits, net, owners, cohort, scheme, seeds, threat, warm and warm.fit(net.layout))


def needs_public(experiment: Experiment, scheme: Scheme) -> bool:
    """Tell whether a run computes on public records."""
    clipping = None if experiment.privacy is None else experiment.privacy.clipping
    voted = experiment.privacy is not None and experiment.privacy.vote_noise_multiplier is not None
    trusted = experiment.aggregation.defence == "fltrust"
    return (scheme.needs_importance and not voted) or clipping == "public" or trusted


def _scheme(experiment: Experiment, given: Given) -> Scheme:
    if given.scheme is None:
        return experiment.make_scheme()
    try:
        experiment.check_scheme(given.scheme)  # as the tables check the one that they name
    except ValueError as error:
        raise InputError(f"the given scheme: {error}") from None
    return experiment.complete(given.scheme)


def _check_preprocessing(experiment: Experiment, dataset: Dataset) -> None:
    """Raise if a private run would publish what was fitted on the clients' records: features, or the classes."""
    private = experiment.privacy
    if private is None or private.unsafe_preprocessing:
        return
    for what, way in dataset.fitted.items():
        raise PrivacyError(
            f"{what} of {experiment.data.source!r} was taken from the clients' records and is published with the "
            f"model, which epsilon does not cover; {way}, or set [privacy] unsafe_preprocessing = true"
        )
    if dataset.fitted_on != "training records":
        return
    told = dataset.preprocessing or {}
    fitted = told["fitted"]
    more = f" and {len(fitted) - 4} more" if len(fitted) > 4 else ""
    raise PrivacyError(
        f"the preprocessing of {told['source']!r} was fitted on the clients' records (columns "
        f"{', '.join(fitted[:4])}{more}), which epsilon does not cover; give [data] schema a file with the range of "
        "each number, the categories of each word and the classes, or set [privacy] unsafe_preprocessing = true"
    )


def _boundary(experiment: Experiment) -> Boundary:
    private = experiment.privacy
    return Boundary(private is not None, private is not None and private.unsafe_test)


def _tested(experiment: Experiment, dataset: Dataset) -> Dataset:
    """Return the data set with its test records, which know whose they are; raise if a run may not measure on them."""
    table, boundary = experiment.data, _boundary(experiment)
    if table.test is not None:
        dataset = _with_test(experiment, dataset, table.test)
    if table.test_public and isinstance(dataset.test_from, Owned):
        dataset = replace(dataset, test_from=Public("declared public ([data] test_public)"))
    if experiment.evaluation != "server":
        return dataset if boundary.passes(dataset.test_from or Owned()) else dataset.untested()
    if boundary.private:
        dataset = replace(dataset, test_from=dataset.tested_on())
        boundary.check(dataset.test_from or Owned(), "the test records")
    check_held_out(experiment)
    return dataset


def check_held_out(experiment: Experiment) -> None:
    """Raise if a private run would measure on records that were cut from the clients'."""
    if experiment.data.held_out and experiment.evaluation == "server":
        _boundary(experiment).check(Owned(), "the records of [data] held_out")


def _with_test(experiment: Experiment, dataset: Dataset, source: str) -> Dataset:
    """Return the data set with the test records of another file, which is read as the clients' is."""
    folder, whose = (
        experiment.data.folder,
        Owned("clients: it is their file") if is_clients(source, experiment) else None,
    )
    if dataset.preprocessing is not None and is_table(source):
        other = read_like(dataset, source, folder)
        x, y = other.x_test, other.y_test
        if whose is None and dataset.owners & other.owners:
            whose = Owned("clients: somebody owns train and test records")
    else:
        x, labels = read_records(Path(folder or "") / Path(source).expanduser())
        if labels is None:
            raise InputError(f"[data] test = {source!r} has no labels; it needs an array y beside x")
        y = labels
    return replace(
        dataset,
        x_test=x,
        y_test=y,
        test_data=f"{len(y)} records of {Path(source).name}",
        test_from=whose,
        properties={},
    )


def _public(experiment: Experiment, dataset: Dataset, whole: Dataset, streams: Streams) -> tuple[Dataset, Dataset]:
    """Return the private data and the public slice; the slice is cut off unless another data set gives it.

    Guarantee: in a private run none of the records that another data set gives is among `whole`, all of the clients'.
    """
    table = experiment.scheme
    if cuts_public(experiment):
        return dataset.split(table.public_samples, streams.get(Purpose.SPLIT, 1))
    public = load_public(str(table.public), experiment, dataset, table.public_samples + 1)
    if public.shape != dataset.shape or public.classes > dataset.classes:
        raise InputError(
            f"[scheme] public = {table.public!r} has records of shape {public.shape} and {public.classes} classes, "
            f"{experiment.data.source!r} has {dataset.shape} and {dataset.classes}; they must match"
        )
    check_no_client(experiment, "[scheme] public", str(table.public), public, whole)
    public = replace(public, input_scale=dataset.input_scale)
    _, chosen = public.split(min(table.public_samples, public.records - 1), streams.get(Purpose.SPLIT, 1))
    return dataset, chosen
