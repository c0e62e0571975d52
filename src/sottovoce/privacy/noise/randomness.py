"""Supply the random bits of the noise: AES-256-CTR, keyed by the operating system or, in simulation, by a stream."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.cipher import KEY_SIZE, keystream
from sottovoce.core.errors import InputError

_ZEROS: Final = bytes(1 << 18)


@dataclass(frozen=True)
class Randomness:
    """The key of one client's noise in one round.

    Guarantee: a key from `system` is 32 bytes of the operating system's entropy and never leaves the object's repr; a
    key from `simulated` repeats, and a plan for deployment refuses it.

    >>> key = bytes(32)
    >>> bool((Randomness.simulated(key).bits().take(4) == Randomness.simulated(key).bits().take(4)).all())
    True
    """

    key: bytes = field(repr=False)
    repeatable: bool

    def __post_init__(self) -> None:
        if len(self.key) != KEY_SIZE:
            raise InputError(f"a noise key must have {KEY_SIZE} bytes, got {len(self.key)}")

    @classmethod
    def system(cls) -> Randomness:
        """Return fresh randomness from the operating system."""
        return cls(os.urandom(KEY_SIZE), repeatable=False)

    @classmethod
    def simulated(cls, key: bytes) -> Randomness:
        """Return randomness that repeats for the same key: for simulation, where nothing is private."""
        return cls(key, repeatable=True)

    def bits(self) -> Bits:
        """Start the stream of this key."""
        return Bits(self.key)


class Bits:
    """Uniform 64-bit words, read off one AES-256-CTR stream."""

    def __init__(self, key: bytes) -> None:
        self._cipher = keystream(key)

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        words = np.empty(count, "<u8")
        self.fill(words)
        return words

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrite `words` with the next words of the stream."""
        view = words.data.cast("B")
        for start in range(0, view.nbytes, len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS if part.nbytes == len(_ZEROS) else _ZEROS[: part.nbytes], part)
