"""Public records in the place of the clients': as many clients, cohorts and records per client as in the file.

Nothing of the file's own data is read. What must be known of it (shape, classes, number of records) is what the
catalogue publishes, or what the caller says.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator

from sottovoce.assembly.parts import table_keys
from sottovoce.assembly.public import is_clients
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.provenance import Public
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.data import Dataset, Description, Origin, describe, is_file, is_table, load, origin

_SCORE, _ASIDE, _DEAL, _SLICE = 20, 21, 22, 23  # streams of our own: a run draws from 0 and 1
_SCORED: Final = 10_000  # at most so many records score a setting
_SHARE: Final = 6  # and at most one in so many


@dataclass(frozen=True, eq=False)
class Proxy:
    """Public data that plays the clients' part, and the sentences that say how.

    The test records of `dataset` are train records of the public data that no client holds; the public data's own test
    records are not used.
    """

    source: str  # as it is named in the cells' files
    origin: Origin
    private: Origin
    dataset: Dataset
    aside: Dataset | None  # for `[scheme] public`, where that is the same public data
    partition: str
    notes: tuple[str, ...]

    @property
    def scored(self) -> int:
        """Count the records that score a setting."""
        return len(self.dataset.y_test)

    def public_slice(self, count: int, seed: int) -> Dataset | None:
        """Return so many of the records that were set aside; None if there are none."""
        if self.aside is None or count >= self.aside.records:
            return self.aside
        return self.aside.split(count, Seeds(seed).world.get(Purpose.SPLIT, _SLICE))[1]

    def fingerprint(self) -> str:
        """Return a digest of all records, to see whether a folder of runs was made with the same."""
        digest = hashlib.sha256()
        for part in (self.dataset, *(() if self.aside is None else (self.aside,))):
            for array in (part.x_train, part.y_train, part.x_test, part.y_test):
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def clients_origin(experiment: Experiment) -> Origin:
    """Return where the clients' data lies, which is to stay closed."""
    return origin(experiment.data.source, experiment.data.folder)


def public_origin(experiment: Experiment, source: str) -> Origin:
    """Return where the public data lies; a path is meant from here, a known set may lie in the file's folder.

    Guarantee: the clients' own data is refused, by name and by file.
    """
    private, found = clients_origin(experiment), origin(source, _folder(experiment, source))
    if found.same_as(private):
        raise PrivacyError(
            f"{source!r} is the data of the clients ([data] source = {experiment.data.source!r}): tuning on the "
            "clients' data is not covered by epsilon; give --on a public data set"
        )
    return found


def make_proxy(
    experiment: Experiment, source: str, *, aside: int = 0, records: int | None = None, seed: int = 1
) -> Proxy:
    """Load the public data and cut it: records that score, `aside` records for `[scheme] public`, the rest to deal.

    `records` is the number of train records of the clients' data, if the catalogue does not know it.
    """
    found, private = public_origin(experiment, source), clients_origin(experiment)
    streams = Seeds(seed).world
    public, notes = _load(experiment, source)
    known = _described(experiment)
    public = _fitted(public, source, experiment, known, notes)
    whole = public.records
    rest, scoring = public.split(max(1, min(_SCORED, whole // _SHARE)), streams.get(Purpose.SPLIT, _SCORE))
    cut = None
    if aside:
        rest, cut = rest.split(max(1, min(aside, rest.records // 2)), streams.get(Purpose.SPLIT, _ASIDE))
        notes.append(
            f"[scheme] public is {source!r} too: {cut.records} of its records are set aside for it; they fit the "
            "records that are tuned on better than they will fit the clients'"
        )
    kind = _partition(experiment, rest, source, notes)
    wanted = _wanted(experiment, known, records, rest.records, notes)
    dealt = rest if kind == "by-id" else _resized(rest, wanted, kind, streams.get(Purpose.SPLIT, _DEAL))
    notes.insert(0, _told(source, whole, scoring, cut, rest, dealt, kind, experiment))
    how = f"{scoring.records} train records of {source} that no client holds (tuning; its test records are not used)"
    dataset = replace(dealt, x_test=scoring.x_train, y_test=scoring.y_train, test_data=how, test_from=Public(source))
    return Proxy(_name(found), found, private, dataset, cut, kind, tuple(notes))


def _folder(experiment: Experiment, source: str) -> str | None:
    folder = experiment.data.folder
    return None if folder is None or is_file(source) or not Path(folder).expanduser().is_dir() else folder


def _name(found: Origin) -> str:
    return found.source if found.name is not None else str(found.files[0].absolute())


def _load(experiment: Experiment, source: str) -> tuple[Dataset, list[str]]:
    """Load the public data; a table is read by the file's own label and schema."""
    table = experiment.data
    if not is_table(source):
        return load(source, _folder(experiment, source)), []
    schema = None if table.schema is None else str(Path(table.folder or "") / Path(table.schema).expanduser())
    keys = replace(table_keys(experiment), schema=schema, aside="fifth", decimal=None)
    notes = [] if schema else [f"there is no [data] schema: {source!r} is scaled by its own records"]
    return load(source, table=keys), notes


def _described(experiment: Experiment) -> Description | None:
    """Return what the catalogue says about the clients' data; None of a user's own file."""
    folder = experiment.data.folder
    known = describe(folder if folder is not None and Path(folder).expanduser().is_dir() else None)
    return next((entry for entry in known if entry.name == experiment.data.source), None)


def _fitted(
    public: Dataset, source: str, experiment: Experiment, known: Description | None, notes: list[str]
) -> Dataset:
    """Return the public data with the classes of the clients'; refuse records of another shape."""
    mine = experiment.data.source
    declared = experiment.data.classes
    if known is None and declared is not None:
        if public.classes > declared:
            raise InputError(
                f"{source!r} has {public.classes} classes, but [data] classes is {declared}; give --on another data set"
            )
        public = replace(public, classes=declared, class_names=None, fitted={})
    if known is None:
        if not (is_table(mine) and experiment.data.schema is not None):
            notes.append(f"whether {mine!r} has records of shape {public.shape} is not checked: it is not opened")
        return public
    if public.shape != known.shape or public.classes > known.classes:
        raise InputError(
            f"{source!r} has records of shape {public.shape} and {public.classes} classes, {mine!r} has {known.shape} "
            f"and {known.classes}; they must match: give --on another data set"
        )
    if public.classes < known.classes:  # the network must be the same
        notes.append(f"{source!r} has {public.classes} of the {known.classes} classes of {mine!r}")
        return replace(public, classes=known.classes, class_names=None)
    return public


def _partition(experiment: Experiment, rest: Dataset, source: str, notes: list[str]) -> str:
    table = experiment.data
    if table.partition != "by-id":
        return table.partition
    owners = 0 if rest.ids is None else len(np.unique(rest.ids))
    if owners >= table.clients:
        notes.append(f"each owner in {source!r} is one client, with the records that it has there")
        return "by-id"
    told = f"names {owners} owners" if owners else "does not say who owns which record"
    notes.append(f'{source!r} {told}: partition = "iid" takes the place of "by-id"')
    return "iid"


def _wanted(experiment: Experiment, known: Description | None, records: int | None, have: int, notes: list[str]) -> int:
    """Return how many records are to be dealt, so that each client has as many as in the file."""
    table = experiment.data
    if records is not None:
        return records
    if known is not None:
        return known.train
    if table.records_per_client is not None:
        return math.ceil(table.clients * table.records_per_client / (1 - table.held_out)) + _sliced(experiment)
    if have < table.clients:
        raise InputError(
            f"how many records {table.source!r} has is not known without opening it, and the {have} public records are "
            f"too few for {table.clients} clients; say it with --records"
        )
    notes.append(
        f"how many records {table.source!r} has is not known without opening it, so records per client are those of "
        "the public data; say it with --records"
    )
    return have


def _sliced(experiment: Experiment) -> int:
    """Return how many of its own records the file's run would set aside as public ones."""
    table, privacy = experiment.scheme, experiment.privacy
    if privacy is not None and privacy.vote_noise_multiplier is not None:
        return 0
    needed = experiment.make_scheme().needs_importance or (privacy is not None and privacy.clipping == "public")
    own = table.public is None or is_clients(table.public, experiment)
    return table.public_samples if needed and own else 0


def _resized(rest: Dataset, count: int, kind: str, rng: Generator) -> Dataset:
    """Return `count` records: a random part, or all of them several times if there are too few.

    Virtual clients draw from all records anyway, so none is repeated for them.
    """
    if count == rest.records or (kind == "virtual" and count > rest.records):
        return rest
    if count < rest.records:
        return rest.split(count, rng)[1]
    more = rng.choice(rest.records, count % rest.records, replace=False, shuffle=False)
    places = np.concatenate([np.tile(np.arange(rest.records), count // rest.records), more])
    return replace(
        rest,
        x_train=rest.x_train[places],
        y_train=rest.y_train[places],
        ids=None if rest.ids is None else rest.ids[places],
        persons=None if rest.persons is None else rest.persons[places],
    )


def _told(
    source: str,
    whole: int,
    scoring: Dataset,
    cut: Dataset | None,
    rest: Dataset,
    dealt: Dataset,
    kind: str,
    experiment: Experiment,
) -> str:
    clients, rate = experiment.data.clients, experiment.cohort.sample_rate
    aside = "" if cut is None else f", {cut.records} are set aside"
    copies = dealt.records - rest.records
    told = f"{dealt.records} of the other {rest.records}" if copies < 0 else f"the other {rest.records}"
    more = f", with {copies} copies of some," if copies > 0 else ""
    each = "" if kind == "virtual" else f", {dealt.records / clients:.4g} each"
    return (
        f"{source!r} has {whole} train records: {scoring.records} score{aside}, {told} are dealt{more} to {clients} "
        f"clients{each}; clients, sample_rate {rate} and so the cohort of {float(clients * rate):g} are the file's"
    )
