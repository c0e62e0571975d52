"""The parts of an experiment: data, network, owners of the records, cohort and scheme, loaded and checked.

Nothing is computed or written here, and nobody is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.model import make_network, threads
from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.public import check_chosen, check_no_client, cuts_public, is_clients, load_public
from sottovoce.assembly.threat import ATTACKED, Threat, aim, beset, check_defended_cohort
from sottovoce.config.experiment import Experiment
from sottovoce.config.privacy import PrivacyTable
from sottovoce.config.switches import check_records
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
    cache_folder,
    is_table,
    load,
    mean_balanced_size,
    mean_of_clients,
    partition,
    read_like,
    read_records,
)
from sottovoce.data.machine_parts import Away
from sottovoce.data.partition import PAPER_SIZE, one_owner_each
from sottovoce.data.persons import persons_at, with_rows_kept
from sottovoce.data.placeholder import Elsewhere
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.engines.worker import Blueprint
from sottovoce.federation.growth import Growth
from sottovoce.federation.stages.local_evaluation import records_aside
from sottovoce.models import LocalTraining, Model, all_features, safe_lr
from sottovoce.models.module import TorchNetwork
from sottovoce.models.network import DropoutLayer
from sottovoce.models.own_metrics import OwnMetric
from sottovoce.privacy.release import Boundary
from sottovoce.schemes import Scheme


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
    parties: Parties
    threat: Threat | None = None  # None: everyone is honest
    warm: Scheme | None = None  # what finds the model that training begins at; not bound
    metrics: tuple[OwnMetric, ...] = ()  # of the user's own, on test records
    watch: Callable[[int, Total], None] | None = None  # an audit's, of every sum; None in a run

    @property
    def seeds(self) -> Owners:
        """Return the owners of all randomness."""
        return self.parties.owners

    @property
    def boundary(self) -> Boundary:
        """Return what decides whether a value computed from records may leave the run."""
        return _boundary(self.experiment)

    def provenance(self, split: str) -> Provenance:
        """Say whose the records of a split are; an attack is measured on test records, held-out ones are clients'."""
        return Owned() if split == "held_out" else self.dataset.test_from or Owned()

    @property
    def units(self) -> int | None:
        """Return how many records or persons all sites train with, which is public; None where clients are protected.

        Of a number that is declared, the share of `[client] held_out` is set aside.
        """
        table, held_out = self.experiment.privacy, self.experiment.client.held_out
        if table is None or table.unit == "client":
            return None
        if isinstance(table.units, int):
            return table.units - (records_aside(table.units, held_out) if held_out else 0)
        return sum(self.units_of_sites) - (self.units_aside or 0)

    @property
    def units_aside(self) -> int | None:
        """Return how many records or persons the sites keep out of training; None if none or clients are protected."""
        table, held_out = self.experiment.privacy, self.experiment.client.held_out
        if table is None or table.unit == "client" or not held_out:
            return None
        if isinstance(table.units, int):
            return records_aside(table.units, held_out)
        return sum(records_aside(count, held_out) for count in self.units_of_sites)

    @cached_property
    def units_of_sites(self) -> list[int]:
        """Count the records or persons of each site; how many there are is public."""
        table = self.experiment.privacy
        if table is not None and isinstance(table.units, list):
            return list(table.units)
        return _units_at(self.experiment, self.partition, self.dataset)

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
        keys = {
            field.name: getattr(client, field.name) for field in fields(LocalTraining) if hasattr(client, field.name)
        }
        # A record or person trains on all of its rows: no batch mixes two of them.
        whole = client.batch_size == "all" or self.units is not None
        keys |= {"weighted_loss": client.balanced == WEIGHTED, "batch_size": None if whole else client.batch_size}
        if client.client_lr == "auto":
            keys["client_lr"] = safe_lr(self.network)
        return LocalTraining(**(keys | {"local_steps": 1} if self.scheme.single_step else keys))

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
            pool=() if self.threat is None else self.threat.pool(self.seeds.world),
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
                arrays[f"x_{name}"] = all_features(self.network, x, threads(self.experiment), kept_features())
                arrays[f"y_{name}"] = y
        if self.experiment.protects_persons and "x_train" in arrays and data.persons is not None:
            arrays["persons_train"] = data.persons
        if self.threat is not None and self.threat.labels is not None:
            arrays["y_malicious"] = self.threat.labels
        return arrays


def kept_features() -> Path | None:
    """Return the folder that keeps features between runs of simulations; None: `SOTTOVOCE_FEATURES=none` says so."""
    if (named := os.environ.get("SOTTOVOCE_FEATURES", "")) == "none":
        return None
    with suppress(OSError, RuntimeError):  # there may be no home
        return Path(named) if named else cache_folder() / "features"
    return None


def gather(
    experiment: Experiment, given: Given = NOTHING, front: bytes | None = b"", parties: Parties | None = None
) -> Parts:
    """Load the data and check that the parts fit; parts that are given take the place of those in the tables.

    `front` are the numbers of a front that was fitted before, as a run folder keeps them; None: they are yet to come.
    Without `parties` they are those of a simulation.
    Where `[engine] data` names a folder, no train record is read: the machines of the cluster have them.
    """
    if experiment.statistics is not None:
        from sottovoce.assembly.statistics import gather_statistics

        return gather_statistics(experiment)
    if experiment.engine.data is not None:
        from sottovoce.assembly.division import gather_divided

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
    keys = table_keys(experiment)
    dataset = given.dataset or load(table.source, folder=table.folder, table=keys, classes=table.classes)
    if table.centred:
        dataset = dataset.centred()
    if table.classes not in (None, dataset.classes):
        raise InputError(
            f"[data] classes is {table.classes}, but the records have {dataset.classes}; correct it, or leave it out"
        )
    _check_preprocessing(experiment, dataset)
    check_chosen(experiment, dataset)
    dataset = _tested(experiment, dataset)
    _check_label_kind(experiment, dataset)
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
    # Whole persons are dealt out as owners are: no person is at two sites.
    whole_persons = experiment.protects_persons and table.partition == "iid" and dataset.persons is not None
    owners = (
        given.partition
        or _own_files(experiment, dataset)
        or partition(
            "by-id" if whole_persons else table.partition,
            dataset.y_train,
            table.clients,
            streams,
            concentration=table.concentration,
            shards_per_client=table.shards_per_client,
            records_per_client=table.records_per_client,
            pools=table.pools,
            ids=dataset.persons if whole_persons else dataset.ids,
        )
    )
    owners = _kept_rows(experiment, owners, dataset)
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
    _check_units(experiment, owners, dataset, net)
    _check_once(scheme, net)
    scheme = scheme.fit(net.layout)
    scheme.bind(net.dim)  # refuses a ratio or a chunking that does not fit this model
    warm = experiment.make_warm()
    if warm is not None:
        _check_once(warm, net)
    return Parts(
        experiment,
        dataset,
        splits,
        net,
        owners,
        cohort,
        scheme,
        parties or Parties.simulated(seeds.seed, owners.clients),
        threat,
        warm and warm.fit(net.layout),
    )


def table_keys(experiment: Experiment) -> TableKeys:
    """Return how the source of an experiment is read."""
    table = experiment.data
    return TableKeys(
        label=tuple(table.label) if isinstance(table.label, list) else table.label,
        id=table.id,
        person=table.person,
        split=table.split,
        subgroup=table.subgroup,
        schema=table.schema,
        aside=experiment.aside,
        decimal=table.decimal,
        kind=experiment.model.label_kind,
        label_range=None if table.label_range is None else (table.label_range[0], table.label_range[1]),
    )


def _own_files(experiment: Experiment, dataset: Dataset) -> Partition | None:
    """Return the partition of several tables, each of which is a site: site k has the rows of file k, in their order.

    So a site that reads its own file on another machine has them as a simulation does. None: records are dealt out.
    """
    table = experiment.data
    if table.partition != "by-id" or table.id is not None or dataset.ids is None:
        return None
    return one_owner_each(dataset.ids, table.clients) if is_table(table.source, table.folder) else None


def _kept_rows(experiment: Experiment, owners: Partition, dataset: Dataset) -> Partition:
    """Return the partition with the rows of persons that take part, where persons are protected."""
    table = experiment.privacy
    if table is None or table.unit != "person" or isinstance(owners, Elsewhere | Away):
        return owners
    if dataset.persons is None:
        raise InputError(
            f'[privacy] unit = "person" protects all rows of a person, and {dataset.name} does not say whose a row is; '
            'use a table with [data] person, or unit = "record"'
        )
    if len(np.unique(dataset.persons)) == dataset.records:
        raise InputError(
            "[data] person is different in every row, so no row is put together with another; name the column that "
            'repeats for one person, or use [privacy] unit = "record"'
        )
    return with_rows_kept(owners, dataset.persons, table.max_rows)


def _units_at(experiment: Experiment, owners: Partition, dataset: Dataset) -> list[int]:
    if experiment.protects_persons and dataset.persons is not None:
        return persons_at(owners, dataset.persons)
    return [owners.size(site) for site in range(owners.clients)]


def _check_units(experiment: Experiment, owners: Partition, dataset: Dataset, network: Model) -> None:
    """Raise if a site holds too few units, or if what one of them sends would depend on others."""
    table = experiment.privacy
    if table is None or table.unit == "client":
        return
    key = f'[privacy] unit = "{table.unit}"'
    if (mixing := _mixing_layer(network.trained)) is not None:
        raise InputError(
            f"{key} lets each {table.unit} train by itself, and {mixing} would make that depend on others or on "
            "chance; remove that layer (GroupNorm does not look at other records)"
        )
    if isinstance(table.units, list) and len(table.units) != owners.clients:
        raise InputError(f"[privacy] units lists {len(table.units)} sites, but there are {owners.clients}; name each")
    if isinstance(owners, Elsewhere):
        if not isinstance(table.units, list):
            raise InputError(
                f"{key} needs [privacy] units between machines: a list of how many {table.unit}s each site holds, in "
                "the order of the roster; `sottovoce data check` tells each site its own"
            )
        return
    if isinstance(owners, Away):
        raise InputError(f"{key} is played where the records are, and they are elsewhere; remove [engine] data")
    counts = _units_at(experiment, owners, dataset)
    for site, held in enumerate(counts):
        check_site_units(table, site, held)
    if isinstance(table.units, int) and table.units != sum(counts):
        raise InputError(
            f"[privacy] units is {table.units}, but the {owners.clients} sites hold {sum(counts)} {table.unit}s, and "
            "the server divides by their number; correct it, or remove it to count them"
        )


def _mixing_layer(network: Model) -> str | None:
    """Name a layer that mixes records or draws at random; None if there is none."""
    if network.layered is not None:
        return "dropout" if any(isinstance(at, DropoutLayer) for at in network.layered.layers) else None
    if not isinstance(network, TorchNetwork):
        return f"the layers of {network.name}, which are not known,"
    from sottovoce.models.torch_units import mixing_layer

    return mixing_layer(network)


def check_site_units(table: PrivacyTable, site: int, held: int) -> None:
    """Raise if a site holds another number of units than was agreed on, or too few of them."""
    agreed = table.units[site] if isinstance(table.units, list) and site < len(table.units) else held
    if held != agreed:
        raise InputError(
            f"[privacy] units says that site {site} holds {agreed} {table.unit}s, but it holds {held}; take the "
            "records that were counted, or agree on another number with all sites"
        )
    if held < table.min_units:
        raise InputError(
            f"[privacy] min_units is {table.min_units}, but site {site} holds {held} {table.unit}s; leave it out, join "
            "it with another site, or lower min_units"
        )


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


def _check_once(scheme: Scheme, network: Model) -> None:
    """Raise if a scheme would solve for classes where there are none."""
    if scheme.once and network.task.name != "classification":
        raise InputError(
            f"{scheme.name} solves for classes, and [model] task is {network.task.name!r}; choose another scheme, such "
            "as 'fl-std'"
        )


def _check_label_kind(experiment: Experiment, dataset: Dataset) -> None:
    """Raise if something is asked for that only classes have."""
    wanted, kind = experiment.model.label_kind, dataset.target.kind
    if wanted != kind:
        raise InputError(f"[model] task = {experiment.model.task!r} does not fit the labels of {dataset.name}")
    if kind == "class":
        return
    table, task = experiment.data, f"[model] task = {experiment.model.task!r}"
    if experiment.threat is not None:
        raise InputError(f"[threat] is measured by classes, and {task} has none; remove one of them")
    if table.partition in ("dirichlet", "hospitals") or (table.partition == "shards" and kind == "answers"):
        raise InputError(f'[data] partition = "{table.partition}" deals by class, and {task} has none; use "iid"')
    if experiment.client.balanced:
        raise InputError(f"[client] balanced is about classes, and {task} has none; remove it")


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
        f"each number, the categories of each word and the {_LABELS[dataset.target.kind]}, or set [privacy] "
        "unsafe_preprocessing = true"
    )


_LABELS: Final = {"class": "classes", "number": "range of the label ([label] minimum, maximum)", "answers": "answers"}


def _boundary(experiment: Experiment) -> Boundary:
    private = experiment.privacy
    return Boundary(private is not None, private is not None and private.unsafe_test)


def _tested(experiment: Experiment, dataset: Dataset) -> Dataset:
    """Return the data set with its test records, which know whose they are; raise if a run may not measure on them."""
    table, boundary = experiment.data, _boundary(experiment)
    if table.test is not None and not dataset.placeholder:  # between machines only the server reads it
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
    groups = None
    if dataset.preprocessing is not None and is_table(source):
        other = read_like(dataset, source, folder, experiment.data.decimal, experiment.data.subgroup)
        groups = other.subgroups
        x, y = other.x_test, other.y_test
        if whose is None and dataset.owners & other.owners:
            whose = Owned("clients: somebody owns train and test records")
    else:
        x, labels = read_records(Path(folder or "") / Path(source).expanduser(), dataset.target.kind)
        if labels is None:
            raise InputError(f"[data] test = {source!r} has no labels; it needs an array y beside x")
        y = dataset.target.stored(labels)
    return replace(
        dataset,
        x_test=x,
        y_test=y,
        test_data=f"{len(y)} records of {Path(source).name}",
        test_from=whose,
        properties={},
        subgroups=groups,
        sites=None,
    )


def _public(experiment: Experiment, dataset: Dataset, whole: Dataset, streams: Streams) -> tuple[Dataset, Dataset]:
    """Return the private data and the public slice; the slice is cut off unless another data set gives it.

    Guarantee: in a private run none of the records that another data set gives is among `whole`, all of the clients'.
    """
    table = experiment.scheme
    if cuts_public(experiment):
        return dataset.split(table.public_samples, streams.get(Purpose.SPLIT, 1))
    public = load_public(str(table.public), experiment, dataset, table.public_samples + 1)
    if public.target.kind != dataset.target.kind:
        raise InputError(f"[scheme] public = {table.public!r} has other labels than {experiment.data.source!r}")
    if public.shape != dataset.shape or public.classes > dataset.classes:
        raise InputError(
            f"[scheme] public = {table.public!r} has records of shape {public.shape} and {public.classes} classes, "
            f"{experiment.data.source!r} has {dataset.shape} and {dataset.classes}; they must match"
        )
    check_no_client(experiment, "[scheme] public", str(table.public), public, whole)
    public = replace(public, input_scale=dataset.input_scale)
    _, chosen = public.split(min(table.public_samples, public.records - 1), streams.get(Purpose.SPLIT, 1))
    return dataset, chosen
