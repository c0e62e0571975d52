"""Turn updates into packed signs, count votes without unpacking them, and step by a vote.

Packed signs have one bit for each coordinate: 1 for +1 and 0 for -1, lowest bit first. The bits after the last
coordinate are zero. Nothing but +1 and -1 can be expressed: the sign of a zero is drawn at random.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector

__all__ = ["Signs", "Tally", "expand", "pack_signs", "packed_size", "step"]

Signs = NDArray[np.uint8]

_LANES: Final = 32  # coordinates read at once by `_pack_signs`
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
    last = np.full(_LANES, -1, np.float32)
    last[: values.size % _LANES] = values[values.size - values.size % _LANES :]
    if _pack_signs(values, last, positive, signless):
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
    moved = np.empty(params.size, np.float32)
    _step(params, signs, np.float32(size), moved)
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
            _add_digits(self._planes.view(np.uint8)[low : low + 8, :size], _SPREAD, np.int32(low + 1), total)
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


def _compare(typing_context: Any, values: Any, start: Any) -> Any:
    """Compare 32 floats with zero at once: bits of those above it, bits of those that are zero or NaN.

    A loop of shifts takes three times as long as this, which becomes a handful of vector compares and mask moves.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, arguments[0])  # type: ignore[no-untyped-call]
        vector = ir.VectorType(ir.FloatType(), _LANES)
        pointer = builder.gep(array.data, [arguments[1]])
        lanes = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        lanes.align = 4
        zero = ir.Constant(vector, [0.0] * _LANES)
        above = builder.bitcast(builder.fcmp_ordered(">", lanes, zero), ir.IntType(_LANES))
        signless = builder.bitcast(builder.fcmp_unordered("==", lanes, zero), ir.IntType(_LANES))
        return context.make_tuple(builder, signature.return_type, [above, signless])

    return types.UniTuple(types.uint32, 2)(values, start), generate  # type: ignore[no-untyped-call]


_signs: Any = intrinsic(_compare)


@njit(cache=True, nogil=True)
def _pack_signs(values, last, positive, signless):  # type: ignore[no-untyped-def]
    """Fill both bit masks; `last` stands for the values after the last whole word. Return whether any is signless."""
    found = np.uint32(0)
    whole = values.size // _LANES
    for word in range(whole):
        positive[word], signless[word] = _signs(values, np.int64(_LANES * word))
        found |= signless[word]
    if whole < positive.size:
        positive[whole], signless[whole] = _signs(last, np.int64(0))
        found |= signless[whole]
    return found != 0


@njit(cache=True, nogil=True)
def _step(params, signs, size, moved):  # type: ignore[no-untyped-def]
    for byte in range(params.size // 8):
        bits = np.int32(signs[byte])
        for bit in range(8):
            moved[8 * byte + bit] = params[8 * byte + bit] + (size if (bits >> bit) & 1 else -size)
    for index in range(params.size // 8 * 8, params.size):
        moved[index] = params[index] + (size if (signs[index // 8] >> (index % 8)) & 1 else -size)


@njit(inline="always")
def _full_add(a, b, c):  # type: ignore[no-untyped-def]
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


@njit(cache=True, nogil=True)
def _compress(pending, digits):  # type: ignore[no-untyped-def]
    """Add fifteen bits of each coordinate by carry-save adders: eleven of them, four digits out."""
    for word in range(pending.shape[1]):
        one_a, two_a = _full_add(pending[0, word], pending[1, word], pending[2, word])
        one_b, two_b = _full_add(pending[3, word], pending[4, word], pending[5, word])
        one_c, two_c = _full_add(pending[6, word], pending[7, word], pending[8, word])
        one_d, two_d = _full_add(pending[9, word], pending[10, word], pending[11, word])
        one_e, two_e = _full_add(pending[12, word], pending[13, word], pending[14, word])
        one_f, two_f = _full_add(one_a, one_b, one_c)
        one, two_g = _full_add(one_d, one_e, one_f)
        two_h, four_a = _full_add(two_a, two_b, two_c)
        two_i, four_b = _full_add(two_d, two_e, two_f)
        two, four_c = _full_add(two_g, two_h, two_i)
        four, eight = _full_add(four_a, four_b, four_c)
        digits[0, word] = one
        digits[1, word] = two
        digits[2, word] = four
        digits[3, word] = eight


@njit(cache=True, nogil=True)
def _accumulate(digits, planes, carry):  # type: ignore[no-untyped-def]
    """Add a bit-sliced number to another that has room for the sum; `carry` is zero at first."""
    for plane in range(planes.shape[0]):
        if plane < digits.shape[0]:
            for word in range(carry.size):
                planes[plane, word], carry[word] = _full_add(planes[plane, word], digits[plane, word], carry[word])
        else:
            for word in range(carry.size):
                kept = planes[plane, word]
                planes[plane, word] = kept ^ carry[word]
                carry[word] &= kept


@njit(cache=True, nogil=True)
def _add_digits(planes, spread, shift, total):  # type: ignore[no-untyped-def]
    """Add up to eight planes to the total: a table spreads eight bits over eight bytes, where the digits meet."""
    whole = total.size // 8
    for byte in range(planes.shape[1]):
        counts = np.uint64(0)
        for plane in range(planes.shape[0]):
            counts |= spread[planes[plane, byte]] << np.uint64(plane)
        if byte < whole:
            for bit in range(8):
                total[8 * byte + bit] += np.int32((counts >> np.uint64(8 * bit)) & np.uint64(255)) << shift
        else:
            for bit in range(total.size - 8 * byte):
                total[8 * byte + bit] += np.int32((counts >> np.uint64(8 * bit)) & np.uint64(255)) << shift
