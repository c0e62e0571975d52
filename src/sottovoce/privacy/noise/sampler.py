"""Draw from tabulated discrete Gaussians, exactly, more than a hundred million times a second.

A draw compares 64 random bits with the high halves of the thresholds; only a tie (once in about 2^60 draws) reads 64
more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, RunError
from sottovoce.privacy.noise.randomness import Bits
from sottovoce.privacy.noise.table import Tables

CHUNK: Final = 1 << 15
OUT_OF_BITS: Final = "the sampler ran out of bits for ties, which says that its random bits are not random"
SPARE: Final = 64  # words for ties, per call; needing them all has a probability below 2^-3000

Centres = NDArray[np.int32]
Words = NDArray[np.uint32]


def draw(tables: Tables, centres: Centres, bits: Bits, *, modulus_bits: int = 32) -> Words:
    """Return one draw for each centre, modulo 2^modulus_bits.

    A centre is `row + rows * base`: the draw is `base` plus a draw from that row's table. With `fraction_tables` that
    is a discrete Gaussian around centre / 2^precision.

    Guarantee: every draw is within 2^-119 of its discrete Gaussian, given uniform bits.
    """
    if tables.rows & (tables.rows - 1):
        raise InputError(f"the number of tables must be a power of two, got {tables.rows}")
    words = np.empty(centres.size, np.uint32)
    spare = bits.take(SPARE)
    used = 0
    buffer = np.empty(min(CHUNK, centres.size), np.uint64)
    for start in range(0, centres.size, CHUNK):
        part = slice(start, min(start + CHUNK, centres.size))
        numbers = buffer[: part.stop - part.start]
        bits.fill(numbers)
        used = invert(tables, centres[part], numbers, spare, used, words[part], modulus_bits)
    return words


def invert(
    tables: Tables,
    centres: Centres,
    numbers: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    used: int,
    words: Words,
    modulus_bits: int = 32,
) -> int:
    """Write the outcomes of given random numbers into `words`; return how many spare numbers are used up by now."""
    centres, numbers = np.ascontiguousarray(centres), np.ascontiguousarray(numbers)
    mask = (1 << modulus_bits) - 1
    if (library := native.library()) is None:
        used = _plain_invert(tables, centres, numbers, spare, used, words, np.uint32(mask))
    else:
        used = library.invert(
            *described(tables, modulus_bits)[:-1],
            native.place(centres),
            centres.size,
            native.place(numbers),
            native.place(spare),
            spare.size,
            used,
            native.place(words),
            mask,
        )
    if used < 0:
        raise RunError(OUT_OF_BITS)
    return int(used)


def described(tables: Tables, modulus_bits: int) -> tuple[int, ...]:
    """Return tables as the compiled functions take them, and the mask of the modulus."""
    places = tuple(native.place(table) for table in (tables.high, tables.low, tables.guide))
    sizes = (tables.rows - 1, tables.rows.bit_length() - 1, tables.high.shape[1], tables.guide_bits, tables.first)
    return (*places, *sizes, (1 << modulus_bits) - 1)


def _plain_invert(
    tables: Tables,
    centres: Centres,
    numbers: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    used: int,
    words: Words,
    mask: np.uint32,
) -> int:
    rows = centres & np.int32(tables.rows - 1)
    base = centres >> np.int32(tables.rows.bit_length() - 1)
    outcomes = tables.guide[rows, numbers >> np.uint64(64 - tables.guide_bits)].astype(np.int64)
    open_ = np.arange(centres.size)
    ties: list[int] = []
    while open_.size:
        tops = tables.high[rows[open_], outcomes[open_]]
        ties += open_[numbers[open_] == tops].tolist()
        open_ = open_[numbers[open_] > tops]
        outcomes[open_] += 1
    for index in sorted(ties):  # the first 64 bits do not decide; spare bits are used in the order of the draws
        if used >= spare.size:
            return -1
        extra, row, outcome = spare[used], rows[index], outcomes[index]
        used += 1
        high, low = tables.high[row], tables.low[row]
        while outcome < high.size - 1 and high[outcome] == numbers[index] and extra >= low[outcome]:
            outcome += 1
        outcomes[index] = outcome
    words[:] = (base + np.int32(tables.first) + outcomes.astype(np.int32)).view(np.uint32) & mask
    return used
