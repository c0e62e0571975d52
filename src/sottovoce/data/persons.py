"""Put the rows of each person at a site together, where persons are the unit of privacy.

Of a person with more than `most` rows the first are kept, in the order of the file. Which ones these are depends on
nothing but that person's own rows, and the others are not read by anybody.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.validate import in_range
from sottovoce.data.partition import Partition, Records, Shards

Persons = NDArray[np.int64]


def rows_kept(persons: Persons, most: int) -> Records:
    """Return the places of the first `most` rows of each person, in order.

    >>> rows_kept(np.array([7, 3, 7, 7, 3]), 2).tolist()
    [0, 1, 2, 4]
    """
    in_range("max_rows", most, low=1)
    order = np.argsort(persons, kind="stable")
    ranked = persons[order]
    begins = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])) if len(ranked) else np.zeros(0, int)
    rank = np.arange(len(ranked)) - np.repeat(begins, np.diff(np.append(begins, len(ranked))))
    return np.sort(order[rank < most])


def with_rows_kept(owners: Partition, persons: Persons, most: int) -> Shards:
    """Return a partition in which each site has its records in the order of the data, `most` at most of a person."""
    shares = []
    for site in range(owners.clients):
        places = np.sort(owners.records(site))
        shares.append(places[rows_kept(persons[places], most)])
    return Shards(np.concatenate(shares), np.cumsum([0, *map(len, shares)]).astype(np.int64))


def persons_at(owners: Partition, persons: Persons) -> list[int]:
    """Count the persons of each site."""
    return [len(np.unique(persons[owners.records(site)])) for site in range(owners.clients)]
