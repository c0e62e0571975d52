"""Ballots that count, and those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.secagg.ballots.stage import DOWNLINK, Stage, key

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.ballots import Leader, ballot_size, bytes_between, chunks


@pytest.mark.parametrize(("length", "bits"), [(1, 16), (7, 16), (8, 32), (129, 16), (1000, 32)])
def test_the_count_is_the_sum_of_votes_chunk_by_chunk(length: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_TARGET", 700)
    stage = Stage(length, clients=5, bits=bits, noise=3)
    for round_ in (1, 2):
        votes = [stage.votes(10 * round_ + client) for client in range(5)]
        messages = {client: stage.message(round_, client, votes[client]) for client in range(5)}

        counted = stage.count(round_, messages)

        assert all(len(message) == ballot_size(length) for message in messages.values())
        np.testing.assert_array_equal(counted, np.sum(votes, axis=0) + 3 * round_)


def test_a_round_without_ballots_opens_noise_alone_and_is_charged() -> None:
    stage = Stage(noise=5)

    np.testing.assert_array_equal(stage.count(1, {}), np.full(40, 5))
    assert stage.account.log[-1] == ("charge", 1)


def test_one_ballot_is_not_opened() -> None:
    stage = Stage()

    with pytest.raises(SecAggError, match="1 ballots, but 2 are needed"):
        stage.count(1, {0: stage.message(1, 0, stage.votes(0))})
    assert ("charge", 1) not in stage.account.log
    assert not any(entry[0] == "reserve" for entry in stage.account.log)
    both = {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)}
    np.testing.assert_array_equal(stage.count(2, both), stage.votes(0) + stage.votes(1))  # the next round works


def _wrong(stage: Stage) -> dict[str, bytes]:
    good, votes = stage.message(1, 3, stage.votes(3)), stage.votes(3)
    other = replace(stage.terms, session=bytes(16))
    elsewhere = Stage(43)
    elsewhere.terms = other
    padded = bytearray(good)
    padded[5 - 1] |= 0x80
    return {
        "truncated": good[:-1],
        "longer": good + b"\0",
        "of another round": stage.message(2, 3, votes),
        "of another client": stage.message(1, 2, votes),
        "of another run": elsewhere.message(1, 3, elsewhere.votes(3)),
        "of another model": stage.message(1, 3, votes, downlink=bytes(32)),
        "of another key": stage.message(1, 3, votes, signing_key=key("nobody")),
        "with a flipped vote": bytes([good[0] ^ 1]) + good[1:],
        "with another blind": good[:6] + bytes([good[6] ^ 1]) + good[7:],
        "with another seal": good[:22] + bytes([good[22] ^ 1]) + good[23:],
        "with bits after the last": bytes(good[:5]) + bytes([good[5] | 0x80]) + good[6:],
    }


@pytest.mark.parametrize("what", sorted(_wrong(Stage(43))))
def test_what_is_no_ballot_of_its_client_in_this_round_changes_nothing(what: str) -> None:
    stage = Stage(43)
    honest = [stage.votes(client) for client in range(3)]
    messages = {client: stage.message(1, client, honest[client]) for client in range(3)}
    refused: dict[int, str] = {}

    counted = stage.count(1, {**messages, 3: _wrong(stage)[what]}, refused)

    assert list(refused) == [3] and "client 3" in refused[3]
    np.testing.assert_array_equal(counted, np.sum(honest, axis=0))


def test_a_client_casts_one_ballot_and_only_if_it_is_asked_and_registered() -> None:
    stage = Stage()
    stage.leader.begin(1, [0, 9], DOWNLINK)
    stage.leader.accept(0, stage.message(1, 0, stage.votes(0)))

    with pytest.raises(SecAggError, match="has cast a ballot in round 1 already"):
        stage.leader.accept(0, stage.message(1, 0, stage.votes(1)))
    with pytest.raises(SecAggError, match="was not asked"):
        stage.leader.accept(1, stage.message(1, 1, stage.votes(0)))
    with pytest.raises(SecAggError, match="is not registered"):
        stage.leader.accept(9, stage.message(1, 9, stage.votes(0)))


def test_a_leader_that_sends_an_envelope_twice_or_again_does_not_double_a_vote() -> None:
    stage = Stage()
    messages = {client: stage.message(1, client, stage.votes(client)) for client in range(3)}
    stage.leader.begin(1, list(messages), DOWNLINK)
    for client, payload in messages.items():
        stage.leader.accept(client, payload)
    roll: list[bytes] = []

    def twice(kind: str, payload: bytes) -> bytes:
        if kind != "roll":
            return stage.answer(kind, payload)
        roll.append(payload)
        return stage.answer(kind, payload + payload[40:208])  # the first client's entry once more

    stage.leader._answer = twice
    assert stage.leader.agree() == [0, 1, 2]
    stage.leader._begin_session()
    assert stage.helper.answer("roll", roll[0])[:-64] == b""  # every seed was used before


def test_who_was_counted_often_enough_is_not_counted_again() -> None:
    stage = Stage(most=1)
    first = {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)}
    stage.count(1, first)
    later = {client: stage.message(2, client, stage.votes(client)) for client in (0, 2, 3)}

    np.testing.assert_array_equal(stage.count(2, later), stage.votes(2) + stage.votes(3))
    assert stage.account.log[-3][:3] == ("reserve", 2, (2, 3))


def test_the_account_knows_a_round_before_its_transfers_and_is_charged_before_the_share_leaves() -> None:
    stage = Stage()
    stage.account.log = log = []
    answer = stage.helper.answer

    def noted(kind: str, payload: bytes) -> bytes:
        log.append((kind,))
        reply = answer(kind, payload)
        log.append((f"{kind} answered",))
        return reply

    stage.helper.answer = noted  # type: ignore[method-assign]
    stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)})

    names = [entry[0] for entry in log]
    assert names.index("reserve") < names.index("transfer")
    assert names.index("prove") < names.index("compare", names.index("prove")) < names.index("prove answered")
    assert names.index("open") < names.index("charge") < names.index("open answered")


def test_a_helper_of_other_terms_or_keys_is_refused_in_one_sentence() -> None:
    stage = Stage()
    with pytest.raises(InputError, match="must not be the leader"):
        replace(stage.terms, helper_key=stage.terms.leader_key)
    with pytest.raises(SecAggError, match="small order"):
        replace(stage.terms, helper_exchange=bytes(32))
    other = replace(stage.terms, config_digest=key("another config"))
    leader = Leader(other, key("leader"), stage.keys, stage.answer, stage.entropy)
    leader.begin(1, [], DOWNLINK)
    with pytest.raises(SecAggError, match="other terms"):
        leader.agree()
    forged = Leader(stage.terms, key("leader"), stage.keys, lambda kind, payload: bytes(400), stage.entropy)
    forged.begin(1, [], DOWNLINK)
    with pytest.raises(SecAggError, match="not signed by its key"):
        forged.agree()


def _until(stage: Stage, last: str) -> None:
    """Play a round up to, and without, a request."""

    class StopError(Exception):
        pass

    def stopping(kind: str, payload: bytes) -> bytes:
        if kind == last:
            raise StopError
        return stage.answer(kind, payload)

    stage.leader._answer = stopping
    with pytest.raises(StopError):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)})
    stage.leader._answer = stage.answer


@pytest.mark.parametrize(
    "kind", ["keys", "confirm", "transfer", "check", "words", "compare", "prove", "open", "vote", "roll"]
)
def test_requests_out_of_order_are_refused_and_the_next_round_works(kind: str) -> None:
    stage = Stage()
    wrong = {"roll": "transfer"}.get(kind, "roll")
    _until(stage, wrong)

    with pytest.raises(SecAggError, match=r"out of order|knows no request"):
        stage.helper.answer(kind if wrong == "roll" else "roll", b"")

    stage.leader.forsake()
    both = {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)}
    np.testing.assert_array_equal(stage.count(2, both), stage.votes(0) + stage.votes(1))


def test_a_rewound_counter_is_refused_and_ends_the_session() -> None:
    stage = Stage()
    stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)})
    sent = next(payload for kind, payload, _ in stage.wire if kind == "transfer")

    def rewind(kind: str, payload: bytes) -> bytes:
        return stage.answer(kind, sent if kind == "transfer" else payload)

    stage.leader._answer = rewind
    with pytest.raises(SecAggError, match="transfers from 0 on are refused"):
        stage.count(2, {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)})
    stage.leader._answer = stage.answer
    both = {client: stage.message(3, client, stage.votes(client)) for client in (0, 1)}
    np.testing.assert_array_equal(stage.count(3, both), stage.votes(0) + stage.votes(1))
    assert [kind for kind, _, _ in stage.wire].count("hello") == 2  # new transfers after the failure


@pytest.mark.parametrize("change", [b"", b"\1"])
def test_a_roll_or_a_share_of_another_length_is_refused(change: bytes) -> None:
    stage = Stage()
    _until(stage, "roll")
    with pytest.raises(SecAggError, match="bytes a ballot"):
        stage.helper.answer("roll", bytes(39) if not change else bytes(40) + change)

    def short(kind: str, payload: bytes) -> bytes:
        reply = stage.answer(kind, payload)
        return reply[:-1] if kind == "open" else reply

    stage.leader._answer = short
    with pytest.raises(SecAggError, match="share of 40 votes has 79 bytes"):
        stage.count(2, {client: stage.message(2, client, stage.votes(client)) for client in (0, 1)})


def test_a_helper_that_counts_what_it_was_not_sent_is_caught() -> None:
    stage = Stage()

    def inventing(kind: str, payload: bytes) -> bytes:
        reply = stage.answer(kind, payload)
        return (7).to_bytes(8, "little") + reply if kind == "roll" else reply

    stage.leader._answer = inventing
    with pytest.raises(SecAggError, match="was not sent"):
        stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in (0, 1)})


@pytest.mark.parametrize("changes", [{"length": 0}, {"floor": 0}, {"bits": 8}, {"cap": 40000}, {"session": b""}])
def test_terms_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        replace(Stage().terms, **changes)


@pytest.mark.parametrize(("length", "ballots", "bits"), [(40, 2, 16), (300, 4, 16), (1001, 3, 32)])
def test_the_bytes_between_leader_and_helper_are_those_that_the_plan_tells(
    length: int, ballots: int, bits: int
) -> None:
    stage = Stage(length, clients=ballots, bits=bits)
    stage.count(1, {client: stage.message(1, client, stage.votes(client)) for client in range(ballots)})

    played = [len(sent) + len(reply) for kind, sent, reply in stage.wire if kind not in ("hello", "keys")]
    assert sum(played) == bytes_between(ballots, length, bits)


def test_rounds_outside_the_run_are_refused() -> None:
    stage = Stage()
    with pytest.raises(SecAggError, match="round 0 is refused"):
        stage.leader.begin(0, [], DOWNLINK)
    with pytest.raises(SecAggError, match="is refused"):
        stage.message(10**6 + 1, 0, stage.votes(0))
