"""Turn columns of a table into float32 features, and choose test records that never change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError


def held_out(owners: Sequence[str], fraction: float = 0.2) -> NDArray[np.bool_]:
    """Mark the test records: all records of the owners whose SHA-256 ranks lowest.

    The choice depends on the owners' names alone: not on a seed, the order of rows or the version of a generator.
    """
    names = sorted(set(owners), key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen = set(names[: round(fraction * len(names))])
    return np.fromiter((owner in chosen for owner in owners), np.bool_, count=len(owners))


def held_out_rows(rows: Iterable[str], records: int, fraction: float = 0.2) -> NDArray[np.bool_]:
    """Mark the test records as `held_out` does, of rows that come one by one: eight bytes of each are kept."""
    digests = (int.from_bytes(hashlib.sha256(row.encode("utf-8", "surrogatepass")).digest()[:8]) for row in rows)
    ranks = np.fromiter(digests, np.uint64, records)
    different = np.unique(ranks)
    count = round(fraction * len(different))
    return ranks < different[count] if count < len(different) else np.ones(records, np.bool_)


def numbers(where: str, values: Iterable[str]) -> NDArray[np.float64]:
    """Return a column of finite numbers."""
    try:
        column = np.array([float(value) for value in values])
    except ValueError as error:
        raise DataError(f"{where} must hold numbers: {error}") from None
    if not np.isfinite(column).all():
        raise DataError(f"{where} must hold finite numbers")
    return column


def one_hot(values: Sequence[Iterable[str]], known: Sequence[str]) -> NDArray[np.float32]:
    """Return a row per record with 1 at each of its known values; unknown ones leave no trace."""
    place = {value: column for column, value in enumerate(known)}
    hot = np.zeros((len(values), len(known)), np.float32)
    for row, present in enumerate(values):
        for value in present:
            if value in place:
                hot[row, place[value]] = 1
    return hot
