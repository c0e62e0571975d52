"""Phantom ballots: coins that leader and helper toss by the transfers of a count, and what a deviating side can do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.secagg.ballots.stage import Stage, without_base_transfers

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ballots.comparison import CountsDifferError
from sottovoce.secagg.ot.extension import CHECK_SIZE

COINS = (4, 3, 2, 5)
LENGTH = 40


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_base_transfers(monkeypatch)


@pytest.mark.parametrize("bits", [16, 32])
def test_what_is_opened_are_the_votes_and_the_coins(bits: int) -> None:
    stage = Stage(LENGTH, bits=bits, coins=COINS)
    for round_ in (1, 2):
        cast = {client: stage.votes(10 * round_ + client) for client in range(4)}
        opened = stage.count(round_, {client: stage.message(round_, client, votes) for client, votes in cast.items()})

        assert (opened == sum(cast.values()) + stage.coins(round_)).all()


def test_coins_are_opened_where_nobody_voted() -> None:
    stage = Stage(LENGTH, coins=COINS)

    assert (stage.count(1, {}) == stage.coins(1)).all()


def test_a_side_that_does_not_toss_is_refused() -> None:
    stage = Stage(LENGTH, coins=COINS)
    stage.leader._toss = None

    with pytest.raises(SecAggError, match="14 coins of 5 bytes"):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in range(2)})


class Cheating(Stage):
    """One side adds errors to the words of some coins' rows, which are below those of two ballots."""

    only: int | None  # the coordinate with errors; None: all

    def __init__(self, deviates: str, errors: dict[int, int]) -> None:
        super().__init__(LENGTH, clients=2, coins=COINS)
        self.deviates, self.errors, self.only = deviates, errors, None
        self.leader._answer = self.deviating

    def deviating(self, kind: str, payload: bytes) -> bytes:
        if kind == "words" and self.deviates == "leader":
            payload = self.wrong(payload)
        reply = self.answer(kind, payload)
        if kind == "check" and self.deviates == "helper":
            reply = reply[:CHECK_SIZE] + self.wrong(reply[CHECK_SIZE:])
        return reply

    def wrong(self, words: bytes) -> bytes:
        changed = np.frombuffer(words, np.uint16).reshape(-1, LENGTH).copy()
        for coin, error in self.errors.items():
            changed[2 + coin, slice(None) if self.only is None else self.only] += np.uint16(error)
        return changed.tobytes()


# Rows 0 to 3 are the lightest coins. 2,047 makes a heavy coin of one; 1 and -1 cancel out in a plain sum; 2^13 and 2^15
# vanish under a weight of 8 and in a sum that is doubled.
@pytest.mark.parametrize("deviates", ["leader", "helper"])
@pytest.mark.parametrize("errors", [{0: 2047}, {0: 1, 1: -1 % 65536}, {9: 1 << 13}, {4: 1 << 15}])
def test_errors_on_coins_end_the_run_before_anything_is_opened(deviates: str, errors: dict[int, int]) -> None:
    stage = Cheating(deviates, errors)
    messages = {client: stage.message(1, client, stage.votes(client)) for client in range(2)}

    with pytest.raises(CountsDifferError):
        stage.count(1, messages)
    assert all(kind != "open" for kind, _, _ in stage.wire) and ("charge", 1) not in stage.account.log


@pytest.mark.parametrize("deviates", ["leader", "helper"])
def test_errors_that_cancel_out_over_coins_are_seen(deviates: str) -> None:
    stage = Cheating(deviates, {})
    other = stage.tosser("helper" if deviates == "leader" else "leader")(1)
    bits = np.unpackbits(other, axis=1, count=LENGTH, bitorder="little")
    place = int(np.flatnonzero(bits[0] & bits[9])[0])  # the other's bits are 1 there, so both errors count
    stage.errors, stage.only = {0: 5, 9: -5 % 65536}, place  # a coin of weight 1, and one of weight 8

    with pytest.raises(CountsDifferError):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in range(2)})


def test_both_sides_must_agree_on_the_coins() -> None:
    stage, other = Stage(LENGTH, coins=COINS), Stage(LENGTH, coins=(4, 3, 2, 7))
    plain = Stage(LENGTH)

    assert len({stage.terms.digest(), other.terms.digest(), plain.terms.digest()}) == 3
    stage.helper = other.helper
    with pytest.raises(SecAggError, match="other terms"):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in range(2)})
