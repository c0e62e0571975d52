"""Many transfers from 128: against a slow twin, and against receivers that cheat."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secagg.ot import twin

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ot.extension import (
    ExtensionReceiver,
    ExtensionSender,
    column_hashes,
    multiply,
    rows_of,
    transpose,
    tweaked_hash,
)


def sides(seed: int = 1, bits: int = 16) -> tuple[ExtensionReceiver, ExtensionSender, Any, list[int]]:
    entropy = KeyedEntropy(seed.to_bytes(32, "little"))
    keys = [(entropy(32), entropy(32)) for _ in range(128)]
    secret = [byte & 1 for byte in entropy(128)]
    chosen = [pair[bit] for pair, bit in zip(keys, secret, strict=True)]
    return (
        ExtensionReceiver(keys, KeyedEntropy(bytes([2]) + bytes(31)), bits),
        ExtensionSender(secret, chosen, KeyedEntropy(bytes([3]) + bytes(31)), bits),
        keys,
        secret,
    )


def packed(bits: np.ndarray) -> np.ndarray:
    return np.packbits(bits, bitorder="little")


def play(receiver: ExtensionReceiver, sender: ExtensionSender, y: np.ndarray, p: np.ndarray) -> tuple[Any, Any, bytes]:
    sent = receiver.choose(packed(y), y.size)
    reply, theirs = sender.answer(receiver.check(sender.challenge(sent, y.size)), p)
    return receiver.shares(reply), theirs, sent + reply


@pytest.mark.parametrize("bits", [16, 32])
def test_shares_add_up_to_the_products_in_every_chunk(bits: int) -> None:
    receiver, sender, _, _ = sides(bits=bits)
    rng = np.random.default_rng(1)
    for transfers in (1, 127, 128, 1000):
        y, p = rng.integers(0, 2, (2, transfers)).astype(np.uint8)
        mine, theirs, _ = play(receiver, sender, y, p)
        np.testing.assert_array_equal(mine + theirs, y * p)
    assert receiver.counter == sender.counter == sum(map(rows_of, (1, 127, 128, 1000)))


def test_the_fast_extension_is_the_slow_one() -> None:
    receiver, sender, keys, secret = sides()
    rng = np.random.default_rng(2)
    play(receiver, sender, *rng.integers(0, 2, (2, 5)).astype(np.uint8))  # so that counters are not zero
    start = receiver.counter
    y, p = rng.integers(0, 2, (2, 40)).astype(np.uint8)
    masks = KeyedEntropy(bytes([2]) + bytes(31))
    masks(16)
    mask = [byte >> bit & 1 for byte in masks(16) for bit in range(8)]

    mine, theirs, _ = play(receiver, sender, y, p)

    choices = [*mask, *y.tolist(), *[0] * 88]
    assert (mine.tolist(), theirs.tolist()) == twin.shares(keys, secret, start, choices, p.tolist(), 16)


def test_vectors() -> None:
    receiver, sender, _, _ = sides(7)
    y, p = np.arange(300, dtype=np.uint8) % 3 % 2, np.arange(300, dtype=np.uint8) % 5 % 2

    mine, theirs, sent = play(receiver, sender, y, p)

    digest = hashlib.sha256(sent + mine.tobytes() + theirs.tobytes()).hexdigest()
    assert digest == "7b1f8a5e9362eb6794eb3d0bd4010196f0af6283dbf589875fc63d143d7c5ca7"


def test_the_hash_and_the_transposition_are_the_twins() -> None:
    rng = np.random.default_rng(3)
    columns = rng.integers(0, 1 << 64, (128, 4), np.uint64, endpoint=False)
    rows = transpose(columns)

    whole = [int.from_bytes(column.tobytes(), "little") for column in columns]
    for row in (0, 1, 63, 64, 200, 255):
        value = int.from_bytes(rows[row].tobytes(), "little")
        assert value == sum((column >> row & 1) << place for place, column in enumerate(whole))
        hashed = tweaked_hash(rows[row : row + 1], 2**40 + row)
        assert int.from_bytes(hashed.tobytes(), "little") == twin.tweaked(value, 2**40 + row)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1), st.integers(0, 2**32))
def test_products_and_hashes_of_columns_are_the_twins(first: int, second: int, seed: int) -> None:
    assert multiply(first, second) == twin.product(first, second)
    columns = np.random.default_rng(seed).integers(0, 1 << 64, (2, 6), np.uint64, endpoint=False)
    hashes = column_hashes(columns, second.to_bytes(16, "little"))
    for column, found in zip(columns, hashes, strict=True):
        bits = np.unpackbits(column.view(np.uint8), bitorder="little").tolist()
        assert int.from_bytes(found.tobytes(), "little") == twin.column_hash(bits, second)


def test_a_receiver_that_chooses_differently_in_one_column_is_caught_and_the_session_ends() -> None:
    """A wrong column passes if its bit of the secret string is 0 (one of two), so flip a bit in twelve columns."""
    receiver, sender, _, secret = sides()
    y = np.zeros(64, np.uint8)
    sent = np.frombuffer(receiver.choose(packed(y), 64), np.uint64).reshape(128, -1).copy()
    wrong = range(12)
    assert any(secret[column] for column in wrong)
    for column in wrong:
        sent[column, 2] ^= np.uint64(1)

    point = sender.challenge(sent.tobytes(), 64)
    with pytest.raises(SecAggError, match="not the same in all columns"):
        sender.answer(receiver.check(point), y)
    with pytest.raises(SecAggError, match="begin a new session"):
        sender.challenge(sent.tobytes(), 64)
    with pytest.raises(SecAggError, match="session is over"):
        sender.answer(receiver.check(point), y)


def test_the_check_is_masked_so_that_it_tells_nothing_about_the_choices() -> None:
    seen = set()
    for fresh in range(4):
        receiver, sender, keys, _ = sides()
        receiver = ExtensionReceiver(keys, KeyedEntropy(bytes([fresh]) * 32))
        point = sender.challenge(receiver.choose(packed(np.ones(64, np.uint8)), 64), 64)
        seen.add(receiver.check(point)[:16])
    assert len(seen) == 4


def test_wrong_lengths_and_wrong_order_are_refused() -> None:
    receiver, sender, _, _ = sides()
    y = np.zeros(10, np.uint8)
    with pytest.raises(SecAggError, match="has begun"):
        receiver.check(bytes(16))
    with pytest.raises(SecAggError, match="choices take 2 bytes"):
        receiver.choose(np.zeros(3, np.uint8), 10)
    sent = receiver.choose(packed(y), 10)
    with pytest.raises(SecAggError, match="before the last one ended"):
        receiver.choose(packed(y), 10)
    with pytest.raises(SecAggError, match="bytes, got"):
        sender.challenge(sent[:-1], 10)
    point = sender.challenge(sent, 10)
    with pytest.raises(SecAggError, match="has 16 bytes"):
        receiver.check(point[:-1])
    with pytest.raises(SecAggError, match="10 bits were expected"):
        sender.answer(receiver.check(point), np.zeros(9, np.uint8))
    with pytest.raises(SecAggError, match="consistency check has"):
        sender.answer(receiver.check(point)[:-1], y)


def test_no_row_serves_two_chunks() -> None:
    receiver, _, _, _ = sides()
    again, _, _, _ = sides()
    same = packed(np.zeros(1000, np.uint8))
    first = receiver.choose(same, 1000)
    receiver.shares(bytes(2000))

    assert receiver.choose(same, 1000) != first == again.choose(same, 1000)
