"""What each aggregator sees of two chosen ballots, and a distinguisher that is certain as soon as a mask is missing.

A distinguisher sees the transcript of one side for a ballot of ones, or one of zeros, and guesses which it was. In 60
trials a blind one is right 30 times; 48 or more have a probability below 2e-6, for each of the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from tests.secagg.ballots.stage import DOWNLINK, Stage, key

from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ballots import message as messages
from sottovoce.secagg.ballots.comparison import CountsDifferError
from sottovoce.secagg.ot.extension import CHECK_SIZE, ExtensionReceiver

TRIALS = 60
LUCKY = 48
View = Callable[[Stage, int], float]


def right(view: View, *, same_entropy: bool = False) -> int:
    """Return how often the sign of what a side sees is the sign of the ballot, or its opposite: the better of both."""
    hits = 0
    rng = np.random.default_rng(5)
    for trial in range(TRIALS):
        stage = Stage(256, clients=2)
        stage.entropy = KeyedEntropy(key("the same" if same_entropy else f"trial {trial}"))
        stage.leader._entropy = KeyedEntropy(key(f"leader {trial}"))
        vote = int(rng.integers(2)) * 2 - 1
        hits += int((view(stage, vote) > 0) == (vote > 0))
    return max(hits, TRIALS - hits)


def cast_and_count(stage: Stage, vote: int) -> bytes:
    mine = stage.message(1, 0, np.full(256, vote))
    with suppress(CountsDifferError):  # a mutant's counts may differ; what was sent until then is seen all the same
        stage.count(1, {0: mine, 1: stage.message(1, 1, stage.votes(9))})
    return mine


def leaders_view(stage: Stage, vote: int) -> float:
    """The leader sees the masked ballot: more ones than zeros?"""
    mine = cast_and_count(stage, vote)
    return float(np.unpackbits(np.frombuffer(mine[:32], np.uint8)).mean() - 0.5)


def leaders_words(stage: Stage, vote: int) -> float:
    """The leader sees w, which holds the pad: do its words agree with the masked ballot in parity?"""
    mine = cast_and_count(stage, vote)
    reply = next(reply for kind, _, reply in stage.wire if kind == "check")
    words = np.frombuffer(reply[CHECK_SIZE:], np.uint16)[:256]
    masked = np.unpackbits(np.frombuffer(mine[:32], np.uint8), bitorder="little")
    return float(((words & 1) ^ masked).mean() - 0.5)


def helpers_view(stage: Stage, vote: int) -> float:
    """The helper sees u and knows the pad: is any column, with the pad taken off, mostly ones?"""
    cast_and_count(stage, vote)
    sent = next(payload for kind, payload, _ in stage.wire if kind == "transfer")[8:]
    columns = np.frombuffer(sent, np.uint8).reshape(128, -1)[:, 16 : 16 + 32]
    _, pad = helpers_opening(stage)
    return float(np.unpackbits(columns ^ pad).mean() - 0.5)


def helpers_guesses(stage: Stage, vote: int) -> float:
    """The helper knows the pad, so it tries both ballots: does the envelope, or a hash in it, know one of them?"""
    cast_and_count(stage, vote)
    envelope, pad = helpers_opening(stage)
    known = b"".join(envelope[1:])
    sure = [
        any(told in known for told in _tellings((np.full(32, 255 * bit, np.uint8) ^ pad).tobytes())) for bit in (0, 1)
    ]
    if sure[0] != sure[1]:
        return 1.0 if sure[1] else -1.0
    return float(np.unpackbits(np.frombuffer(known, np.uint8)).mean() - 0.5)


def _tellings(masked: bytes) -> list[bytes]:
    """Return what would tell a masked ballot: the ballot, its hash, and a commitment whose blind everybody knows."""
    return [masked, hashlib.sha256(masked).digest(), messages.commit(masked, b""), messages.commit(masked, bytes(16))]


def helpers_opening(stage: Stage) -> tuple[messages.HelperEnvelope, np.ndarray]:
    """Return the envelope of client 0 as the helper was sent it, and the pad, which its own key opens."""
    roll = next(payload for kind, payload, _ in stage.wire if kind == "roll")[8 + 32 :]
    envelope = messages.unpack_envelope(0, roll[8 : 8 + 32], roll[8 + 32 : 8 + 32 + messages.ENVELOPE])
    context = stage.terms.context(1, 0, DOWNLINK)
    seed = messages.open_seed(stage.terms, envelope, context, key("exchange"))
    return envelope, messages.pad_of(stage.terms, context, seed).take(32)


@pytest.mark.parametrize("view", [leaders_view, leaders_words, helpers_view, helpers_guesses])
def test_a_distinguisher_is_at_chance(view: View) -> None:
    assert right(view) < LUCKY


def test_it_is_certain_for_the_leader_if_there_is_no_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages.Pad, "take", lambda self, size: np.zeros(size, np.uint8))

    assert right(leaders_view) == TRIALS


def test_it_is_certain_for_the_leader_if_w_is_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.secagg.ot import extension

    monkeypatch.setattr(extension, "tweaked_hash", lambda rows, first: np.zeros_like(rows))

    assert right(leaders_words) == TRIALS


def test_it_is_certain_for_the_helper_if_both_streams_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    init = ExtensionReceiver.__init__

    def careless(self: ExtensionReceiver, keys: list[tuple[bytes, bytes]], *rest: object) -> None:
        init(self, [(zero, zero) for zero, _ in keys], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ExtensionReceiver, "__init__", careless)
    monkeypatch.setattr("sottovoce.secagg.ot.extension.ExtensionSender._verify", lambda *_: None)

    assert right(helpers_view) == TRIALS


@pytest.mark.parametrize("blind", ["left out", "known"])
def test_it_is_certain_for_the_helper_if_a_bare_hash_of_the_masked_ballot_is_sent(
    blind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The helper knows the pad: whoever tells it a hash of ballot xor pad tells it the ballot that it suspects."""
    commit = messages.commit
    monkeypatch.setattr(messages, "commit", lambda masked, _: commit(masked, b"" if blind == "left out" else bytes(16)))

    assert right(helpers_guesses) == TRIALS


def test_two_ballots_of_a_client_never_share_a_pad() -> None:
    """A reused pad shows the leader where two ballots differ."""
    stage = Stage(256, clients=2)
    same = np.ones(256)
    first, second = (stage.message(round_, 0, same)[:32] for round_ in (1, 2))
    again = Stage(256, clients=2)
    third = again.message(2, 0, same)[:32]  # the first seed of `again` is the one that round 1 used

    ones = [
        np.unpackbits(np.frombuffer(a, np.uint8) ^ np.frombuffer(b, np.uint8)).mean()
        for a, b in ((first, second), (first, third))
    ]
    # 256 fair bits are within 0.5 +- 0.19 but for one case in 10^9.
    assert all(abs(share - 0.5) < 0.19 for share in ones)
