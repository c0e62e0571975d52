"""Bits by the million: the transposition of 128 columns, and the hash of columns that the check needs.

A column is a string of bits, lowest first, in 64-bit words; so is a row, of 128 bits in two words.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError

__all__ = ["WIDTH", "Words", "column_hashes", "multiply", "transpose"]

WIDTH = 128  # columns, and bits of a row
Words = NDArray[np.uint64]

_WHO = "the count of secret ballots"
_REDUCTION = 0x87  # x^128 = x^7 + x^2 + x + 1


def transpose(columns: Words) -> Words:
    """Return the rows of a matrix of 128 columns: bit i of row j is bit j of column i."""
    if len(columns) != WIDTH:
        raise InputError(f"{WIDTH} columns were expected, got {len(columns)}")
    columns, words = np.ascontiguousarray(columns, np.uint64), columns.shape[1]
    rows = np.empty((words * 64, 2), np.uint64)
    native.required(_WHO).transpose(native.place(columns), words, native.place(rows))
    return rows


def column_hashes(columns: Words, point: bytes) -> Words:
    """Return the hash of each column: its blocks of 128 bits as a polynomial over GF(2^128), evaluated at `point`.

    The first block is the constant term. Hashes are linear, and two different columns of n blocks have the same hash
    for at most n of the 2^128 points.
    """
    columns, table = np.ascontiguousarray(columns, np.uint64), _table(int.from_bytes(point, "little"))
    hashes = np.empty((len(columns), 2), np.uint64)
    compiled = native.required(_WHO)
    compiled.hash_columns(native.place(columns), *columns.shape, native.place(table), native.place(hashes))
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
