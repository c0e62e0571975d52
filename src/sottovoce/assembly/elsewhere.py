"""Gather the parts of an experiment whose records only the nodes hold: for the server, and for each node itself.

Nothing of anybody's records is read. The shape comes from `[data] shape`, `classes` and `scale`, from the schema of a
table, or from what is known of a data set by its name.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import Parts, gather, table_keys
from sottovoce.assembly.public import is_clients
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.provenance import OF_CLIENTS, Owned, Public
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.core.target import Target
from sottovoce.data import Dataset, balance, is_file, is_table, load, outline, read_like
from sottovoce.data.partition import PAPER_SIZE
from sottovoce.data.persons import rows_kept
from sottovoce.data.placeholder import Elsewhere, outline_table, records_elsewhere
from sottovoce.federation.stages.local_evaluation import LocalSplit, split_shard
from sottovoce.models import Shard


def gather_for_server(experiment: Experiment, parties: Parties, front: bytes = b"") -> Parts:
    """Return the parts of a run between machines as its server has them.

    `front` are the numbers of a front that the run folder keeps.
    """
    clients = experiment.data.clients
    if sorted(parties.keys) != list(range(clients)):
        raise InputError(
            f"[data] clients = {clients}, but the roster has {len(parties.keys)} clients; they are numbered from 0 and "
            "must be the same"
        )
    if experiment.protocol.needs_helper and parties.link is None:
        raise InputError(
            '[aggregation] secure = "ballot" needs a helper, and none is named; set [aggregation] helper = "host:port" '
            "for sottovoce serve"
        )
    if parties.owners.seed != experiment.experiment.seed:
        raise InputError(
            f"the public seed of the run is {parties.owners.seed}, but [experiment] seed is "
            f"{experiment.experiment.seed}; they must be the same"
        )
    return gather_without_records(experiment, parties, server=True, front=front)


def gather_without_records(
    experiment: Experiment, parties: Parties | None = None, *, server: bool = False, front: bytes = b""
) -> Parts:
    """Return the parts without anybody's records; with `server`, test and public records of the server's own.

    Server and nodes get the same network, cohort and scheme, and so the same privacy plan. The server fits the front,
    or takes its numbers from `front`; a node gets them with the set-up (`Stage.heard`).
    """
    check_deployable(experiment)
    if experiment.statistics is not None:
        from sottovoce.assembly.statistics import gather_statistics_elsewhere

        return gather_statistics_elsewhere(experiment, parties)
    dataset = shape_of(experiment)
    owners = Elsewhere(experiment.data.clients, _mean_records(experiment, dataset))
    public = None
    if server and experiment.evaluation == "server":
        dataset = _with_test_records(experiment, dataset)
    if not server:
        public = dataset  # the server alone reads public records: what it chose by them comes in the set-up
    given = Given(dataset=dataset, partition=owners, public=public)
    parts = gather(experiment, given, front if server else None, parties)
    if parts.weighted and experiment.data.mean_records is None and experiment.data.shape is not None:
        raise InputError(
            "[data] mean_records is missing, and clients count by their records; set it if it is public, or "
            '[aggregation] weighting = "equal"'
        )
    return parts


def node_records(parts: Parts, number: int, owned: Shard) -> LocalSplit:
    """Return what a node trains with and what it keeps out, of all that it owns: balanced and divided as asked.

    Which records these are is no secret of the protocol's: it follows from the seed, so that a node that was started
    anew does not train with what it measured on before.
    """
    table, streams = parts.experiment.client, Seeds(parts.seeds.seed).client(number)
    owned = in_units(parts.experiment, owned)
    if table.sampled is not None:
        kept = balance(owned.y, streams.get(Purpose.SETUP), table.sampled)
        owned = Shard(owned.x[kept], owned.y[kept])
    if not table.held_out:
        return LocalSplit(owned, Shard(owned.x[:0], owned.y[:0]))
    return split_shard(owned, table.held_out, streams.get(Purpose.SPLIT))


def in_units(experiment: Experiment, owned: Shard) -> Shard:
    """Return a node's records as the unit of privacy needs them: with persons, of whom some rows are left out."""
    table = experiment.privacy
    if table is None or not experiment.protects_persons:
        return owned._replace(persons=None)
    if owned.persons is None:
        raise InputError(
            '[privacy] unit = "person" protects all rows of a person, and these records do not say whose each is; give '
            "a table with [data] person, or an npz file with an array persons"
        )
    if len(np.unique(owned.persons)) == len(owned.persons):
        # No refusal: whether a site takes part must not depend on one person.
        logging.getLogger(__name__).warning(
            "[data] person is different in every row here; is it the column that repeats for one person?",
            extra=OF_CLIENTS,
        )
    kept = rows_kept(owned.persons, table.max_rows)
    return Shard(owned.x[kept], owned.y[kept], persons=owned.persons[kept])


def check_deployable(experiment: Experiment) -> None:
    """Raise if an experiment needs what only a simulation has: everybody's records, or a world that it makes up."""
    table, switches, private = experiment.client, experiment.switches, experiment.privacy
    alone = "in a deployed run; it is for simulations"
    refused = {
        f"[threat] cannot be played {alone}": experiment.threat is not None,
        f"[switches] cannot be played {alone}": switches is not None,
        f"[devices] profile, dropout and leave cannot be played {alone}": experiment.devices.profile is not None
        or bool(experiment.devices.dropout)
        or bool(experiment.devices.leave),
        f"[data] held_out sets training records aside, which nobody has {alone}": experiment.data.held_out > 0,
        f"[scheme] name = {experiment.scheme.name!r} needs every client in every round, which machines cannot promise; "
        "choose another": experiment.make_scheme().everyone,
        f"[data] augment cannot be played {alone}": experiment.data.augment > 1,
    }
    refused[
        '[client] held_out of nodes is measured by [experiment] evaluation = "federated" alone; set that, or remove '
        "held_out"
    ] = table.held_out > 0 and experiment.evaluation != "federated"
    refused[f"[client] personal_steps cannot be measured {alone}"] = table.personal_steps > 0
    public = experiment.scheme.public
    voted = private is not None and private.vote_noise_multiplier is not None
    if public is None or is_clients(public, experiment):
        refused[
            f"[scheme] name = {experiment.scheme.name!r} and [aggregation] defence = "
            f"{experiment.aggregation.defence!r} need public records, and nobody can set some of the clients' aside; "
            "name a data set in [scheme] public"
        ] = (experiment.make_scheme().needs_importance and not voted) or experiment.aggregation.defence == "fltrust"
    protocol = experiment.protocol
    refused[
        f'[aggregation] secure = "{experiment.secure}" is not played between machines, where somebody would see single '
        'messages; set secure = "real" or "ballot"'
    ] = protocol.hides_updates and not protocol.is_real()  # a private run refuses "none" everywhere
    if private is not None:
        refused |= {
            f'[privacy] clipping = "{private.clipping}" measures clip_norm before the plan is solved, and every node '
            'solves it from the file alone; set clipping = "fixed" with clip_norm, or "adaptive"': private.clipping
            in ("public", "private"),
        }
    for sentence, true in refused.items():
        if true:
            raise InputError(sentence)


def shape_of(experiment: Experiment) -> Dataset:
    """Return a data set of zeros in the shape of records that only nodes hold."""
    table, kind = experiment.data, experiment.model.label_kind
    if table.shape is not None and kind == "number":
        if table.label_range is None:
            raise InputError("[data] label_range is not set: a node scales its labels by their public range; set it")
        return records_elsewhere(table.shape, 1, table.scale or 1.0, Target.between(*table.label_range))
    if table.shape is not None and table.classes is not None:
        return records_elsewhere(table.shape, table.classes, table.scale or 1.0, Target(kind))
    known = outline(table.source, table.folder)
    if known is None and (table.schema is not None or is_table(table.source, table.folder)):
        return outline_table(table_keys(experiment), table.source, table.folder)
    if known is None:
        raise InputError(
            f"the shape of the records of {table.source!r} is not known without reading them; set [data] shape and "
            "classes"
        )
    return known


def _mean_records(experiment: Experiment, dataset: Dataset) -> float:
    """Return the public mean of the clients' records: as told, or as a data set of known size would be dealt out."""
    table = experiment.data
    if table.mean_records is not None or table.shape is not None:
        return table.mean_records or 1.0
    own = experiment.client.sampled is not None or experiment.client.held_out > 0
    if own and experiment.privacy is None and experiment.aggregation.weighting != "equal":
        raise InputError(
            "[client] balanced and held_out leave each client as many records as it knows alone; set [data] "
            'mean_records if the mean of what clients train with is public, or [aggregation] weighting = "equal"'
        )
    if table.records_per_client is not None:
        return table.records_per_client
    if table.partition == "virtual":
        return min(PAPER_SIZE, max(1, dataset.records // table.pools))
    return dataset.records / table.clients


def _with_test_records(experiment: Experiment, dataset: Dataset) -> Dataset:
    """Return the data set with test records that the server has itself."""
    table = experiment.data
    if dataset.preprocessing is not None:
        if table.test is None:
            raise InputError(
                f"the server has no records of {table.source!r}, which only sites hold; name a file of its own in "
                '[data] test, or set [experiment] evaluation = "none"'
            )
        read = read_like(dataset, table.test, table.folder, table.decimal, table.subgroup)
        theirs = is_clients(table.test, experiment)
        test = Owned("clients: it is their file") if theirs else Public("the server's own test records")
        told = f"{len(read.y_test)} records of {Path(table.test).name}"
        found = replace(dataset, x_test=read.x_test, y_test=read.y_test, test_data=told, test_from=test)
        return replace(found, subgroups=read.subgroups, sites=None)
    known = table.classes if is_file(table.source, table.folder) and dataset.target.kind == "class" else None
    asked = None if dataset.target.kind == "class" else table_keys(experiment)
    own = load(table.source, folder=table.folder, table=asked, classes=known)
    if own.shape != dataset.shape or own.classes != dataset.classes:
        raise InputError(
            f"the server's own test records ([data] source = {table.source!r}) have shape {list(own.shape)} and "
            f"{own.classes} classes, but those of the nodes have {list(dataset.shape)} and {dataset.classes}; name "
            'others in source, or set [experiment] evaluation = "none"'
        )
    # Nobody can compare them with the clients', whose records never come here.
    mine = own.test_from if isinstance(own.test_from, Public) else Public("the server's own test records")
    return replace(dataset, x_test=own.x_test, y_test=own.y_test, test_data=own.test_data, test_from=mine)
