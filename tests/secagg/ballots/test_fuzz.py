"""Whatever bytes a registered client sends, it adds one vote a coordinate or nothing.

The attacker of these tests has a registered key: it may sign whatever it likes.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.secagg.ballots.stage import DOWNLINK, Stage

from sottovoce.core.errors import SottovoceError
from sottovoce.secagg.ballots import message as messages
from sottovoce.secagg.ballots.message import BLIND, SEAL
from sottovoce.secagg.primitives import SIGNATURE, sign

ATTACKER = 2


def signed(stage: Stage, round_: int, masked: bytes, ephemeral: bytes, sealed: bytes) -> bytes:
    """Return any three parts of a message, with a blind of zeros and a signature that holds."""
    context, blind = stage.terms.context(round_, ATTACKER, DOWNLINK), bytes(BLIND)
    text = messages._signed(context, messages.commit(masked, blind), ephemeral, sealed)
    return masked + blind + ephemeral + sealed + sign(stage.signing(ATTACKER), text)


def attack(stage: Stage, round_: int, rng: np.random.Generator, old: list[bytes], honest: list[bytes]) -> bytes:
    """Return some bytes: random, mutated, replayed, spliced, or signed nonsense."""
    own = stage.message(round_, ATTACKER, stage.votes(int(rng.integers(1 << 30))))
    size = len(own) - SEAL
    parts = own[size + BLIND : size + BLIND + 32], own[size + BLIND + 32 : -SIGNATURE]
    kind = int(rng.integers(9))
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 2 * len(own))))
    if kind == 1:
        return rng.bytes(len(own))
    if kind == 2:
        changed = bytearray(own)
        for _ in range(int(rng.integers(1, 6))):
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
        return bytes(changed)
    if kind == 3:
        return own[: int(rng.integers(len(own)))] + rng.bytes(int(rng.integers(4)))
    if kind == 4 and old:
        return old[int(rng.integers(len(old)))]
    if kind == 5:
        other = honest[int(rng.integers(len(honest)))]
        cut = int(rng.integers(len(own)))
        return own[:cut] + other[cut:]
    if kind == 6:  # any masked ballot under an honest seal of its own is a ballot: one that it does not know
        masked = bytearray(rng.bytes(size))
        masked[-1] &= 0xFF >> -stage.terms.length % 8
        return signed(stage, round_, bytes(masked), *parts)
    if kind == 7:
        return signed(stage, round_, own[:size], rng.bytes(32), rng.bytes(len(parts[1])))
    return own


def fuzz(tries: int) -> dict[str, int]:
    stage, rng = Stage(43, clients=3, most=10**9), np.random.default_rng(18)
    old: list[bytes] = []
    found = {"counted": 0, "nothing": 0}
    for round_ in range(1, tries + 1):
        votes = [stage.votes(2 * round_ + client) for client in (0, 1)]
        honest = [stage.message(round_, client, votes[client]) for client in (0, 1)]
        bad = attack(stage, round_, rng, old, honest)
        old = [*old[-20:], bad]

        counted = stage.count(round_, {0: honest[0], 1: honest[1], ATTACKER: bad}, refused={})

        added = counted - votes[0] - votes[1]
        assert (np.abs(added) == 1).all() or not added.any(), f"message {round_} added {added}"
        found["counted" if added.any() else "nothing"] += 1
    return found


def test_any_bytes_add_one_vote_a_coordinate_or_nothing() -> None:
    found = fuzz(150)

    assert min(found.values()) > 10


@pytest.mark.slow
@pytest.mark.skipif("SOTTOVOCE_SLOW" not in os.environ, reason="takes a minute; set SOTTOVOCE_SLOW to run it")
def test_ten_thousand_messages_add_one_vote_a_coordinate_or_nothing() -> None:
    found = fuzz(10_000)

    assert min(found.values()) > 500


def test_no_request_of_random_bytes_brings_the_helper_down() -> None:
    stage, rng = Stage(), np.random.default_rng(4)
    for _ in range(100):
        kind = str(rng.choice(["keys", "roll", "confirm", "transfer", "check", "words", "compare", "prove", "open"]))
        with pytest.raises(SottovoceError):
            stage.helper.answer(kind, rng.bytes(int(rng.integers(1, 400))))
    both = {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)}
    np.testing.assert_array_equal(stage.count(2, both), stage.votes(0) + stage.votes(1))
