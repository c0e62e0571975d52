"""Whiten features: linear algebra with numbers that clients released privately, before anything trains.

    u = unit(features of the front, or the record)
    features = unit(M (u - mean))        M = Q diag((max(w, 0) + lambda)^(-1/2)) Q^T, over the first `dims` features

Q and w are the eigenvectors and values of the second moments of the features about their mean, and the coordinates
after `dims` are multiplied by one number. Every direction then has about the same variance, so that gradient descent
takes few rounds, and less of the clip norm is spent on a few large directions.

What is public, and why: mean, M and the one number are computed from one noisy sum that was charged before it was
opened (`federation/stages/whiten.py`); they travel in the set-up of the training, and everybody uses them as they
travelled. Nothing else of the clients' records is in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import WireError
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Shape
from sottovoce.models.fronts.projection import project, unit

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]

_ABSENT: Final = wire.pack(np.zeros(1, np.uint32), bits=32)
_PRESENT: Final = wire.pack(np.ones(1, np.uint32), bits=32)


@final
@dataclass(frozen=True, eq=False)
class Whitening:
    """The whitening of features of a width: what it will be made of, and its numbers once they are known.

    Symbols: `mean` = mean of u, `matrix` = M, `tail` = the factor of the coordinates after `dims`.
    """

    width: int
    dims: int  # the first features, whose second moments are known
    numbers: Vector | None = None  # mean, upper triangle of M, tail; None: not known yet

    @property
    def length(self) -> int:
        """Count its numbers."""
        return self.width + self.dims * (self.dims + 1) // 2 + 1

    def known(self, numbers: Vector | None) -> Self:
        """Return a copy with its numbers, or without."""
        if numbers is None:
            return replace(self, numbers=None)
        if numbers.shape != (self.length,) or not bool(np.isfinite(numbers).all()):
            raise WireError(f"a whitening of {self.width} features has {self.length} finite numbers")
        return replace(self, numbers=np.ascontiguousarray(numbers, np.float32))

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, float]:
        """Return mean, M and the factor of the rest."""
        if self.numbers is None:
            raise WireError("the numbers of the whitening are not known yet")
        mean, triangle, tail = np.split(self.numbers, [self.width, self.length - 1])
        matrix = np.empty((self.dims, self.dims), np.float32)
        rows, columns, _ = triangle_of(self.dims)
        matrix[rows, columns] = matrix[columns, rows] = triangle
        return mean, matrix, float(tail[0])

    def prepared(self, features: NDArray[Any]) -> Floats:
        """Return u of every record: its features, all of one length; that is all while the numbers are not known."""
        return unit(np.asarray(features.reshape(len(features), -1), np.float32))

    def refined(self, u: Floats) -> Floats:
        """Return the whitened features of records whose u is known; u itself while the numbers are not."""
        if self.numbers is None:
            return u
        mean, matrix, tail = self._parts
        x = u - mean
        found = x * np.float32(tail)
        first = np.ascontiguousarray(x[:, None, : self.dims])
        here = np.empty((len(x), self.dims), np.float32)
        pairs = np.stack([np.zeros(self.dims, np.int64), np.arange(self.dims)], 1)
        project(first, np.ones((1, 1), np.float32), matrix, pairs, here)
        found[:, : self.dims] = here
        return unit(found)

    def payload(self) -> bytes:
        """Return what the set-up carries: whether the numbers are known, and the numbers."""
        return _ABSENT if self.numbers is None else _PRESENT + wire.pack(self.numbers)

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy from a set-up that begins with `payload`, and the rest of the set-up."""
        mark, rest = payload[: len(_ABSENT)], payload[len(_ABSENT) :]
        if mark == _ABSENT:
            return replace(self, numbers=None), rest
        size = wire.frame_size(self.length)
        if mark != _PRESENT or len(rest) < size:
            raise WireError("the set-up does not say whether features are whitened, or lacks the numbers")
        return self.known(wire.unpack_floats(rest[:size], length=self.length)), rest[size:]

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload."""
        return len(_PRESENT) + wire.frame_size(self.length)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its numbers by name, for a file."""
        mean, matrix, tail = self._parts
        return {"mean": mean, "matrix": matrix, "tail": np.array([tail], np.float32)}


@final
@dataclass(frozen=True, eq=False)
class RowsFront:
    """The front of records that are whitened as they are: a row of numbers each, on the scale that a network reads."""

    input_shape: Shape
    input_scale: float = 1.0

    name: str = "none"
    parallel: bool = True

    @property
    def width(self) -> int:
        """Count the values of a record."""
        return math.prod(self.input_shape)

    @property
    def memory(self) -> int:
        """Count the bytes that one record needs on the way."""
        return 16 * self.width

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the values of records."""
        return np.asarray(x.reshape(len(x), -1).astype(np.float32) * np.float32(self.input_scale))

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return `features`: nothing is fitted."""
        return self.features(x)

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return itself: nothing is fitted."""
        return self

    def payload(self) -> bytes:
        """Return nothing: records are known."""
        return b""

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return itself and the whole payload, of which nothing is needed."""
        return self, payload

    @property
    def measured(self) -> bool:
        """Return no: there is nothing to measure."""
        return False

    @property
    def most_bytes(self) -> int:
        """Return 0: nothing travels."""
        return 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing."""
        return {}


@lru_cache(maxsize=2)
def triangle_of(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Matrix]:
    """Return the places of an upper triangle, and what makes it as long as the whole matrix: sqrt(2) off-diagonal."""
    rows, columns = np.triu_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2))
