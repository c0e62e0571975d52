"""Deal records to clients: each function returns the owner of every record, -1 for nobody."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

Owners = NDArray[np.int64]


def iid(count: int, clients: int, each: int | None, rng: Generator) -> Owners:
    """Give every client the same number of random records, or one more; exactly `each` if it is given."""
    if each is None:
        return rng.permutation(np.arange(count) % clients)
    in_range("records_per_client", each, low=1)
    if clients * each > count:
        raise InputError(
            f"{clients} clients of records_per_client = {each} need {clients * each} train records, there are {count}; "
            'ask for fewer or for partition = "virtual"'
        )
    places = np.arange(count)
    return rng.permutation(np.where(places < clients * each, places % clients, -1))


def dirichlet(labels: NDArray[Any], clients: int, concentration: float, rng: Generator) -> Owners:
    """Split each class among the clients by shares from a symmetric Dirichlet distribution."""
    in_range("concentration", concentration, low=1e-6, high=1e6)
    owners = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        ends = np.floor(np.cumsum(_shares(clients, concentration, rng)) * len(places) + 0.5).astype(np.int64)
        ends[-1] = len(places)
        owners[places] = np.repeat(np.arange(clients), np.diff(ends, prepend=0))
    return owners


def _shares(clients: int, concentration: float, rng: Generator) -> NDArray[np.float64]:
    """Draw from the Dirichlet distribution in logarithms: gamma variates of a tiny shape are all 0 in float64.

    If G has shape a + 1 and U is uniform, G * U^(1/a) has shape a.
    """
    logs = np.log(rng.standard_gamma(concentration + 1, clients)) + np.log1p(-rng.random(clients)) / concentration
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / shares.sum())


def label_shards(labels: NDArray[Any], clients: int, each: int, rng: Generator) -> Owners:
    """Sort the records by label, cut them into clients * each pieces and deal `each` pieces to every client."""
    in_range("shards_per_client", each, low=1)
    count, pieces = len(labels), clients * each
    if pieces > count:
        raise InputError(
            f"{clients} clients of shards_per_client = {each} need {pieces} train records, there are {count}; "
            "ask for fewer of either"
        )
    shuffled = rng.permutation(count)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    piece = np.repeat(np.arange(pieces), np.diff(np.arange(pieces + 1) * count // pieces))
    owners = np.empty(count, np.int64)
    owners[by_label] = rng.permutation(np.arange(pieces) % clients)[piece]
    return owners


def by_id(ids: NDArray[np.int64] | None, count: int, clients: int, rng: Generator) -> Owners:
    """Give every client whole owners, the same number of them or one more."""
    if ids is None:
        raise InputError(
            'partition = "by-id" needs a data set that knows its owners (lfw, diabetes130, or a file with ids)'
        )
    if len(ids) != count:
        raise InputError(f"{len(ids)} ids were given for {count} train records")
    people, numbers = np.unique(ids, return_inverse=True)
    if clients > len(people):
        raise InputError(
            f"clients must be at most the {len(people)} owners of the records, got {clients}; ask for fewer"
        )
    return np.asarray(rng.permutation(np.arange(len(people)) % clients)[numbers])


def hospitals(labels: NDArray[Any], clients: int, rng: Generator) -> Owners:
    """Deal the records of class 1 in turn, then the others, so that sizes differ by at most one."""
    positive = np.flatnonzero(labels == 1)
    if clients > len(positive):
        raise InputError(
            f"clients must be at most the {len(positive)} records of class 1, one for each hospital, got {clients}; "
            "ask for fewer"
        )
    others = np.flatnonzero(labels != 1)
    owners = np.empty(len(labels), np.int64)
    owners[np.concatenate([rng.permutation(positive), rng.permutation(others)])] = np.arange(len(labels)) % clients
    return owners


def gather(owners: Owners, clients: int, rng: Generator) -> tuple[Owners, Owners]:
    """Return the records in the order of their owners, and where each owner's begin; nobody stays empty.

    A client without records gets one from the client that has most at that moment.
    """
    held = rng.permutation(np.flatnonzero(owners >= 0))
    held = held[np.argsort(owners[held], kind="stable")]
    sizes = np.bincount(owners[held], minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        owners = owners.copy()
        ends = np.cumsum(sizes)
        richest = [(-int(size), client) for client, size in enumerate(sizes) if size > 1]
        heapq.heapify(richest)
        for poor in empty:
            size, rich = richest[0]
            ends[rich] -= 1
            owners[held[ends[rich]]] = poor
            heapq.heapreplace(richest, (size + 1, rich))
        held = held[np.argsort(owners[held], kind="stable")]
        sizes = np.bincount(owners[held], minlength=clients)
    return held, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
