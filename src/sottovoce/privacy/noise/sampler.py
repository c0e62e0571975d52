"""Draw from tabulated discrete Gaussians, exactly, more than a hundred million times a second.

A draw compares 64 random bits with the high halves of the thresholds; only a tie (once in about 2^60 draws) reads 64
more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.privacy.noise.randomness import Bits
from sottovoce.privacy.noise.table import Tables

__all__ = ["draw", "invert"]

CHUNK: Final = 1 << 15
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
    used = _invert(
        tables.high.reshape(-1),
        tables.low.reshape(-1),
        tables.guide.reshape(-1),
        np.uint32(tables.rows - 1),
        np.uint32(tables.rows.bit_length() - 1),
        tables.high.shape[1],
        np.uint64(tables.guide_bits),
        tables.first,
        centres,
        numbers,
        spare,
        used,
        words,
        np.uint32((1 << modulus_bits) - 1),
    )
    if used < 0:
        raise RunError("the sampler ran out of bits for ties, which says that its random bits are not random")
    return int(used)


@njit(cache=True, nogil=True, boundscheck=False)
def _invert(  # type: ignore[no-untyped-def]
    high, low, guide, row_mask, row_bits, outcomes, guide_bits, first, centres, numbers, spare, used, words, mask
):
    shift = np.uint64(64) - guide_bits
    for index in range(centres.size):
        number = numbers[index]
        row = np.uint64(np.uint32(centres[index]) & row_mask)
        base = centres[index] >> np.int32(row_bits)
        offset = row * np.uint64(outcomes)
        outcome = np.uint64(guide[(row << guide_bits) + (number >> shift)])
        top = high[offset + outcome]
        while number >= top:
            if number == top:
                # The first 64 bits do not decide. Later thresholds may share them: read the next 64 bits once.
                if used >= spare.size:
                    return -1
                extra = spare[used]
                used += 1
                last = np.uint64(outcomes - 1)
                while outcome < last and high[offset + outcome] == number and extra >= low[offset + outcome]:
                    outcome += np.uint64(1)
                break
            outcome += np.uint64(1)
            top = high[offset + outcome]
        words[index] = np.uint32(base + np.int32(first) + np.int32(outcome)) & mask
    return used
