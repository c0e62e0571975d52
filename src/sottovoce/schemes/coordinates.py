"""Choose the coordinates that server and clients share, and write a set of them in few bytes.

Sets and shuffles come from the raw words of the bit generator, whose stream numpy never changes; `Generator.choice` and
`permutation` carry no such promise, and two clients with different versions of numpy must not choose different sets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import all_finite, in_range
from sottovoce.core.vectors import Vector

Coordinates = NDArray[np.int64]  # ascending, distinct

# The last word of a stream's path; part of every published result, so they never change.
_SET, _ROUND, _SHUFFLE = 0, 1, 2


def round_seed(seed: int, round_: int) -> int:
    """Return the 64-bit seed of one round."""
    return int.from_bytes(Streams(seed).key(Purpose.SELECT, _ROUND, round_, size=8), "little")


@lru_cache(maxsize=4)  # every client of a round asks for the same set
def drawn(dim: int, kept: int, seed: int) -> Coordinates:
    """Return `kept` of `dim` coordinates, each set as likely as any other.

    >>> drawn(10, 3, 7).tolist() == drawn(10, 3, 7).tolist(), drawn(3, 3, 7).tolist()
    (True, [0, 1, 2])
    """
    keys = _keys(dim, seed, _SET)
    chosen = np.arange(dim) if kept == dim else np.sort(np.argpartition(keys, kept)[:kept])
    return _frozen(chosen)


@lru_cache(maxsize=2)
def shuffled(dim: int, seed: int) -> NDArray[np.int64]:
    """Return a uniform permutation of the coordinates."""
    return _frozen(np.argsort(_keys(dim, seed, _SHUFFLE), kind="stable"))


def largest(importance: Vector, kept: int) -> Coordinates:
    """Return the `kept` most important coordinates; of equals, the first.

    >>> largest(np.array([1, 5, 5, 5], np.float32), 2).tolist()
    [1, 2]
    """
    all_finite("importance", importance)
    order = np.argsort(-importance, kind="stable")
    return _frozen(np.sort(order[:kept]))


def pack_set(coordinates: Coordinates, dim: int) -> bytes:
    """Write a set as a bitmap or as a list of indices, whichever is shorter; its reader knows both sizes."""
    if _as_bitmap(dim, coordinates.size):
        bitmap = np.zeros(dim, np.uint32)
        bitmap[coordinates] = 1
        return wire.pack(bitmap, bits=1)
    return wire.pack(coordinates, bits=_index_bits(dim))


def unpack_set(payload: bytes, dim: int, kept: int) -> Coordinates:
    """Read what `pack_set` wrote; refuse what is not a set of `kept` coordinates."""
    if _as_bitmap(dim, kept):
        coordinates = np.flatnonzero(wire.unpack(payload, length=dim, bits=1))
    else:
        coordinates = wire.unpack(payload, length=kept, bits=_index_bits(dim)).astype(np.int64)
    if coordinates.size != kept or coordinates[-1] >= dim or (np.diff(coordinates) <= 0).any():
        raise WireError(f"set-up does not hold {kept} ascending coordinates below {dim}")
    return _frozen(coordinates)


def _keys(dim: int, seed: int, path: int) -> NDArray[np.uint64]:
    if dim < 1:
        raise InputError(f"dim must be at least 1, got {dim}")
    return np.asarray(Streams(seed).get(Purpose.SELECT, path).bit_generator.random_raw(dim))


def _frozen(coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
    coordinates.flags.writeable = False  # they are shared through caches
    return coordinates


def _index_bits(dim: int) -> int:
    return max(1, (dim - 1).bit_length())


def _as_bitmap(dim: int, kept: int) -> bool:
    return dim <= kept * _index_bits(dim)


def importance(gradient: Callable[[Vector, int], Vector], start: Vector, steps: int, lr: float) -> Vector:
    """Return the sum of |gradient| of each coordinate over `steps` SGD iterations from w_0.

    `gradient(params, step)` is taken on some records; step says which batch. T_init = `steps`, w_0 = `start`.
    Thesis, section 4.2.1.

    Guarantee: only those records are touched. If they are public, the set that follows costs no privacy; if they are
    a client's, it must go through a private vote.
    """
    in_range("steps", steps, low=1)
    params = start.copy()
    total = np.zeros_like(start)
    for step in range(steps):
        slope = gradient(params, step)
        total += np.abs(slope)
        params -= np.float32(lr) * slope
    return total
