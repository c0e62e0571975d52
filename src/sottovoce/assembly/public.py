"""What may be called public: records that are the clients' neither by name, nor by file, nor one by one.

Everything that a run computes before round 1 without noise (coordinates, a clip norm, the numbers of a front, settings
that were tuned) is published, so it may depend on public records alone. Spelling decides nothing here.
"""

from __future__ import annotations

from pathlib import Path

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import DataError, InputError, PrivacyError
from sottovoce.data import LEAVES, Dataset, is_file, is_table, leaves, load, origin, read_like


def is_clients(source: str, experiment: Experiment) -> bool:
    """Tell whether a source is the clients' data, by name or by file; what was drawn from a seed is nobody's."""
    table = experiment.data
    return source != LEAVES and origin(source, table.folder).same_as(origin(table.source, table.folder))


def may_mix(experiment: Experiment) -> bool:
    """Tell whether a run may compute on the clients' records as if they were public: it is not private, or says so."""
    return experiment.privacy is None or experiment.privacy.unsafe_public


def cuts_public(experiment: Experiment) -> bool:
    """Tell whether public records are a slice of the clients' own; raise if the run is private and may not have it."""
    table, private = experiment.scheme, experiment.privacy
    if table.public is not None and not is_clients(table.public, experiment):
        return False
    if private is not None and not may_mix(experiment):
        wanted = f"[scheme] name = {table.name!r}" if private.clipping != "public" else '"public" clipping'
        raise PrivacyError(
            f"{wanted} needs public data, and a slice of the clients' own records is not public: epsilon would not "
            "cover it; name a data set in [scheme] public, let the clients vote ([privacy] vote_noise_multiplier), "
            "or set [privacy] unsafe_public = true"
        )
    return True


def load_public(source: str, experiment: Experiment, dataset: Dataset, records: int, seed: int = 1) -> Dataset:
    """Load public data; leaves are drawn in the shape of the clients' records, a table is treated as theirs was."""
    if source == LEAVES:
        if len(dataset.shape) != 3:
            raise InputError(
                f"{LEAVES!r} are images, but the records of {dataset.name!r} have shape {dataset.shape}; name a data "
                "set of such records"
            )
        return leaves(dataset.shape, dataset.classes, records=records, seed=seed, input_scale=dataset.input_scale)
    if dataset.preprocessing is None or not is_table(source):
        return load(source, folder=experiment.data.folder)
    return read_like(dataset, source, experiment.data.folder)


def check_no_client(experiment: Experiment, key: str, source: str, public: Dataset, clients: Dataset) -> None:
    """Raise if records that a private run calls public are records of its clients, in whatever file they lie."""
    if may_mix(experiment) or source == LEAVES:
        return
    shared, found = len(clients.owners & public.owners), clients.overlap(public)
    if shared or found:
        what = (
            f"{found} of its {public.records} records are" if found else f"{shared} of its owners are clients, so it is"
        )
        raise PrivacyError(
            f"{key} = {source!r} is not public: {what} the clients' own "
            f"([data] source = {experiment.data.source!r}), and epsilon would not cover what they tell; name other "
            "data, or set [privacy] unsafe_public = true"
        )


def check_projection(experiment: Experiment) -> None:
    """Raise if the front of a private run would be fitted on the clients' own records."""
    source = experiment.model.projection.source or LEAVES
    if not may_mix(experiment) and is_clients(source, experiment):
        raise PrivacyError(
            f"[model] projection.source = {source!r} is the clients' own data, which is not public: epsilon would not "
            f"cover it; name another data set or {LEAVES!r}, or set [privacy] unsafe_public = true"
        )


def check_chosen(experiment: Experiment, clients: Dataset) -> None:
    """Raise if the settings of a private run were tuned on the clients' records; data that is not here is not seen."""
    source = experiment.experiment.chosen_on
    if source is None or may_mix(experiment) or clients.placeholder:
        return
    key = "[experiment] chosen_on"
    place = str(Path(source).expanduser().absolute()) if is_file(source) else source  # `tune` means a path from here
    if is_clients(place, experiment):
        raise PrivacyError(
            f"{key} = {source!r} is the clients' own data: epsilon does not cover what was chosen on it; choose "
            "settings on public data (sottovoce tune --on), or set [privacy] unsafe_public = true"
        )
    if not is_file(source) and not is_file(experiment.data.source, experiment.data.folder):
        return  # two known sets of different names
    try:
        found = load_public(place, experiment, clients, 1)
    except DataError:
        return
    check_no_client(experiment, key, source, found, clients)
