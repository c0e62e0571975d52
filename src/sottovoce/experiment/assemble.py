"""Load the data of an experiment and check that all its parts fit, before anything is computed or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.data import Dataset, load, partition
from sottovoce.experiment.build import Assembly
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.given import NOTHING, Given
from sottovoce.experiment.measure import MEASURED
from sottovoce.experiment.tables import Aggregation
from sottovoce.federation.cohort import Cohort
from sottovoce.models import network
from sottovoce.schemes import Scheme
from sottovoce.secagg import check_threshold
from sottovoce.secagg.graph import choose

__all__ = ["assemble"]


def assemble(experiment: Experiment, given: Given = NOTHING) -> Assembly:
    """Load the data and check that all parts fit; parts that are given take the place of those in the tables."""
    seeds = Seeds(experiment.experiment.seed)
    streams = seeds.world
    table = experiment.data
    scheme = _scheme(experiment, given)
    dataset = load(table.source, folder=table.folder) if given.dataset is None else given.dataset
    records = dataset.records
    splits: dict[str, Dataset] = {}
    if table.held_out:
        dataset, splits["held_out"] = dataset.split(table.held_out, streams.get(Purpose.SPLIT, 0))
    clipping = None if experiment.privacy is None else experiment.privacy.clipping
    voted = experiment.privacy is not None and experiment.privacy.vote_noise_multiplier is not None
    if (scheme.needs_importance and not voted) or clipping == "public":
        dataset, splits["public"] = _public(experiment, dataset, streams)
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
        ids=dataset.ids,
    )
    cohort = Cohort(
        clients=owners.clients,
        sample_rate=experiment.cohort.sample_rate,
        sampling=experiment.cohort.sampling,
        cap=experiment.cohort.cap,
    )
    net = given.network or network(
        experiment.model.name,
        dataset.shape,
        dataset.classes,
        input_scale=dataset.input_scale,
        hidden=experiment.model.hidden,
    )
    if given.network is not None and (net.input_shape, net.classes) != (dataset.shape, dataset.classes):
        raise InputError(
            f"the given network reads records of shape {net.input_shape} in {net.classes} classes, but the data has "
            f"{dataset.shape} and {dataset.classes}"
        )
    scheme.bind(net.dim)  # refuses a ratio or a chunking that does not fit this model
    assembly = Assembly(experiment, dataset, splits, net, owners, cohort, scheme, seeds)
    # Refuse a budget, a threshold or a graph that cannot be kept.
    plan = assembly.plan(1.0 if clipping in MEASURED else None)
    if experiment.secure == "real":
        if plan is not None and plan.shares.floor < 2:
            raise PrivacyError(
                '[aggregation] secure = "real" cannot mask a cohort of one client, and to send such cohorts home costs '
                f"more than half of delta {plan.request.delta:g} with {cohort.expected:g} clients a round; "
                "raise sample_rate or delta"
            )
        _check_sessions(experiment.aggregation, cohort, assembly.fewest(plan))
    return assembly


def _scheme(experiment: Experiment, given: Given) -> Scheme:
    if given.scheme is None:
        return experiment.make_scheme()
    try:
        experiment.check_scheme(given.scheme)  # as the tables check the one that they name
    except ValueError as error:
        raise InputError(f"the given scheme: {error}") from None
    return given.scheme


def _check_sessions(table: Aggregation, cohort: Cohort, fewest: Callable[[int], int]) -> None:
    """Raise if the cohort that is expected, or the largest that may be drawn, could not sum securely."""
    if cohort.expected < 2:
        raise InputError(
            f'[aggregation] secure = "real" needs 2 clients a round, but {cohort.expected:g} are expected; raise '
            "[cohort] sample_rate"
        )
    for clients in (int(cohort.expected), cohort.most):
        try:
            check_threshold(fewest(clients), clients, table.colluders)
            colluders = max(table.colluders, int(table.graph_colluders * clients))
            degree = choose(clients, fewest(clients), colluders, table.neighbours)
        except InputError as error:
            raise InputError(f"[aggregation] {error}") from None
        if table.key_life == "session" and degree.neighbours < clients - 1:
            raise InputError(
                f'[aggregation] key_life = "session" needs everyone to mask with everyone, but of {clients} clients '
                f"each has {degree.neighbours} neighbours; set neighbours = {clients - 1}"
            )


def _public(experiment: Experiment, dataset: Dataset, streams: Streams) -> tuple[Dataset, Dataset]:
    """Return the private data and the public slice; the slice is cut off unless another data set gives it."""
    table = experiment.scheme
    if table.public is None or table.public == experiment.data.source:
        if experiment.privacy is not None and not experiment.privacy.unsafe_public:
            wanted = (
                f"[scheme] name = {table.name!r}" if experiment.privacy.clipping != "public" else '"public" clipping'
            )
            raise PrivacyError(
                f"{wanted} needs public data, and a slice of the clients' own records is not public: epsilon would not "
                "cover it; name a data set in [scheme] public, let the clients vote ([privacy] vote_noise_multiplier), "
                "or set [privacy] unsafe_public = true"
            )
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
