"""Hashed n-grams of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.models.base import Shape
from sottovoce.models.fronts.projection import unit

_LONGEST: Final = 8  # tokens of an n-gram
_ODD: Final = 0x9E3779B97F4A7C15

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
    parallel: ClassVar[bool] = True

    @classmethod
    def make(
        cls, input_shape: Shape, dtype: str, *, input_scale: float, dims: int | None, seed: int, ngrams: int = 1
    ) -> Self:
        """Return the front for stored records of a shape and type, not yet fitted."""
        if len(input_shape) == 1 and not dtype.startswith(("uint", "int")):
            raise InputError(
                "front 'hashed' reads rows of token ids, and these records are rows of numbers; use front = \"fourier\""
            )
        return cls(input_shape, dims or 2000, ngrams, seed)

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
        _count(np.ascontiguousarray(x, np.uint64), self.ngrams, self.seed, counts)
        return unit(np.sign(counts) * np.sqrt(np.abs(counts)))

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return `features`: nothing is fitted."""
        return self.features(x)

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return itself: nothing is fitted."""
        return self

    def payload(self) -> bytes:
        """Return nothing: the hash is a formula."""
        return b""

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return itself and the whole payload, of which nothing is needed."""
        return self, payload

    @property
    def measured(self) -> bool:
        """Tell whether it has numbers that are measured on public records."""
        return False

    @property
    def most_bytes(self) -> int:
        """Return 0: nothing travels."""
        return 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the hash is a formula."""
        return {}


def _count(tokens: NDArray[np.uint64], ngrams: int, seed: int, counts: Floats) -> None:
    """Add +-1 for every n-gram to its box: the lowest bit of the hash is the sign, the upper half chooses the box."""
    rows, length = tokens.shape
    boxes = counts.shape[1]
    if (library := native.library()) is not None:
        library.count(native.place(tokens), rows, length, ngrams, seed, native.place(counts), boxes)
        return
    words = _mixed(np.full((rows, length), (seed + _ODD) & (2**64 - 1), np.uint64))
    for size in range(min(ngrams, length)):
        # What starts here goes one token further, unless that is padding or the end.
        words = _mixed(words[:, : length - size] + tokens[:, size:] * np.uint64(_ODD))
        whole = (np.lib.stride_tricks.sliding_window_view(tokens, size + 1, axis=1) != 0).all(axis=2)
        row, start = np.nonzero(whole)
        found = words[row, start]
        box = ((found >> np.uint64(32)) * np.uint64(boxes)) >> np.uint64(32)
        np.add.at(counts, (row, box), np.where(found & np.uint64(1), np.float32(1), np.float32(-1)))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of words: the finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


_WORDS: Final = 5000  # of `presence`
_NO_WORDS: Final = 3  # 0 pads, 1 starts a text, 2 is an unknown word


def presence(x: NDArray[Any]) -> Floats:
    """Return which of 5,000 numbered words occur in texts, as features of length 1 / 0.3, whatever order they have.

    For `front = "sottovoce.models.fronts.hashed:presence"`. No box holds two words, so it is for short lists of words.
    """
    occurs = np.zeros((len(x), _WORDS), np.float32)
    occurs[np.arange(len(x))[:, None], x.reshape(len(x), -1).astype(np.int64) % _WORDS] = 1
    occurs[:, :_NO_WORDS] = 0
    return unit(occurs)
