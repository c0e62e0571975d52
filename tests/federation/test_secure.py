"""Sums by secure aggregation inside the round: the same totals as in the clear, whoever leaves and whatever comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks import aggregator_checks
from sottovoce.checks.twin import Hand, Played, few, play, same
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.secure import Secure, SimulatedKeys, announce, read_announcement
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Reply
from sottovoce.federation.round import server_round
from sottovoce.secagg import PHASES

SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top", "fl-rnd", "fl-freq", "fl-basic")
REAL: dict[str, dict[str, Any]] = {
    "round": {"secure": "real"},
    "session": {"secure": "real", "key_life": "session"},
}
STANDING = PHASES[2:]


def private(scheme: str = "fl-std", **keys: Any) -> dict[str, Any]:
    clip: dict[str, Any] = {} if scheme == "fl-sign" else {"clip_norm": 0.5}
    if scheme == "fl-top":
        clip["unsafe_public"] = True
    return {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", **clip, **keys}


@cache
def ideal(scheme: str, is_private: bool, left: str) -> Played:
    """Play two rounds whose sums are made in the clear; in the second, one client leaves before `left`."""
    return _two_rounds(scheme, is_private, left, {"secure": "ideal"})


def _two_rounds(scheme: str, is_private: bool, left: str, aggregation: dict[str, Any]) -> Played:
    tables: dict[str, Any] = {"privacy": private(scheme)} if is_private else {}
    devices = {"leave": [[2, 3, left]]}
    return play(few(scheme, aggregation=aggregation, devices=devices, **tables), rounds=2)


@pytest.mark.parametrize("aggregation", [{"secure": "none"}, {"secure": "ideal"}, *REAL.values()], ids=str)
def test_every_aggregator_keeps_the_contract(aggregation: dict[str, Any]) -> None:
    aggregator_checks(aggregation)


@pytest.mark.parametrize("life", REAL)
@pytest.mark.parametrize("is_private", [False, True], ids=["plain", "private"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ideal_and_real_give_the_same_model_bit_for_bit(scheme: str, is_private: bool, life: str) -> None:
    real = _two_rounds(scheme, is_private, "mask", REAL[life])

    clear = ideal(scheme, is_private, "mask")
    assert same(real, clear)
    assert [total.senders for total in real.totals] == [9, 8]
    assert np.array_equal(np.asarray(real.totals[1].values), np.asarray(clear.totals[1].values))
    assert real.charged == clear.charged == [1, 2]


@pytest.mark.parametrize("life", REAL)
def test_the_round_completes_whoever_leaves_at_whichever_phase_while_enough_stay(life: str) -> None:
    leave = [[round_, client, phase] for round_, phase in enumerate(PHASES, 1) for client in (0, 5)]

    real = play(few(aggregation=REAL[life], devices={"leave": leave}), rounds=5)

    assert same(real, play(few(aggregation={"secure": "ideal"}, devices={"leave": leave}), rounds=5))
    assert [total.senders for total in real.totals] == [7, 7, 7, 9, 9]
    for phase, total in zip(PHASES, real.totals, strict=True):
        assert total.reason is None
        assert total.failures == {0: f"left before {phase}", 5: f"left before {phase}"}


@pytest.mark.parametrize("life", REAL)
def test_below_the_threshold_nothing_is_released_and_training_goes_on(life: str) -> None:
    leave = [[round_, client, phase] for round_, phase in enumerate(PHASES, 1) for client in (0, 4, 5)]

    played = play(few(aggregation=REAL[life], privacy=private(), devices={"leave": leave}), rounds=6)

    for before, after, total in zip(played.models, played.models[1:6], played.totals, strict=False):
        assert np.array_equal(before, after)
        assert total.values is None
        assert "the threshold is 7; nothing was released" in str(total.reason)
    assert not np.array_equal(played.models[5], played.models[6])
    assert played.charged == [5, 6], "only what reached the unmask request is charged"


def test_keys_of_a_session_cannot_mend_a_gap_before_masking_and_another_before_opening() -> None:
    leave = [[1, 0, "mask"], [1, 5, "unmask"]]

    of_session = play(few(aggregation=REAL["session"], devices={"leave": leave}), rounds=2)
    of_round = play(few(aggregation=REAL["round"], devices={"leave": leave}), rounds=2)

    assert "client 5 left after masking while client 0 was missing" in str(of_session.totals[0].reason)
    assert of_session.charged == [1, 2]
    assert of_session.totals[1].senders == 9
    assert of_round.totals[0].senders == 8


def test_keys_of_a_session_are_set_up_once_and_save_two_phases() -> None:
    first, second = play(few(aggregation=REAL["session"]), rounds=2).totals

    assert tuple(first.phases) == ("enrol", "introduce", *STANDING)
    assert tuple(second.phases) == STANDING
    assert [first.phases[phase] for phase in STANDING] == [second.phases[phase] for phase in STANDING]


def test_who_did_not_enrol_is_missing_until_the_session_ends() -> None:
    def alter(phase: str, client: int, payload: bytes) -> bytes | None:
        return None if (phase, client) == ("enrol", 2) else payload

    played = play(few(aggregation=REAL["session"]), rounds=2, alter=alter)

    assert [total.senders for total in played.totals] == [8, 8]
    assert [total.failures for total in played.totals] == [{2: "is not enrolled in this session"}] * 2


def test_an_enrolment_of_too_few_is_tried_again_in_the_next_round() -> None:
    attempts = iter([None] * 9)

    def alter(phase: str, client: int, payload: bytes) -> bytes | None:
        return next(attempts, payload) if phase == "enrol" else payload

    played = play(few(aggregation=REAL["session"]), rounds=2, alter=alter)

    assert "0 clients advertised keys" in str(played.totals[0].reason)
    assert played.totals[1].senders == 9
    assert played.charged == [2]


def flipped(payload: bytes) -> bytes:
    return bytes([*payload[:-1], payload[-1] ^ 1])


HOSTILE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing": lambda own, other: b"",
    "foreign": lambda own, other: bytes(len(own)),
    "short": lambda own, other: own[:-1],
    "long": lambda own, other: own + b"\0",
    "altered": lambda own, other: flipped(own),
    "someone else's": lambda own, other: other,
}


@pytest.mark.parametrize(("life", "phase"), [*(("round", p) for p in PHASES), *(("session", p) for p in STANDING)])
def test_hostile_bytes_are_their_senders_failure_and_leave_no_trace(life: str, phase: str) -> None:
    experiment = few(aggregation=REAL[life])
    lost = play(experiment, alter=lambda p, c, answer: None if (p, c) == (phase, 4) else answer)
    for name, forge in HOSTILE.items():
        seen: dict[str, bytes] = {}

        def alter(p: str, client: int, answer: bytes, forge: Any = forge, seen: dict[str, bytes] = seen) -> bytes:
            other = seen.setdefault(p, answer)  # client 0 comes first
            return forge(answer, other) if (p, client) == (phase, 4) else answer

        hostile = play(experiment, alter=alter)

        assert list(hostile.totals[0].failures) == [4], name
        assert hostile.totals[0].senders == lost.totals[0].senders, name
        assert same(hostile, lost), name


def test_an_answer_of_the_round_before_is_refused() -> None:
    kept: dict[str, bytes] = {}

    def alter(phase: str, client: int, answer: bytes) -> bytes:
        return kept.setdefault(phase, answer) if client == 4 else answer

    played = play(few(aggregation=REAL["round"]), rounds=2, alter=alter)

    assert played.totals[0].failures == {}
    assert played.totals[1].failures == {4: "message is from another session"}


def test_nobody_drawn_opens_the_same_noise_in_a_real_sum_as_in_an_ideal_one() -> None:
    released, charged = [], []
    for secure in ("ideal", "real"):
        parts = gather(few(aggregation={"secure": secure, "threshold": "2/3"}, privacy=private()))
        aggregator = stages(protect(parts))[TRAINING].server_side(Hand(parts)).server.aggregator
        conversation = aggregator.collect(1, [], b"", Terms(0, 0.5), lambda: charged.append(1))
        with pytest.raises(StopIteration) as end:
            next(conversation)
            conversation.send(Reply({}, {}))
        released.append(end.value.value.values)

    assert np.any(released[0])
    assert np.array_equal(*released)
    assert charged == [1, 1]


def test_a_cohort_of_one_is_never_opened() -> None:
    for secure in ("ideal", "real"):
        parts = gather(few(aggregation={"secure": secure}))
        hand = Hand(parts)
        ready = stages(protect(parts))[TRAINING].server_side(hand)
        ready.enrol(hand)
        down = ready.scheme.downlink(ready.server.init(parts.start), ready.scheme.round_seed(1))
        total = hand.run(ready.server.aggregator.collect(1, [3], down, Terms(1, 0.0), lambda: None))
        assert total.values is None
        assert "nothing was released" in total.reason


def test_keys_come_from_the_registry_and_never_from_the_announcement() -> None:
    parts = gather(few(aggregation=REAL["round"]))
    secure = stages(protect(parts))[TRAINING].server_side(Hand(parts)).server.aggregator
    assert isinstance(secure, Secure)
    payload, policy = announce(secure.session(1, list(range(9))), b"down"), secure.policy

    session, down = read_announcement(payload, SimulatedKeys(Seeds(1), 9), policy)

    assert down == b"down"
    assert session.keys == {client: SimulatedKeys(Seeds(1), 9)[client] for client in range(9)}
    with pytest.raises(SecAggError, match="client 8 has no registered key"):
        read_announcement(payload, SimulatedKeys(Seeds(1), 8), policy)
    with pytest.raises(SecAggError, match="truncated"):
        read_announcement(payload[:20], SimulatedKeys(Seeds(1), 9), policy)


@pytest.mark.parametrize("secure", ["ideal", "real"])
@pytest.mark.parametrize("threshold", [5, 7, 9])
def test_a_threshold_in_clients_is_that_number_of_them(threshold: int, secure: str) -> None:
    gone = [(1, 9 - threshold), (2, 10 - threshold)]
    devices = {"leave": [[round_, client, "mask"] for round_, count in gone for client in range(count)]}
    for tables in ({}, {"privacy": private()}):
        played = play(few(aggregation={"secure": secure, "threshold": threshold}, devices=devices, **tables), rounds=2)

        assert [total.reason is None for total in played.totals] == [True, False]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"aggregation": {"threshold": 10}}, "[aggregation] threshold must be at most the cohort of 9, got 10"),
        ({"aggregation": {"threshold": 4}}, "[aggregation] threshold must be above half of the cohort of 9, got 4"),
        (
            {"aggregation": {"threshold": "1/2"}},
            "[aggregation] threshold must be above half of the cohort of 9, got 1/2",
        ),
        (
            {"aggregation": {"colluders": 7}},
            "[aggregation] colluders must be at least 0 and below 2 * threshold - clients = 5, or the server could "
            "open two sums; got 7 with a threshold of 7 of 9",
        ),
        (
            {"aggregation": {"neighbours": 4}},
            "[aggregation] neighbours must be at least 8 for 9 clients, threshold 7 and 3 colluders, got 4",
        ),
        (
            {"cohort": {"sample_rate": "1/9"}},
            '[aggregation] secure = "real" needs 2 clients a round, but 1 are expected; raise [cohort] sample_rate',
        ),
        (
            {"aggregation": {"key_life": "session"}, "cohort": {"sample_rate": "1/2"}},
            '[aggregation] key_life = "session" needs every client in every round, but [cohort] sample_rate is 1/2; '
            "set it to 1",
        ),
        (
            {"aggregation": {"key_life": "session"}, "cohort": {"cap": 8}},
            '[aggregation] key_life = "session" needs every client in every round; remove [cohort] cap',
        ),
        (
            {"aggregation": {"key_life": "session"}, "privacy": private(max_participations=2)},
            '[aggregation] key_life = "session" needs every client in every round; remove [privacy] max_participations',
        ),
        (
            {"aggregation": {"key_life": "session"}, "data": {"clients": 300}},
            '[aggregation] key_life = "session" needs everyone to mask with everyone, but of 300 clients each has 184 '
            "neighbours; set neighbours = 299",
        ),
        ({"aggregation": {"key_life": "forever"}}, '[aggregation] key_life must be "round" or "session", got'),
    ],
)
def test_terms_that_cannot_be_kept_are_refused_in_one_sentence(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        protect(gather(few(**{**tables, "aggregation": {"secure": "real", **tables.get("aggregation", {})}})))

    assert message in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_cohort_too_small_for_its_terms_ends_the_round_and_not_the_run() -> None:
    parts = gather(few(aggregation={"secure": "real", "colluders": 4}))
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)

    total = hand.run(ready.server.aggregator.collect(1, [0, 1, 2], b"", Terms(3, 0.0), lambda: None))

    assert total.values is None
    assert total.reason == "round 1: 3 clients from the start, but at least 9 are needed; nothing was released"


def test_phases_that_were_never_begun_are_failures_of_the_client() -> None:
    parts = gather(few(aggregation=REAL["round"]))
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    request = next(server_round(ready.server, ready.server.init(parts.start), 1))
    for phase in ("share", "mask", "consistency", "unmask", "introduce"):
        hand.send(request._replace(take=lambda client, payload: None))  # everyone has advertised
        reply = hand.send(request._replace(phase=phase, payloads={1: b"junk"}, opening=False))
        assert list(reply.failures) == [1]
