"""Partitions that differ from another one in some records: honest clients without a class, attackers with more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.data.partition import Partition, Records, Sizes, mean_of_clients

_LOOKED_AT = 10_000


@final
@dataclass(frozen=True, eq=False)
class Without:
    """Partition of which some records were taken away from whoever had them.

    >>> from sottovoce.data.partition import Shards
    >>> owners = Shards(np.array([4, 0, 2, 1]), np.array([0, 2, 4]))
    >>> Without(owners, np.array([True, False, False, False, False])).records(0).tolist()
    [4]
    """

    owners: Partition
    withheld: NDArray[np.bool_]  # of all train records

    def __post_init__(self) -> None:
        for client in range(min(self.owners.clients, _LOOKED_AT)):
            if not self.size(client):
                raise InputError(
                    f"client {client} has no record but those that only malicious clients may have; use fewer clients, "
                    'or [data] partition = "iid"'
                )

    @property
    def clients(self) -> int:
        """Count the clients."""
        return self.owners.clients

    @property
    def total(self) -> int:
        """Count the records of all clients, from a part of them if they are very many."""
        return round(self.mean_size * self.clients)

    @cached_property
    def mean_size(self) -> float:
        """Return the mean number of records of a client."""
        return mean_of_clients(self.owners, self.size)

    @cached_property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records, of the first clients if they are very many."""
        counts = [self.size(client) for client in range(min(self.clients, _LOOKED_AT))]
        return Sizes(min(counts), float(np.median(counts)), max(counts))

    def size(self, client: int) -> int:
        """Count the records of one client."""
        return len(self.records(client))

    def records(self, client: int) -> Records:
        """Return one client's records without those that were taken away."""
        records = self.owners.records(client)
        return records[~self.withheld[records]]


@final
@dataclass(frozen=True, eq=False)
class With:
    """Partition whose clients each hold some further records beside their own; nobody holds one twice."""

    owners: Partition
    more: Records

    @property
    def clients(self) -> int:
        """Count the clients."""
        return self.owners.clients

    @property
    def total(self) -> int:
        """Count the records of all clients; those that all hold count for each."""
        return self.owners.total + self.clients * len(self.more)

    @property
    def mean_size(self) -> float:
        """Return the mean number of records of a client, up to those that it held before."""
        return self.owners.mean_size + len(self.more)

    @property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records."""
        smallest, median, largest = self.owners.sizes
        more = len(self.more)
        return Sizes(smallest + more, median + more, largest + more)

    def size(self, client: int) -> int:
        """Count the records of one client."""
        return len(self.records(client))

    def records(self, client: int) -> Records:
        """Return one client's records and the further ones."""
        return np.union1d(self.owners.records(client), self.more)
