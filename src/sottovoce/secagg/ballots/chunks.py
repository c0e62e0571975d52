"""Lay the ballots of a round out for the transfers: chunks of some coordinates of all clients.

Both aggregators derive the same chunks from the number of ballots and their length. In a chunk the bits of one client
follow those of the one before, so that sums over clients are sums of rows and nothing else need be kept.

Coins that both aggregators toss together are rows below those of the ballots, *phantom ballots*: the leader's bit takes
the place of a masked vote, the helper's that of a pad. A ballot counts twice, because a vote is 2x - 1, and a coin what
it weighs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.secagg.ballots.comparison import OFFER, PROOF
from sottovoce.secagg.ballots.message import ENVELOPE
from sottovoce.secagg.ballots.terms import HASH
from sottovoce.secagg.ot.base import TRANSFERS
from sottovoce.secagg.ot.extension import CHECK_SIZE, POINT_SIZE, rows_of
from sottovoce.secagg.primitives import SIGNATURE

_TARGET = 1 << 20  # transfers in a chunk: 16 MB of columns
_STEP: Final = 128


class Chunk(NamedTuple):
    """Some coordinates of all ballots of a round."""

    ballots: int
    start: int  # the first coordinate, a multiple of 8
    stop: int
    coins: tuple[int, ...] = ()  # of the weights 1, 2, 4, ...

    @property
    def rows(self) -> int:
        """Count the rows: ballots, then coins."""
        return self.ballots + sum(self.coins)

    @property
    def width(self) -> int:
        """Count the coordinates."""
        return self.stop - self.start

    @property
    def transfers(self) -> int:
        """Count the transfers."""
        return self.rows * self.width

    @property
    def bytes(self) -> slice:
        """Return where the coordinates are in a packed ballot."""
        return slice(self.start // 8, (self.stop + 7) // 8)


def chunks_of(ballots: int, length: int, coins: tuple[int, ...] = ()) -> list[Chunk]:
    """Return the chunks of a round, in order."""
    rows = ballots + sum(coins)
    if not rows:
        return []
    width = max(_STEP, _TARGET // rows // _STEP * _STEP)
    return [Chunk(ballots, start, min(start + width, length), coins) for start in range(0, length, width)]


def rows_needed(chunks: Sequence[Chunk]) -> int:
    """Return the rows of the extension that chunks use up."""
    return sum(rows_of(chunk.transfers) for chunk in chunks)


def bytes_between(ballots: int, length: int, bits: int, coins: tuple[int, ...] = ()) -> int:
    """Return the bytes of a round between leader and helper, in both directions: two counts and their comparison.

    >>> bytes_between(100, 8_317, 16), bytes_between(100, 1_663_370, 16)
    (29985410, 5992809196)
    """
    word, total = bits // 8, 0
    for chunk in chunks_of(ballots, length, coins):
        columns = TRANSFERS * rows_of(chunk.transfers) // 8
        total += 2 * (8 + columns + POINT_SIZE + CHECK_SIZE + chunk.transfers * word)
    roll = 8 + HASH + ballots * (8 + HASH + ENVELOPE) + 8 * ballots + 2 * SIGNATURE
    return total + roll + 2 * OFFER + 2 * PROOF + length * word


def flat_bits(chunk: Chunk, pieces: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return the bits of a chunk, one byte each, from the packed piece of every ballot and coin."""
    bits: NDArray[Any] = np.unpackbits(np.stack(pieces), axis=1, count=chunk.width, bitorder="little")
    return bits.reshape(-1)


def votes_of(chunk: Chunk, values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Return what a chunk's values come to, modulo the words of the shares: ballots twice, coins as they weigh."""
    rows = values.reshape(chunk.rows, chunk.width)
    votes = rows[: chunk.ballots].sum(axis=0, dtype=kind) * kind(2)
    place = chunk.ballots
    for power, count in enumerate(chunk.coins):
        votes += rows[place : place + count].sum(axis=0, dtype=kind) * kind(1 << power)
        place += count
    return np.asarray(votes)


def compared(chunk: Chunk, difference: NDArray[Any], kind: Any) -> bytes:
    """Return what is compared of two counts of a chunk: the sum over the ballots, and every coin by itself.

    Coins weigh up to hundreds of votes, so errors in several of them must not cancel out, nor their weights hide one.
    """
    rows = difference.reshape(chunk.rows, chunk.width)
    return bytes(rows[: chunk.ballots].sum(axis=0, dtype=kind).tobytes() + rows[chunk.ballots :].tobytes())
