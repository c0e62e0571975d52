"""Gather the parts of a run of statistics: coded records in place of features, a survey in place of a scheme.

What is asked follows from the experiment file and its schema alone, so that server and nodes have the same survey.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import Parts
from sottovoce.config.experiment import Experiment
from sottovoce.config.statistics import StatisticsTable
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.data import Dataset, Partition, Shards, partition, read_tables, table_files
from sottovoce.data.coded import code_table, declared_columns
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.files import read_npz
from sottovoce.data.persons import persons_at, with_rows_kept
from sottovoce.data.placeholder import Elsewhere, records_elsewhere
from sottovoce.data.preprocessing import column_of
from sottovoce.data.raw import WIDTH, code_raw
from sottovoce.data.schema import MISSING_VALUES, Schema, read_schema
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.stages.discovery import Discovery
from sottovoce.federation.stages.survey import Survey, make_survey
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models import Shard
from sottovoce.models.nothing import NoModel

MOST_COLUMNS: Final = 40  # of a schema that is learnt: each has a quarter of a million cells


def survey_of(experiment: Experiment, header: Sequence[str] = ()) -> Survey | Discovery:
    """Return what a run asks, by its file and its schema; raise if something is not declared.

    A run that learns a schema takes its columns from the file, or all of the tables' header.
    """
    table, data = _table(experiment), experiment.data
    if table.learn:
        names = table.columns or [name for name in header if name not in (data.person, data.id)]
        if not names:
            raise InputError("[statistics] columns is empty: between machines, name the columns to learn")
        if len(names) > MOST_COLUMNS:
            raise InputError(f"{len(names)} columns are too many to learn at once; name at most {MOST_COLUMNS}")
        return Discovery(tuple(names))
    wanted = [*table.columns, *(name for name in table.by if name not in table.columns)] if table.columns else []
    unsafe = experiment.privacy is not None and experiment.privacy.unsafe_preprocessing
    if isinstance(data.label, list):
        raise InputError("[data] label lists columns, and statistics know one; name one, or none")
    columns = declared_columns(schema_of(experiment), data.label, wanted, unsafe=unsafe)
    names = [column.name for column in columns]
    for name in table.by:
        if name not in names:
            raise InputError(f"[statistics] by: the schema does not declare column {name!r}; it has {', '.join(names)}")
    return make_survey(columns, table.columns, table.by, table.what, table.bins)


def schema_of(experiment: Experiment) -> Schema:
    """Read the schema of a run."""
    data = experiment.data
    return read_schema(Path(data.folder or "") / Path(data.schema or "").expanduser())


def gather_statistics(experiment: Experiment) -> Parts:
    """Read the tables of all sites, and return the parts of a simulated run of statistics."""
    data = experiment.data
    table = read_tables(table_files(data.source, data.folder), data.decimal)
    survey = survey_of(experiment, list(table.columns))
    dataset = _coded(experiment, survey, table)
    owners = _owners(experiment, dataset, table)
    if dataset.persons is not None and experiment.privacy is not None:  # as a node does
        owners = with_rows_kept(owners, dataset.persons, experiment.privacy.max_rows)
    experiment = _counted(experiment, dataset, owners, table)
    return _parts(experiment, survey, dataset, owners, Parties.simulated(experiment.experiment.seed, owners.clients))


def _owners(experiment: Experiment, dataset: Dataset, table: CsvTable) -> Partition:
    """Return whose each record is: sites in the order of their files, or as `[data]` divides a single table."""
    data = experiment.data
    if table.parts and data.id is None and data.partition == "by-id":
        return Shards(np.arange(table.records), np.cumsum([0, *(part.records for part in table.parts)]))
    return partition(
        "by-id" if dataset.persons is not None and data.partition == "iid" else data.partition,
        dataset.y_train,
        data.clients,
        Seeds(experiment.experiment.seed).world,
        concentration=data.concentration,
        shards_per_client=data.shards_per_client,
        records_per_client=data.records_per_client,
        pools=data.pools,
        ids=dataset.persons if dataset.persons is not None and data.partition == "iid" else dataset.ids,
    )


def gather_statistics_elsewhere(experiment: Experiment, parties: Parties | None) -> Parts:
    """Return the parts of a run of statistics whose records only nodes hold."""
    survey, clients = survey_of(experiment), experiment.data.clients
    units = None if experiment.privacy is None else experiment.privacy.units
    if not isinstance(units, list) or len(units) != clients:
        raise InputError(
            "[privacy] units must list how many units each site holds, which is public: between machines nobody counts "
            f"them; got {units!r} for {clients} sites"
        )
    dataset = records_elsewhere((_width(survey),), 2, 1.0)
    seeded = parties or Parties.simulated(experiment.experiment.seed, clients)
    return _parts(experiment, survey, dataset, Elsewhere(clients, sum(units) / clients), seeded)


def own_codes(experiment: Experiment, source: str) -> Shard:
    """Read the records of a node for a run of statistics: a table, or codes that a trial on one machine dealt out."""
    survey = survey_of(experiment)
    if source.endswith(".npz"):
        arrays = read_npz(Path(source), ("x", "y"), ("persons",))
        if arrays["x"].ndim != 2 or arrays["x"].shape[1] != _width(survey):
            raise InputError(f"{source} holds no codes of this survey; a node of statistics reads a table (.csv)")
        return Shard(arrays["x"], arrays["y"], persons=arrays.get("persons"))
    dataset = _coded(experiment, survey, read_tables(table_files(source), experiment.data.decimal))
    return Shard(dataset.x_train, dataset.y_train, persons=dataset.persons)


def _parts(
    experiment: Experiment, survey: Survey | Discovery, dataset: Dataset, owners: Partition, parties: Parties
) -> Parts:
    digest = hashlib.sha256(repr(survey).encode()).digest()
    return Parts(
        experiment=experiment,
        dataset=dataset,
        splits={},
        network=NoModel(survey.length, _width(survey), digest),
        partition=owners,
        cohort=Cohort(clients=owners.clients, sample_rate=Fraction(1)),
        scheme=SurveyTally(survey=survey),
        parties=parties,
    )


def _coded(experiment: Experiment, survey: Survey | Discovery, table: CsvTable) -> Dataset:
    """Return the codes of all records; they have no classes."""
    data = experiment.data
    codes: NDArray[Any]
    if isinstance(survey, Discovery):
        codes = code_raw(table, survey.names, frozenset(MISSING_VALUES))
    else:
        codes = code_table(table, survey.columns, frozenset(schema_of(experiment).missing_values))
    nothing = np.zeros(table.records, np.int64)
    made = Dataset(
        name=Path(table.name).name.split(".")[0],
        x_train=codes,
        y_train=nothing,
        x_test=codes[:1],
        y_test=nothing[:1],
        classes=2,
        ids=_sites(table, data.id),
        persons=_numbered(table, data.person) if experiment.protects_persons and data.person else None,
    )
    return made.untested()


def _width(survey: Survey | Discovery) -> int:
    """Return the number of values of a coded record."""
    return WIDTH * len(survey.names) if isinstance(survey, Discovery) else len(survey.columns)


def _sites(table: CsvTable, owner: str | None) -> NDArray[np.int64] | None:
    if owner is not None:
        return _numbered(table, owner)
    if not table.parts:
        return None
    return np.repeat(np.arange(len(table.parts)), [part.records for part in table.parts])


def _numbered(table: CsvTable, name: str) -> NDArray[np.int64]:
    """Return a number for each different word of a column; none may be missing."""
    numbers: dict[str, int] = {}
    coded = np.empty(table.records, np.int64)
    for row, cell in enumerate(column_of(table, name)):
        if not cell:
            raise InputError(f"{table.place(row)}: column {name!r} is missing; it says whose a record is")
        coded[row] = numbers.setdefault(cell, len(numbers))
    return coded


def _counted(experiment: Experiment, dataset: Dataset, owners: Partition, table: CsvTable) -> Experiment:
    """Return the experiment with its number of units, which is public; refuse a site that holds too few."""
    private = experiment.privacy
    if private is None:
        raise InputError("statistics need [privacy]")
    persons, sites = dataset.persons, range(owners.clients)
    counts = [owners.size(site) for site in sites] if persons is None else persons_at(owners, persons)
    for site, count in enumerate(counts):
        if count < private.min_units:
            name = f"{table.parts[site].name}" if owners.clients == len(table.parts) else f"site {site}"
            raise InputError(
                f"[privacy] min_units is {private.min_units}, but {name} holds {count} {private.unit}s; leave it out, "
                "join it with another site, or lower min_units"
            )
    told, units = private.units, sum(counts)
    if told is not None and told != (counts if isinstance(told, list) else units):
        raise InputError(f"[privacy] units is {told}, but the sites hold {counts} {private.unit}s; correct it")
    kept = told if isinstance(told, list) else units
    return experiment.model_copy(update={"privacy": private.model_copy(update={"units": kept})})


def _table(experiment: Experiment) -> StatisticsTable:
    if experiment.statistics is None:
        raise InputError("the experiment file has no [statistics] table; add one")
    return experiment.statistics
