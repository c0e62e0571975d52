"""Features of cells that need no knowledge of any record: numbers of unknown range, and words of an unknown list.

*Octaves*: a number lies between two neighbouring powers of two (or between one and zero), and has one feature for each:
how near it is to it. A linear model of these features is any function that is straight between powers of two, so no
range has to be known. *Buckets*: a word has two buckets, which the SHA-256 of its letters names; of 128 buckets, one
pair of words in 4,096 shares both.

Both are fixed before anybody looks at a table. Features that no record has cost bytes, and no accuracy: their weights
are noise that nothing is multiplied with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LOWEST, _HIGHEST = -10, 24  # powers of two: 0.00098 and 16.8 million

KNOTS: Final[NDArray[np.float64]] = np.concatenate(
    [-(2.0 ** np.arange(_HIGHEST, _LOWEST - 1, -1)), [0.0], 2.0 ** np.arange(_LOWEST, _HIGHEST + 1)]
)
BUCKETS: Final = 128  # usual number
MOST_BUCKETS: Final = 65_536
SHARE: Final = 2**-0.5  # what a word has in each of its buckets


def octaves(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return how near each value is to the knots on either side of it; NaN is near none.

    >>> row = octaves(np.array([3.0]))[0]
    >>> {float(KNOTS[place]): float(row[place]) for place in np.flatnonzero(row)}
    {2.0: 0.5, 4.0: 0.5}
    """
    features = np.zeros((len(values), len(KNOTS)), np.float32)
    rows = np.flatnonzero(~np.isnan(values))
    inside = np.clip(values[rows], KNOTS[0], KNOTS[-1])
    left = np.clip(np.searchsorted(KNOTS, inside, side="right") - 1, 0, len(KNOTS) - 2)
    share = (inside - KNOTS[left]) / (KNOTS[left + 1] - KNOTS[left])
    features[rows, left] = 1 - share
    features[rows, left + 1] = share
    return features


def buckets_of(word: str, buckets: int) -> tuple[int, int]:
    """Return the two buckets of a word, one in either half.

    >>> buckets_of("surgery", 128)
    (59, 75)
    """
    digest, half = hashlib.sha256(word.encode("utf-8")).digest(), buckets // 2
    first, second = (int.from_bytes(digest[start : start + 8], "big") for start in (0, 8))
    return first % half, half + second % (buckets - half)


def hashed(cells: Sequence[str], buckets: int, empty: frozenset[str]) -> NDArray[np.float32]:
    """Return one row a cell, of norm 1, with its two buckets; of zeros where a cell says nothing."""
    rows: dict[str, int] = dict.fromkeys(empty, 0)
    known = [np.zeros(buckets, np.float32)]
    places = np.empty(len(cells), np.int64)
    for row, cell in enumerate(cells):
        place = rows.get(cell)
        if place is None:
            place = rows[cell] = len(known)
            known.append(np.zeros(buckets, np.float32))
            known[place][list(buckets_of(cell, buckets))] = np.float32(SHARE)
        places[row] = place
    return np.stack(known)[places]
