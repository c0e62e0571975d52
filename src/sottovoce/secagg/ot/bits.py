"""Bits by the million: the transposition of 128 columns, and the hash of columns that the check needs.

A column is a string of bits, lowest first, in 64-bit words; so is a row, of 128 bits in two words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["WIDTH", "Words", "column_hashes", "multiply", "transpose"]

WIDTH = 128  # columns, and bits of a row
Words = NDArray[np.uint64]

_REDUCTION = 0x87  # x^128 = x^7 + x^2 + x + 1


def transpose(columns: Words) -> Words:
    """Return the rows of a matrix of 128 columns: bit i of row j is bit j of column i."""
    rows = np.empty((columns.shape[1] * 64, 2), np.uint64)
    _transpose(columns, rows)
    return rows


def column_hashes(columns: Words, point: bytes) -> Words:
    """Return the hash of each column: its blocks of 128 bits as a polynomial over GF(2^128), evaluated at `point`.

    The first block is the constant term. Hashes are linear, and two different columns of n blocks have the same hash
    for at most n of the 2^128 points.
    """
    hashes = np.zeros((columns.shape[0], 2), np.uint64)
    _evaluate(columns, _table(int.from_bytes(point, "little")), hashes)
    return hashes


def multiply(first: int, second: int) -> int:
    """Return a product in GF(2^128), bit by bit; lowest bit is the constant term."""
    product = 0
    while second:
        if second & 1:
            product ^= first
        first <<= 1
        if first >> WIDTH:
            first ^= 1 << WIDTH | _REDUCTION
        second >>= 1
    return product


def _table(point: int) -> Words:
    """Return, for each of 16 places and 256 values of a byte there, its product with `point`."""
    shifted = [point]
    for _ in range(WIDTH - 1):
        doubled = shifted[-1] << 1
        shifted.append(doubled ^ (1 << WIDTH | _REDUCTION) if doubled >> WIDTH else doubled)
    table = np.zeros((16, 256, 2), np.uint64)
    low = (1 << 64) - 1
    for place in range(16):
        for bit in range(8):
            value = shifted[8 * place + bit]
            size = 1 << bit
            table[place, size : 2 * size] = table[place, :size] ^ np.array([value & low, value >> 64], np.uint64)
    return table


@njit(cache=True, nogil=True)
def _transpose(columns: Any, rows: Any) -> None:
    block = np.empty(64, np.uint64)
    for half in range(2):
        for word in range(columns.shape[1]):
            for index in range(64):
                block[index] = columns[64 * half + index, word]
            # Swap ever smaller squares across the diagonal (Warren, Hacker's Delight, 7-3).
            size = 32
            mask = np.uint64(0x00000000FFFFFFFF)
            while size:
                place = 0
                while place < 64:
                    shift = np.uint64(size)
                    moved = ((block[place] >> shift) ^ block[place + size]) & mask
                    block[place] ^= moved << shift
                    block[place + size] ^= moved
                    place = (place + size + 1) & ~size
                size >>= 1
                if size:
                    mask ^= mask << np.uint64(size)
            for index in range(64):
                rows[64 * word + index, half] = block[index]


@njit(cache=True, nogil=True)
def _evaluate(columns: Any, table: Any, hashes: Any) -> None:
    byte = np.uint64(255)
    for column in range(columns.shape[0]):
        low, high = np.uint64(0), np.uint64(0)
        for block in range(columns.shape[1] // 2 - 1, -1, -1):
            next_low, next_high = columns[column, 2 * block], columns[column, 2 * block + 1]
            for place in range(8):
                shift = np.uint64(8 * place)
                lower = table[place, (low >> shift) & byte]
                upper = table[place + 8, (high >> shift) & byte]
                next_low ^= lower[0] ^ upper[0]
                next_high ^= lower[1] ^ upper[1]
            low, high = next_low, next_high
        hashes[column, 0] = low
        hashes[column, 1] = high
