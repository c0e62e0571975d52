"""Add up payloads, exactly: the total never depends on the order of clients or on how they are spread over workers.

A *fold* takes a client's payload apart, checks it, and adds it to an accumulator; accumulators merge. A payload that
fails its check changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native, wire
from sottovoce.core.errors import RunError
from sottovoce.core.vectors import Vector
from sottovoce.schemes.packed_signs import Tally

LARGEST = 4096.0  # a client value beyond this is a diverged client, not an update


class Fold(Protocol):
    """A way to check and add payloads; frozen and picklable, so that workers can do it where the payload is made."""

    @property
    def payload_size(self) -> int:
        """Return the bytes of every payload."""
        ...

    def empty(self) -> Any:
        """Return a fresh accumulator."""
        ...

    def add(self, accumulator: Any, payload: bytes) -> None:
        """Add one client's payload, or raise and leave the accumulator as it was."""
        ...

    def merge(self, accumulator: Any, other: Any) -> None:
        """Add another accumulator."""
        ...

    def total(self, accumulator: Any) -> NDArray[Any]:
        """Return the sum."""
        ...


@dataclass(frozen=True)
class FloatSum:
    """The sum of float32 messages, as 64-bit integers on a grid of 2^-fraction_bits (2^-40 for up to 1024 senders)."""

    length: int
    senders: int

    @property
    def fraction_bits(self) -> int:
        """Return the precision that leaves room for every sender at the largest value."""
        return min(40, 62 - math.ceil(math.log2(LARGEST)) - math.ceil(math.log2(max(self.senders, 1))))

    @property
    def payload_size(self) -> int:
        """Return the bytes of a frame of float32 values."""
        return wire.frame_size(self.length)

    def empty(self) -> NDArray[np.int64]:
        """Return zeros."""
        return np.zeros(self.length, np.int64)

    def add(self, accumulator: NDArray[np.int64], payload: bytes) -> None:
        """Add one float32 message."""
        _add_on_grid(accumulator, read_floats(payload, self.length), 2.0**self.fraction_bits)

    def merge(self, accumulator: NDArray[np.int64], other: NDArray[np.int64]) -> None:
        """Add another accumulator."""
        accumulator += other

    def total(self, accumulator: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum as float64."""
        return np.multiply(accumulator, 2.0**-self.fraction_bits, dtype=np.float64)


@dataclass(frozen=True)
class SignSum:
    """The count of packed signs."""

    length: int

    @property
    def payload_size(self) -> int:
        """Return the bytes of one client's packed signs."""
        return wire.frame_size(self.length, 1)

    def empty(self) -> Tally:
        """Return a tally without votes."""
        return Tally(self.length)

    def add(self, accumulator: Tally, payload: bytes) -> None:
        """Add one client's signs; only +1 and -1 can be said in one bit."""
        accumulator.add(np.frombuffer(wire.open_frame(payload, length=self.length, bits=1), np.uint8))

    def merge(self, accumulator: Tally, other: Tally) -> None:
        """Add another tally."""
        accumulator.merge(other)

    def total(self, accumulator: Tally) -> NDArray[np.int32]:
        """Return the sum of signs."""
        return accumulator.total()


@dataclass(frozen=True)
class WordSum:
    """The sum of integers modulo 2^bits."""

    length: int
    bits: int

    @property
    def payload_size(self) -> int:
        """Return the bytes of a frame of words."""
        return wire.frame_size(self.length, self.bits)

    def empty(self) -> NDArray[np.uint32]:
        """Return zeros."""
        return np.zeros(self.length, np.uint32)

    def add(self, accumulator: NDArray[np.uint32], payload: bytes) -> None:
        """Add one packed vector of words; uint32 wraps at a multiple of 2^bits, so it is reduced only at the end."""
        wire.add_words(accumulator, payload, self.bits)

    def merge(self, accumulator: NDArray[np.uint32], other: NDArray[np.uint32]) -> None:
        """Add another accumulator."""
        accumulator += other

    def total(self, accumulator: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the sum modulo 2^bits."""
        return accumulator & np.uint32((1 << self.bits) - 1)


def read_floats(payload: bytes, length: int) -> Vector:
    """Return the values of a float32 message, or raise if no update can have them; a view of the payload."""
    values = wire.unpack_floats(payload, length=length)
    if not _largest(values) <= LARGEST:
        raise RunError(f"the update has values that are not finite or exceed {LARGEST:g}")
    return values


def mean(total: NDArray[Any], expected: float) -> Vector:
    """Divide a sum by the expected cohort size."""
    return (total / expected).astype(np.float32)


def _largest(values: Vector) -> float:
    """Return the largest |value|, NaN if there is one: as integers, because |x| as bits orders like |x|, NaN on top."""
    bits = values.view(np.uint32)
    if (library := native.library()) is None:
        top = np.max(bits & np.uint32(0x7FFFFFFF), initial=0)
    else:
        top = library.largest(native.place(bits), bits.size)
    return float(np.array([top], np.uint32).view(np.float32)[0])


def _add_on_grid(accumulator: NDArray[np.int64], values: Vector, scale: float) -> None:
    if (library := native.library()) is None:
        accumulator += np.rint(values.astype(np.float64) * scale).astype(np.int64)
        return
    library.add_on_grid(native.place(accumulator), native.place(values), values.size, scale)
