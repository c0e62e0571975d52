"""Expand keys to masks and add them, word by word, modulo a power of two.

A mask is the AES-256-CTR keystream of its key read as little-endian words of 8, 16 or 32 bits, whichever first holds b.
Sums wrap at the word, and 2^b divides 2^word, so the lowest b bits are an exact sum modulo 2^b; those of a uniform
word are uniform. A key expands once, so the counter starts at zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.wire import Buffer, Words, unpack_bits

Sum = NDArray[np.unsignedinteger]
"""A running sum: words of 8, 16 or 32 bits that wrap."""

# Keystream and sum stay in the second-level cache between the cipher and the addition, and the buffer is small enough
# for malloc to hand out the same pages again.
_CHUNK: Final = 3 << 15
_ZEROS: Final = bytes(_CHUNK)


def new_sum(length: int, bits: int, words: Words | None = None) -> Sum:
    """Return zeros, or a copy of `words`, in integers wide enough for `bits` bits."""
    dtype: type[np.unsignedinteger] = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    return np.zeros(length, dtype) if words is None else words.astype(dtype)


def add_mask(total: Sum, key: bytes, sign: int) -> None:
    """Add (sign +1) or subtract (sign -1) the mask of `key` in place."""
    combine = np.add if sign > 0 else np.subtract
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    stream = bytearray(min(_CHUNK, total.nbytes))
    zeros, view = memoryview(_ZEROS)[: len(stream)], memoryview(stream)
    words = np.frombuffer(stream, total.dtype.newbyteorder("<"))
    for start in range(0, total.size, words.size):
        part = total[start : start + words.size]
        if part.size < words.size:
            zeros, view, words = zeros[: part.nbytes], view[: part.nbytes], words[: part.size]
        cipher.update_into(zeros, view)
        combine(part, words, out=part)


def add_packed(total: Sum, packed: Buffer, bits: int) -> None:
    """Add words that are packed to `bits` bits each, without unpacking them to memory first."""
    source = np.frombuffer(packed, np.uint8)
    if (library := native.library()) is None:
        total += unpack_bits(source, bits, total.size).astype(total.dtype)
        return
    add = getattr(library, f"add_packed_{8 * total.itemsize}")
    add(native.place(total), total.size, native.place(source), source.size, bits)


def reduce(total: Sum, bits: int) -> Words:
    """Return the sum modulo 2^bits as 32-bit words."""
    return total.astype(np.uint32) & np.uint32((1 << bits) - 1)
