"""Gather the parts of an experiment whose records only the nodes hold: for the server, and for each node itself.

Nothing of anybody's records is read. The shape comes from `[data] shape`, `classes` and `scale`, or from what is known
of a data set by its name.
"""

from __future__ import annotations

from dataclasses import replace

from sottovoce.core.errors import InputError
from sottovoce.core.provenance import Public
from sottovoce.data import Dataset, is_file, load, outline
from sottovoce.data.elsewhere import Elsewhere, records_elsewhere
from sottovoce.data.partition import PAPER_SIZE
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.data_table import DataTable
from sottovoce.experiment.given import Given
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.public import is_clients

__all__ = ["check_deployable", "gather_without_records"]


def gather_without_records(experiment: Experiment, *, server: bool = False, front: bytes = b"") -> Parts:
    """Return the parts without anybody's records; with `server`, test and public records of the server's own.

    Server and nodes get the same network, cohort and scheme, and so the same privacy plan. The server fits the front,
    or takes its numbers from `front`; a node gets them with the set-up (`deployed.heard`).
    """
    check_deployable(experiment)
    dataset = _shaped(experiment.data)
    owners = Elsewhere(experiment.data.clients, _mean_records(experiment, dataset))
    public = None
    if server and experiment.evaluation == "server":
        dataset = _with_test_records(experiment.data, dataset)
    if not server:
        public = dataset  # the server alone reads public records: what it chose by them comes in the set-up
    parts = gather(experiment, Given(dataset=dataset, partition=owners, public=public), front if server else None)
    if parts.weighted and experiment.data.mean_records is None and experiment.data.shape is not None:
        raise InputError(
            "[data] mean_records is missing, and clients count by their records; set it if it is public, or "
            '[aggregation] weighting = "equal"'
        )
    return parts


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
    refused[
        f'[aggregation] secure = "{experiment.secure}" is not played between machines, where somebody would see single '
        'messages; set secure = "real" or "ballot"'
    ] = experiment.secure in ("ideal", "ideal-ballot")  # a private run refuses "none" everywhere
    if private is not None:
        refused |= {
            f'[privacy] clipping = "{private.clipping}" measures clip_norm before the plan is solved, and every node '
            'solves it from the file alone; set clipping = "fixed" with clip_norm, or "adaptive"': private.clipping
            in ("public", "private"),
        }
    for sentence, true in refused.items():
        if true:
            raise InputError(sentence)


def _shaped(table: DataTable) -> Dataset:
    if table.shape is not None and table.classes is not None:
        return records_elsewhere(table.shape, table.classes, table.scale or 1.0)
    known = outline(table.source, table.folder)
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


def _with_test_records(table: DataTable, dataset: Dataset) -> Dataset:
    """Return the data set with test records that the server has itself."""
    own = load(table.source, folder=table.folder, classes=table.classes if is_file(table.source) else None)
    if own.shape != dataset.shape or own.classes != dataset.classes:
        raise InputError(
            f"the server's own test records ([data] source = {table.source!r}) have shape {list(own.shape)} and "
            f"{own.classes} classes, but those of the nodes have {list(dataset.shape)} and {dataset.classes}; name "
            'others in source, or set [experiment] evaluation = "none"'
        )
    # Nobody can compare them with the clients', whose records never come here.
    mine = own.test_from if isinstance(own.test_from, Public) else Public("the server's own test records")
    return replace(dataset, x_test=own.x_test, y_test=own.y_test, test_data=own.test_data, test_from=mine)
