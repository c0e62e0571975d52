"""Turn updates into packed signs, count votes without unpacking them, and step by a vote.

Packed signs have one bit for each coordinate: 1 for +1 and 0 for -1, lowest bit first. The bits after the last
coordinate are zero. Nothing but +1 and -1 can be expressed: the sign of a zero is drawn at random.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector

Signs = NDArray[np.uint8]

_LANES: Final = 32  # coordinates of a word of signs
_SPREAD: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view(np.uint64)[:, 0]
_BATCH: Final = 15  # signs that one pass of carry-save adders turns into a 4-bit count


def packed_size(length: int) -> int:
    """Return the bytes that the packed signs of `length` coordinates take."""
    return (length + 7) // 8


def pack_signs(values: Vector, rng: Generator) -> Signs:
    """Return the packed signs of `values`; zeros, of either sign, get a random one; NaN has none.

    >>> pack_signs(np.array([0.5, -2.0, 3.0], np.float32), np.random.default_rng(0)).tolist()
    [5]
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    words = -(-values.size // _LANES)
    positive, signless = np.empty(words, np.uint32), np.empty(words, np.uint32)
    if _pack_signs(values, positive, signless):
        if np.isnan(values).any():
            raise RunError("an update with values that are NaN has no sign; the client diverged")
        # One draw a coordinate, used or not, is cheaper than finding the zeros one by one.
        positive |= signless & rng.integers(0, 1 << 32, words, np.uint32)
    return positive.view(np.uint8)[: packed_size(values.size)]


def expand(signs: Signs, length: int) -> NDArray[np.int8]:
    """Return packed signs as +1 and -1.

    >>> expand(np.array([5], np.uint8), 3).tolist()
    [1, -1, 1]
    """
    _check(signs, length)
    bits = np.unpackbits(signs, count=length, bitorder="little").view(np.int8)
    return 2 * bits - 1


def step(params: Vector, signs: Signs, size: float) -> Vector:
    """Return `params` moved by `size` along packed signs; server and clients get the same bits."""
    _check(signs, params.size)
    if (library := native.library()) is None:
        return params + expand(signs, params.size) * np.float32(size)
    moved = np.empty(params.size, np.float32)
    params, signs = np.ascontiguousarray(params, np.float32), np.ascontiguousarray(signs)
    library.step(native.place(params), native.place(signs), params.size, size, native.place(moved))
    return moved


class Tally:
    """Exact count of signs, added one vector at a time or merged from other tallies, in any order.

    The counts are bit-sliced: plane b holds bit b of every coordinate's count, 64 coordinates a word. Signs wait
    until there are 15, which carry-save adders turn into a 4-bit count (Harley and Seal's population count, sideways).

    >>> tally = Tally(3)
    >>> tally.add(np.array([5], np.uint8))
    >>> tally.add(np.array([1], np.uint8))
    >>> tally.total().tolist()
    [2, -2, 0]
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0
        words = -(-length // 64)
        self._planes = np.zeros((4, words), np.uint64)
        self._pending = np.zeros((_BATCH, words), np.uint64)
        self._waiting = 0

    def add(self, signs: Signs) -> None:
        """Count the signs of one client."""
        _check(signs, self.length)
        self._pending[self._waiting].view(np.uint8)[: signs.size] = signs
        self._waiting += 1
        self.count += 1
        if self._waiting == _BATCH:
            self._flush()

    def merge(self, other: Tally) -> None:
        """Count all signs that `other` has counted."""
        if other.length != self.length:
            raise InputError(f"tallies of {self.length} and of {other.length} coordinates cannot be merged")
        self._flush()
        other._flush()
        self.count += other.count
        self._accumulate(other._planes)

    def total(self) -> NDArray[np.int32]:
        """Return the sum of the signs of each coordinate."""
        self._flush()
        total = np.full(self.length, -self.count, np.int32)
        size = packed_size(self.length)
        for low in range(0, len(self._planes), 8):
            _add_digits(self._planes.view(np.uint8)[low : low + 8, :size], low + 1, total)
        return total

    def __getstate__(self) -> dict[str, Any]:
        self._flush()  # a worker sends its counts, not the room for signs to come
        return {"length": self.length, "count": self.count, "planes": self._planes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["length"])  # type: ignore[misc]
        self.count, self._planes = state["count"], state["planes"]

    def _flush(self) -> None:
        if not self._waiting:
            return
        self._pending[self._waiting :] = 0
        digits = np.empty((4, self._pending.shape[1]), np.uint64)
        _compress(self._pending, digits)
        self._waiting = 0
        self._accumulate(digits)

    def _accumulate(self, digits: NDArray[np.uint64]) -> None:
        missing = max(self.count.bit_length(), digits.shape[0]) - self._planes.shape[0]
        if missing > 0:
            self._planes = np.pad(self._planes, ((0, missing), (0, 0)))
        _accumulate(digits, self._planes, np.zeros(self._planes.shape[1], np.uint64))


def _check(signs: Signs, length: int) -> None:
    if signs.dtype != np.uint8 or signs.size != packed_size(length):
        raise InputError(
            f"the packed signs of {length} coordinates are {packed_size(length)} bytes, got {signs.size} {signs.dtype}"
        )


def _pack_signs(values: Vector, positive: NDArray[np.uint32], signless: NDArray[np.uint32]) -> bool:
    """Fill both bit masks, above zero and zero or NaN; return whether any value has no sign."""
    if (library := native.library()) is not None:
        return bool(
            library.pack_signs(native.place(values), values.size, native.place(positive), native.place(signless))
        )
    padded = np.full(positive.size * _LANES, -1, np.float32)
    padded[: values.size] = values
    positive[:] = np.packbits(padded > 0, bitorder="little").view("<u4")
    signless[:] = ~(positive | np.packbits(padded < 0, bitorder="little").view("<u4"))
    return bool(signless.any())


def _full_add(
    a: NDArray[np.uint64], b: NDArray[np.uint64], c: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


def _compress(pending: NDArray[np.uint64], digits: NDArray[np.uint64]) -> None:
    """Add fifteen bits of each coordinate by carry-save adders: eleven of them, four digits out."""
    if (library := native.library()) is not None:
        library.compress(native.place(pending), pending.shape[1], native.place(digits))
        return
    one_a, two_a = _full_add(pending[0], pending[1], pending[2])
    one_b, two_b = _full_add(pending[3], pending[4], pending[5])
    one_c, two_c = _full_add(pending[6], pending[7], pending[8])
    one_d, two_d = _full_add(pending[9], pending[10], pending[11])
    one_e, two_e = _full_add(pending[12], pending[13], pending[14])
    one_f, two_f = _full_add(one_a, one_b, one_c)
    digits[0], two_g = _full_add(one_d, one_e, one_f)
    two_h, four_a = _full_add(two_a, two_b, two_c)
    two_i, four_b = _full_add(two_d, two_e, two_f)
    digits[1], four_c = _full_add(two_g, two_h, two_i)
    digits[2], digits[3] = _full_add(four_a, four_b, four_c)


def _accumulate(digits: NDArray[np.uint64], planes: NDArray[np.uint64], carry: NDArray[np.uint64]) -> None:
    """Add a bit-sliced number to another that has room for the sum; `carry` is zero at first."""
    if (library := native.library()) is not None:
        digits = np.ascontiguousarray(digits)
        places = native.place(digits), len(digits), native.place(planes)
        library.accumulate(*places, len(planes), carry.size, native.place(carry))
        return
    for plane, kept in enumerate(planes):
        if plane < len(digits):
            planes[plane], carry = _full_add(kept, digits[plane], carry)
        else:
            planes[plane], carry = kept ^ carry, kept & carry


def _add_digits(planes: NDArray[np.uint8], shift: int, total: NDArray[np.int32]) -> None:
    """Add up to eight planes to the total: a table spreads eight bits over eight bytes, where the digits meet."""
    if (library := native.library()) is not None:
        places = native.place(planes), len(planes), planes.strides[0], native.place(_SPREAD)
        library.add_digits(*places, shift, native.place(total), total.size)
        return
    for plane, bits in enumerate(planes):
        total += np.unpackbits(bits, count=total.size, bitorder="little").astype(np.int32) << (plane + shift)
