"""Hashed n-grams of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.models.fronts.projection import unit
from sottovoce.models.network import Shape

__all__ = ["Hashed"]

_LONGEST: Final = 8  # tokens of an n-gram

Floats = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Hashed:
    """Front for rows of token ids: which runs of 1 to `ngrams` tokens occur, counted in `dims` boxes.

        c_j = sum of sign(g) over the n-grams g of the text with box(g) = j
        features_j = sign(c_j) sqrt|c_j|, then of length 1 / 0.3

    Box and sign are hashes of the token ids (Weinberger et al. 2009, "Feature hashing for large scale multitask
    learning"): n-grams that share a box cancel out on average. 0 is padding, and no n-gram goes across it.

    What is public, and why: the hash is a formula and reads no text. Nothing is counted over several texts, not even
    how often a word occurs, so nothing travels.
    """

    input_shape: Shape
    dims: int = 2000
    ngrams: int = 1
    seed: int = 1

    name: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        if len(self.input_shape) != 1:
            raise InputError(
                f"front 'hashed' reads rows of token ids, and these records have shape {self.input_shape}; use front = "
                '"scattering" for images, or "none"'
            )
        in_range("[model] projection.ngrams", self.ngrams, low=1, high=_LONGEST)

    @property
    def input_scale(self) -> float:
        """Return 1: token ids are left alone."""
        return 1.0

    @property
    def width(self) -> int:
        """Count the features of a record."""
        return self.dims

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        return 8 * (self.input_shape[0] + self.dims)

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the features of rows of tokens."""
        counts = np.zeros((len(x), self.dims), np.float32)
        _count(np.ascontiguousarray(x, np.uint64), np.uint64(self.ngrams), np.uint64(self.seed), counts)
        return unit(np.sign(counts) * np.sqrt(np.abs(counts)))

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return itself: nothing is fitted."""
        return self

    def payload(self) -> bytes:
        """Return nothing: the hash is a formula."""
        return b""

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return itself and the whole payload, of which nothing is needed."""
        return self, payload

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the hash is a formula."""
        return {}


@njit(cache=True, nogil=True)
def _mixed(word):  # type: ignore[no-untyped-def]
    """Mix the bits of a word: the finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def _count(tokens, ngrams, seed, counts):  # type: ignore[no-untyped-def]
    boxes = np.uint64(counts.shape[1])
    for row in range(tokens.shape[0]):
        for start in range(tokens.shape[1]):
            word = _mixed(seed + np.uint64(0x9E3779B97F4A7C15))
            for place in range(start, min(start + np.int64(ngrams), tokens.shape[1])):
                token = tokens[row, place]
                if token == 0:
                    break
                word = _mixed(word + token * np.uint64(0x9E3779B97F4A7C15))
                # The lowest bit is the sign, the upper half chooses the box.
                box = ((word >> np.uint64(32)) * boxes) >> np.uint64(32)
                counts[row, box] += np.float32(1) if word & np.uint64(1) else np.float32(-1)
