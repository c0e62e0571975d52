"""Count the records that two sets have in common, whatever file, order, format or labels they have there.

What is called public in a private run must be no client's. A name or a file tells the plain cases (`origin`); a copy, a
part, another order or another format has other files, and the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from math import sqrt
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_STDDEVS: Final = 4  # above what chance explains
_RAREST: Final = 3  # records that all occur more often than this tell nothing one by one
_CHUNK: Final = 4096  # records that are hashed at once
_MANTISSA: Final = 16  # bits of a float that are compared: formats differ in the last ones


class Values(NamedTuple):
    """Records as they are stored, and what a network multiplies them by."""

    x: NDArray[Any]
    scale: float


def overlap(public: Values, clients: Values) -> int:
    """Return how many records of `public` are records of the clients; 0 if no more are than chance explains.

    Records are compared by what a network reads of them, up to the last bits of a float. Where no record of the clients
    has a twin, one common record is enough. Where some have, an independent sample meets some too: of the records that
    occur once it meets a share of 2 N2 / (n + 1), where N2 of n records occur twice (Good and Turing), and more than
    that by four standard deviations is no chance. Records that occur more often are met anyway and tell nothing, unless
    both sets are equal as a whole.

    >>> ten = Values(np.arange(10.0)[:, None], 1.0)
    >>> overlap(Values(ten.x[3:6], 1.0), ten), overlap(Values(ten.x + 0.5, 1.0), ten)
    (3, 0)
    """
    kinds = {(values.x.dtype.str, values.scale) for values in (public, clients)}
    if len(kinds) == 1 and np.issubdtype(public.x.dtype, np.integer):
        return _common(*(_digests(values, _as_they_are) for values in (public, clients)))
    found = _common(*(_digests(values, _rounded) for values in (public, clients)))
    if not found and _is_half(public) != _is_half(clients):  # one was stored with half of the bits
        found = _common(*(_digests(values, _halved) for values in (public, clients)))
    return found


def _common(theirs: NDArray[np.uint64], own: NDArray[np.uint64]) -> int:
    """Return how many of their hashes are among the clients', if more are than chance explains."""
    known, counts = np.unique(own, return_counts=True)
    found = int(np.count_nonzero(np.isin(theirs, known)))
    if not found or np.array_equal(np.sort(theirs), np.sort(own)):
        return found
    rarest = int(counts.min())  # usually 1
    if rarest > _RAREST:
        return 0
    met = int(np.count_nonzero(np.isin(theirs, known[counts == rarest])))
    share = (rarest + 1) / (len(own) + 1)
    twins = int(np.count_nonzero(counts == rarest + 1))
    chance = len(theirs) * share * twins
    spread = sqrt(chance + (len(theirs) * share) ** 2 * twins)  # of the meetings, and of the estimate
    return found if met > chance + _STDDEVS * spread else 0


def _digests(values: Values, read: Callable[[NDArray[Any], float], NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a hash of each record as `read` has it: of its bytes, or of the numbers that a network reads."""
    digests = bytearray()
    for start in range(0, len(values.x), _CHUNK):
        rows: NDArray[Any] = values.x[start : start + _CHUNK]
        rows = np.ascontiguousarray(read(rows, values.scale))
        for row in rows:
            digests += blake2b(row.data, digest_size=8).digest()
    return np.frombuffer(digests, np.uint64)


def _as_they_are(rows: NDArray[Any], _scale: float) -> NDArray[Any]:
    return rows


def _halved(rows: NDArray[Any], scale: float) -> NDArray[np.float16]:
    """Return values as a network reads them, in 16 bits; both zeros are one number."""
    with np.errstate(over="ignore"):
        return (rows.astype(np.float64) * scale).astype(np.float32).astype(np.float16) + np.float16(0)


def _is_half(values: Values) -> bool:
    """Tell whether all values are numbers of 16 bits."""
    for start in range(0, len(values.x), _CHUNK):
        rows = values.x[start : start + _CHUNK]
        if not np.array_equal(_halved(rows, values.scale), (rows.astype(np.float64) * values.scale).astype(np.float32)):
            return False
    return True


def _rounded(rows: NDArray[Any], scale: float) -> NDArray[np.int32]:
    """Return values as a network reads them, without the last bits; both zeros are one number."""
    words = (rows.astype(np.float64) * scale + 0.0).astype(np.float32).view(np.int32)
    spare = 23 - _MANTISSA
    return (words + (1 << (spare - 1))) >> spare
