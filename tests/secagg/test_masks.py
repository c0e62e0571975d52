"""Masks are the keystream, cancel exactly, and look like nothing."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sottovoce.core import wire
from sottovoce.secagg import masks

KEY = bytes(range(32))


def slow_mask(key: bytes, length: int, bits: int) -> NDArray[np.uint32]:
    """Be the obvious twin: the whole keystream at once, read as words, lowest b bits of each."""
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(length * width))
    return np.frombuffer(stream, f"<u{width}").astype(np.uint32) & np.uint32((1 << bits) - 1)


@pytest.mark.parametrize("length", [1, 7, 65_536, 65_537, 200_003])
@pytest.mark.parametrize("bits", [1, 8, 9, 13, 16, 17, 32])
def test_a_mask_is_the_keystream_word_by_word(length: int, bits: int) -> None:
    total = masks.new_sum(length, bits)
    masks.add_mask(total, KEY, +1)

    assert np.array_equal(masks.reduce(total, bits), slow_mask(KEY, length, bits))


def test_the_first_keystream_block_is_the_published_one() -> None:
    """AES-256 of the all-zero block under the key 00 01 .. 1f begins f2 90 00 b6 (computed with the openssl tool)."""
    total = masks.new_sum(4, 8)
    masks.add_mask(total, KEY, +1)

    assert total.tobytes() == bytes.fromhex("f29000b6")


@given(bits=st.integers(1, 32), length=st.integers(1, 200))
def test_adding_and_subtracting_a_mask_is_nothing(bits: int, length: int) -> None:
    words = np.arange(length, dtype=np.uint32) & np.uint32((1 << bits) - 1)
    total = masks.new_sum(length, bits, words)
    masks.add_mask(total, KEY, +1)
    masks.add_mask(total, KEY, -1)

    assert np.array_equal(masks.reduce(total, bits), words)


@given(bits=st.integers(1, 32), length=st.integers(1, 300), seed=st.integers(0, 99))
def test_adding_packed_words_is_unpacking_and_adding(bits: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 1 << bits, (2, length), dtype=np.uint32)
    total = masks.new_sum(length, bits, first)

    masks.add_packed(total, memoryview(wire.pack_bits(second, bits).tobytes()), bits)

    assert np.array_equal(masks.reduce(total, bits), (first + second) & np.uint32((1 << bits) - 1))


@pytest.mark.parametrize("bits", [8, 13])
def test_masks_are_uniform_and_a_modulus_that_is_one_short_is_not(bits: int) -> None:
    """False alarms: one in a million; Flower draws from [0, 2^b - 2], which the same test must catch at 8 bits."""
    draws = slow_mask(KEY, 1 << 20, bits)
    counts = np.bincount(draws, minlength=1 << bits)
    assert stats.chisquare(counts).pvalue > 1e-6

    short = np.bincount(draws % np.uint32((1 << bits) - 1), minlength=1 << bits)
    if bits == 8:
        assert stats.chisquare(short).pvalue < 1e-6
