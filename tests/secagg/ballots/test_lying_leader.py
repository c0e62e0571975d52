"""A leader that leaves the protocol: what the helper checks for itself, whatever its leader says or signs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.secagg.ballots.stage import DOWNLINK, Stage, key

from sottovoce.core.errors import PrivacyError, SecAggError
from sottovoce.secagg.ballots.leader import _entry
from sottovoce.secagg.ballots.message import read
from sottovoce.secagg.ballots.terms import accepted_digest
from sottovoce.secagg.primitives import SIGNATURE, sign


def roll(stage: Stage, round_: int, messages: dict[int, bytes]) -> bytes:
    """Return the roll of any messages: a lying leader checks nothing."""
    envelopes = (read(stage.terms, client, payload)[1] for client, payload in messages.items())
    return round_.to_bytes(8, "little") + DOWNLINK + b"".join(map(_entry, envelopes))


def counted(reply: bytes) -> list[int]:
    body = reply[:-SIGNATURE]
    return [int.from_bytes(body[place : place + 8], "little") for place in range(0, len(body), 8)]


def begun(**keys: int) -> Stage:
    stage = Stage(**keys)
    stage.leader._begin_session()
    return stage


def test_the_helper_opens_no_seed_that_its_client_did_not_sign() -> None:
    """With made-up ballots in the names of all other clients a leader would see one ballot, and fill any floor."""
    stage = begun()
    good = stage.message(1, 0, stage.votes(0))
    forged = {client: stage.message(1, client, stage.votes(client), signing_key=key("leader")) for client in (1, 2)}

    assert counted(stage.helper.answer("roll", roll(stage, 1, {0: good, **forged}))) == [0]


def test_a_ballot_of_one_client_is_none_of_another_with_the_same_key() -> None:
    stage = begun()
    stage.keys[1] = stage.keys[0]
    mine = stage.message(1, 0, stage.votes(0))
    stage.leader.begin(1, [0, 1], DOWNLINK)

    with pytest.raises(SecAggError, match="client 1: the ballot's signature is not its own"):
        stage.leader.accept(1, mine)
    assert counted(stage.helper.answer("roll", roll(stage, 1, {1: mine}))) == []


def test_the_helper_opens_no_single_ballot_though_its_leader_signs_it() -> None:
    stage = begun()
    mine = stage.message(1, 0, stage.votes(0))
    assert counted(stage.helper.answer("roll", roll(stage, 1, {0: mine}))) == [0]
    digest = accepted_digest(stage.terms, 1, [(0, read(stage.terms, 0, mine)[1].commitment)])

    with pytest.raises(SecAggError, match="1 ballots, but 2 are needed"):
        stage.helper.answer("confirm", sign(key("leader"), digest))
    assert not any(line[0] == "reserve" for line in stage.account.log)


def test_the_helper_plays_no_round_that_its_account_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = begun()

    def refuse(round_: int) -> None:
        raise PrivacyError(f"round {round_} was begun before")

    monkeypatch.setattr(stage.account, "check_round", refuse)
    both = {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)}
    with pytest.raises(PrivacyError, match="begun before"):
        stage.helper.answer("roll", roll(stage, 1, both))


@pytest.mark.parametrize("who", ["client 0", "helper", "nobody"])
def test_nobody_but_the_leader_greets_or_confirms(who: str) -> None:
    stage = begun()
    hello = stage.wire[0][1][:-SIGNATURE]
    with pytest.raises(SecAggError, match="not signed by its key"):
        stage.helper.answer("hello", hello + sign(key(who), b"hello" + hello))
    greeted = Stage()
    with pytest.raises(SecAggError, match="request for keys is not signed"):
        greeted.leader._answer = lambda kind, payload: greeted.answer(
            kind, payload if kind == "hello" else payload[:-SIGNATURE] + sign(key(who), payload[:-SIGNATURE])
        )
        greeted.leader._begin_session()
    stage.leader._begin_session()
    both = {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)}
    stage.helper.answer("roll", roll(stage, 1, both))

    with pytest.raises(SecAggError, match="signature of the accepted ballots is wrong"):
        stage.helper.answer("confirm", sign(key(who), stage.helper._digest()))


def test_after_an_answer_that_makes_no_sense_the_leader_begins_with_new_transfers() -> None:
    stage = Stage()
    honest = stage.leader._answer

    def shorter(kind: str, payload: bytes) -> bytes:
        return honest(kind, payload)[: -1 if kind == "check" else None]

    stage.leader._answer = shorter
    with pytest.raises(SecAggError, match="answered by as many words"):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)})
    stage.leader._answer = honest
    again = {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)}

    np.testing.assert_array_equal(stage.count(2, again), stage.votes(0) + stage.votes(1))
    assert [kind for kind, _, _ in stage.wire].count("hello") == 2


def test_a_wrong_guess_of_the_helpers_string_costs_the_session() -> None:
    """Each try costs the leader its round, whose number it cannot use again, and meets a new string."""
    stage = Stage()
    honest = stage.leader._answer

    def guessing(kind: str, payload: bytes) -> bytes:
        if kind != "transfer":
            return honest(kind, payload)
        transfers = stage.helper._transfers
        assert transfers is not None
        column = int(
            np.flatnonzero(transfers.sender._secret)[0]
        )  # a guess that this bit of the string is zero is wrong
        changed = bytearray(payload)
        changed[8 + column * (len(payload) - 8) // 128 + 20] ^= 1
        return honest(kind, bytes(changed))

    stage.leader._answer = guessing
    messages = {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)}
    assert stage.helper._transfers is None
    with pytest.raises(SecAggError, match="not the same in all columns"):
        stage.count(1, messages)

    later = {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)}
    with pytest.raises(SecAggError, match="the helper expects hello"):
        stage.helper.answer("roll", roll(stage, 2, later))
    assert stage.helper._transfers is None
