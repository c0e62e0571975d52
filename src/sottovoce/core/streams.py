"""Derive every random number from the seed, a purpose and a path.

Two streams with different names are independent, and a stream does not depend on what was drawn before from any
other: a client's batches are the same whichever worker trains it, and a resumed round repeats the lost one exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np
from numpy.random import Generator, SeedSequence

from sottovoce.core.validate import in_range

__all__ = ["Purpose", "Streams"]


@unique
class Purpose(IntEnum):
    """Name what a stream is for; the numbers are part of every published result, so they never change."""

    INIT = 1  # w_0
    SPLIT = 2  # held-out and public records
    PARTITION = 3  # who owns which record
    COHORT = 4  # who is asked this round
    BATCH = 5  # which records a client's step sees, and its dropout units
    ENCODE = 6  # a client's random choices inside a scheme (sign of zero)
    DECODE = 7  # the server's random choices inside a scheme (ties)
    SELECT = 8  # coordinate sets and shuffles that server and clients share
    NOISE = 9  # privacy noise, in simulation only
    MASK = 10  # secure-aggregation secrets, in simulation only
    DROPOUT = 11  # who leaves when, in simulation
    PUBLIC = 12  # batches of public data
    SETUP = 13  # anything else the set-up draws


@dataclass(frozen=True)
class Streams:
    """Hand out the named streams of one seed.

    >>> streams = Streams(7)
    >>> float(streams.get(Purpose.COHORT, 3).random()) == float(Streams(7).get(Purpose.COHORT, 3).random())
    True
    """

    seed: int

    def __post_init__(self) -> None:
        in_range("seed", self.seed, low=0)

    def sequence(self, purpose: Purpose, *path: int) -> SeedSequence:
        """Return the seed sequence of a name; spawn keys, because entropy lists collide ([7, 3] equals [7, 3, 0])."""
        return SeedSequence(self.seed, spawn_key=(int(purpose), len(path), *path))

    def get(self, purpose: Purpose, *path: int) -> Generator:
        """Return a fresh generator for a name; asked twice, it starts anew."""
        return np.random.default_rng(self.sequence(purpose, *path))

    def key(self, purpose: Purpose, *path: int, size: int = 32) -> bytes:
        """Return `size` bytes for a name, to key a cipher in simulation."""
        words = self.sequence(purpose, *path).generate_state((size + 3) // 4, np.uint32)
        return words.astype("<u4").tobytes()[:size]
