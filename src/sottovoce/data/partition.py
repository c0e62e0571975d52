"""Divide the train records among the clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import in_range, one_of
from sottovoce.data import dealing
from sottovoce.data.hospital import DOWN, balanced_size

KINDS: Final = ("iid", "dirichlet", "shards", "by-id", "hospitals", "virtual")
_LOOKED_AT: Final = 10_000
PAPER_SIZE: Final = 10  # records a client has in the papers' image experiments

Records = NDArray[np.int64]


class Sizes(NamedTuple):
    """Numbers of records of the clients, summed up."""

    smallest: int
    median: float
    largest: int


class Partition(Protocol):
    """Division of the records among clients; no client is empty."""

    @property
    def clients(self) -> int:
        """Count the clients."""
        ...

    @property
    def total(self) -> int:
        """Count the records of all clients; a record that several clients hold counts for each."""
        ...

    @property
    def mean_size(self) -> float:
        """Return the mean number of records of a client."""
        ...

    @property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records."""
        ...

    def size(self, client: int) -> int:
        """Count the records of one client."""
        ...

    def records(self, client: int) -> Records:
        """Return the places of one client's records in the train set."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Shards:
    """Partition kept in two arrays: client k owns order[offsets[k]:offsets[k + 1]].

    >>> Shards(np.array([4, 0, 2]), np.array([0, 1, 3])).records(1).tolist()
    [0, 2]
    """

    order: Records
    offsets: Records

    def __post_init__(self) -> None:
        if len(self.offsets) < 2 or self.offsets[0] != 0 or self.offsets[-1] != len(self.order):
            raise InputError(f"offsets must go from 0 to the {len(self.order)} records of order")

    @property
    def clients(self) -> int:
        """Count the clients."""
        return len(self.offsets) - 1

    @property
    def total(self) -> int:
        """Count the records of all clients."""
        return len(self.order)

    @property
    def mean_size(self) -> float:
        """Return the mean number of records of a client."""
        return self.total / self.clients

    @property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records."""
        counts = np.diff(self.offsets)
        return Sizes(int(counts.min()), float(np.median(counts)), int(counts.max()))

    def size(self, client: int) -> int:
        """Count the records of one client."""
        _check_client(client, self.clients)
        return int(self.offsets[client + 1] - self.offsets[client])

    def records(self, client: int) -> Records:
        """Return a view of one client's records."""
        _check_client(client, self.clients)
        return self.order[self.offsets[client] : self.offsets[client + 1]]


@final
@dataclass(frozen=True)
class Virtual:
    """Partition that draws a client's records from the pool when asked, by the client's own stream; nothing is kept.

    A client holds `each` different records; two clients may hold the same one. Client k draws from pool k mod
    `pools`, which has every `pools`-th record: clients of different pools share none, so that a machine needs only the
    pools of its own clients.

    >>> Virtual(pool=60_000, clients=10**9, each=10, seed=1).records(10**9 - 1).shape
    (10,)
    """

    pool: int
    clients: int
    each: int
    seed: int
    pools: int = 1

    def __post_init__(self) -> None:
        in_range("clients", self.clients, low=1)
        in_range("pools", self.pools, low=1, high=self.pool)
        in_range("records_per_client", self.each, low=1, high=self.pool // self.pools)

    @property
    def total(self) -> int:
        """Count the records of all clients; shared ones count for each."""
        return self.clients * self.each

    @property
    def mean_size(self) -> float:
        """Return the number of records that every client has."""
        return float(self.each)

    @property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records, which are all the same."""
        return Sizes(self.each, float(self.each), self.each)

    def size(self, client: int) -> int:
        """Count the records of one client."""
        _check_client(client, self.clients)
        return self.each

    def records(self, client: int) -> Records:
        """Draw one client's records; the same ones each time."""
        _check_client(client, self.clients)
        rng, first = Streams(self.seed).get(Purpose.PARTITION, client), client % self.pools
        there = -(-(self.pool - first) // self.pools)
        return first + self.pools * rng.choice(there, self.each, replace=False, shuffle=False).astype(np.int64)


def partition(
    kind: str,
    labels: NDArray[Any],
    clients: int,
    streams: Streams,
    *,
    concentration: float = 1.0,
    shards_per_client: int = 2,
    ids: NDArray[np.int64] | None = None,
    records_per_client: int | None = None,
    pools: int = 1,
) -> Partition:
    """Deal the records with these labels to clients; the same seed deals the same way.

    iid         equal shares at random
    dirichlet   each class by shares from Dirichlet(concentration): the smaller, the more uneven
    shards      records sorted by label, cut into pieces, `shards_per_client` pieces each
    by-id       whole owners (`ids`); several to a client if there are more owners than clients
    hospitals   equal shares, at least one record of class 1 each
    virtual     drawn on demand, `records_per_client` each (10 by default), for any number of clients, from `pools`

    `records_per_client` cuts the shares of `iid` down to exactly that many.
    """
    one_of("partition", kind, KINDS)
    in_range("clients", clients, low=1)
    count = len(labels)
    if kind == "virtual":
        each = min(PAPER_SIZE, max(1, count // pools)) if records_per_client is None else records_per_client
        return Virtual(pool=count, clients=clients, each=each, seed=streams.seed, pools=pools)
    if records_per_client is not None and kind != "iid":
        raise InputError(f'records_per_client is for partition = "iid" or "virtual", not {kind!r}')
    if clients > count:
        raise InputError(
            f"clients must be at most the {count} train records, got {clients}; "
            'ask for fewer or for partition = "virtual"'
        )
    rng = streams.get(Purpose.PARTITION)
    match kind:
        case "iid":
            owners = dealing.iid(count, clients, records_per_client, rng)
        case "dirichlet":
            owners = dealing.dirichlet(labels, clients, concentration, rng)
        case "shards":
            owners = dealing.label_shards(labels, clients, shards_per_client, rng)
        case "by-id":
            owners = dealing.by_id(ids, count, clients, rng)
        case _:
            owners = dealing.hospitals(labels, clients, rng)
    return Shards(*dealing.gather(owners, clients, rng))


def one_owner_each(ids: NDArray[np.int64], clients: int) -> Shards | None:
    """Return the partition in which client k is owner k, its records in their order; None: there are more owners."""
    people, sizes = np.unique(ids, return_counts=True)
    if len(people) != clients:
        return None
    return Shards(np.argsort(ids, kind="stable").astype(np.int64), np.cumsum([0, *sizes]).astype(np.int64))


def mean_balanced_size(owners: Partition, labels: NDArray[Any], how: str = DOWN) -> float:
    """Return the mean number of records that a client trains with when each client balances its own."""
    return mean_of_clients(owners, lambda client: balanced_size(labels[owners.records(client)], how))


def mean_of_clients(owners: Partition, count: Callable[[int], int]) -> float:
    """Return the mean of a count that each client has.

    Exact up to 10,000 clients; of more, that many are looked at, evenly spread.
    """
    looked_at = min(owners.clients, _LOOKED_AT)
    clients = (place * owners.clients // looked_at for place in range(looked_at))
    return sum(map(count, clients)) / looked_at


def _check_client(client: int, clients: int) -> None:
    if not 0 <= client < clients:
        raise InputError(f"client must be in [0, {clients - 1}], got {client}")
