"""Nothing is accepted twice, out of order, from elsewhere, of the wrong length or altered; refusing changes nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.secagg import PHASES, messages, primitives, rules

Factory = Any
REFUSED = (SecAggError, WireError)


def state(machine: Any) -> bytes:
    """Return everything a state machine remembers, except the terms, which cannot change."""
    return pickle.dumps({name: value for name, value in vars(machine).items() if name != "session"})


def refuses(machine: Any, call: Callable[[], object], match: str | None = None) -> None:
    before = state(machine)
    with pytest.raises(REFUSED, match=match):
        call()
    assert state(machine) == before


def finish(round_: Any, phase: str) -> None:
    for name in PHASES[PHASES.index(phase) :]:
        round_.step(name)
    assert np.array_equal(round_.server.total(), round_.expected())


@pytest.mark.parametrize("phase", PHASES)
def test_the_server_takes_a_message_once(cohort: Factory, phase: str) -> None:
    round_ = cohort(4)
    round_.until(phase)
    reply = round_.answer(phase, 5, round_.requests[5])
    round_.server.accept(phase, 5, reply)

    refuses(round_.server, lambda: round_.server.accept(phase, 5, reply), "already answered")


@pytest.mark.parametrize("phase", PHASES)
def test_a_replay_in_a_later_phase_is_refused(cohort: Factory, phase: str) -> None:
    round_ = cohort(4)
    round_.until(phase)
    for old in round_.received.values():
        refuses(round_.server, lambda old=old: round_.server.accept(phase, 5, old[5]))
    finish(round_, phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("other", [{"session_id": b"another session."}, {"round": 8}, {"config_digest": b"x" * 32}])
def test_messages_of_another_session_or_round_are_refused(cohort: Factory, phase: str, other: dict[str, Any]) -> None:
    here, there = cohort(4), cohort(4, **other)
    here.until(phase), there.until(phase)
    foreign_request = there.requests[5]
    foreign = there.answer(phase, 5, foreign_request)

    refuses(here.server, lambda: here.server.accept(phase, 5, foreign))
    if phase != "advertise":
        refuses(here.clients[5], lambda: here.answer(phase, 5, foreign_request))
    finish(here, phase)


@pytest.mark.parametrize("phase", PHASES)
def test_a_message_under_anothers_name_is_refused(cohort: Factory, phase: str) -> None:
    round_ = cohort(4)
    round_.until(phase)
    if phase != "advertise":
        refuses(round_.clients[5], lambda: round_.answer(phase, 5, round_.requests[8]), "client 8's, not client 5's")
    reply = round_.answer(phase, 5, round_.requests[5])

    refuses(round_.server, lambda: round_.server.accept(phase, 8, reply), "client 5's, not client 8's")
    refuses(round_.server, lambda: round_.server.accept(phase, 99, reply), "client 99 is not in this session")


@pytest.mark.parametrize("phase", PHASES)
def test_wrong_lengths_and_single_flipped_bits_are_refused(cohort: Factory, phase: str) -> None:
    round_ = cohort(4)
    round_.until(phase)
    request = round_.requests[5]
    if phase != "advertise":
        for bad in alterations(request):
            refuses(round_.clients[5], lambda bad=bad: round_.answer(phase, 5, bad))
    reply = round_.answer(phase, 5, request)
    for bad in alterations(reply):
        refuses(round_.server, lambda bad=bad: round_.server.accept(phase, 5, bad))


def alterations(message: bytes) -> list[bytes]:
    flipped = [
        message[:place] + bytes([message[place] ^ 1 << place % 8]) + message[place + 1 :]
        for place in range(0, len(message), max(1, len(message) // 60))
    ]
    return [b"", message[:-1], message[:40], message + b"\0", message * 2, *flipped]


@pytest.mark.parametrize("phase", PHASES)
def test_the_client_takes_phases_in_order_and_once(cohort: Factory, phase: str) -> None:
    round_ = cohort(4)
    round_.until(phase)
    client, request = round_.clients[5], round_.requests[5]
    for other in PHASES:
        if other != phase:
            refuses(client, lambda other=other: round_.answer(other, 5, request), "is not next")
            refuses(round_.server, lambda other=other: round_.server.accept(other, 5, b""), "is not the open phase")

    round_.answer(phase, 5, request)
    refuses(client, lambda: round_.answer(phase, 5, request), "is not next")


def test_a_second_unmask_is_refused_and_the_secrets_are_gone(cohort: Factory) -> None:
    round_ = cohort(4)
    round_.run()
    client = round_.clients[5]

    refuses(client, lambda: client.unmask(round_.sent["unmask"][5]), "unmask is not next, nothing is")
    assert not any(vars(client._secrets).values())


def test_secrets_go_as_soon_as_no_phase_needs_them(cohort: Factory) -> None:
    round_ = cohort(4)
    client = round_.clients[5]
    round_.until("mask")
    assert not client._secrets.sharing and not client._secrets.masking
    round_.step("mask")
    assert not client._secrets.seed and not client._secrets.pairs and not client._secrets.opening


def unmask_request(round_: Any, survivors: list[int], dropped: list[int], signatures: dict[int, bytes]) -> bytes:
    body = rules.write_unmask(round_.session, survivors, dropped, signatures)
    return messages.seal_request(round_.session, "unmask", 5, body)


def signatures_of(round_: Any, count: int) -> dict[int, bytes]:
    received = round_.received["consistency"]
    return {place: received[client][-64:] for place, client in list(enumerate(round_.session.clients))[1 : 1 + count]}


def test_both_lists_naming_one_peer_are_refused(cohort: Factory) -> None:
    round_ = cohort(6)
    round_.until("mask")
    round_.step("mask", gone=[20])
    round_.step("consistency")
    good = signatures_of(round_, 4)
    ask = round_.clients[5].unmask
    bad_lists = [
        ([0, 1, 2, 3, 4], [4, 5], "client 17 is named both"),
        ([0, 1, 2, 3, 4], [0, 5], "client 5 is named both"),
        ([0, 1, 2, 3, 4, 5], [5], "client 20 is named both"),
        ([0, 1, 2, 3], [4, 5], "not those that this client signed"),
        ([0, 1, 2, 3, 4, 5], [], "not those that this client signed"),
        ([0, 1, 2, 3, 4], [], "the dropped are not"),
    ]
    for survivors, dropped, problem in bad_lists:
        request = unmask_request(round_, survivors, dropped, good)
        refuses(round_.clients[5], lambda request=request: ask(request), problem)

    assert len(ask(unmask_request(round_, [0, 1, 2, 3, 4], [5], good))) > 0


def test_the_threshold_of_signatures_is_needed_and_each_is_checked(cohort: Factory) -> None:
    round_ = cohort(6)
    round_.until("unmask")
    client, everyone = round_.clients[5], [0, 1, 2, 3, 4, 5]
    good = signatures_of(round_, 4)
    foreign = {**good, 2: good[3]}
    own = {0: round_.received["consistency"][5][-64:], **signatures_of(round_, 3)}
    for bad in (signatures_of(round_, 3), signatures_of(round_, 5), foreign, own):
        refuses(client, lambda bad=bad: client.unmask(unmask_request(round_, everyone, [], bad)))

    client.unmask(unmask_request(round_, everyone, [], good))


def test_two_survivor_sets_cannot_both_be_opened(cohort: Factory) -> None:
    """A lying server names {all} to one half and {all but one} to the other: neither half gathers t signatures."""
    round_ = cohort(6)
    round_.until("consistency")
    everyone = messages.write_set(round_.session, range(6))
    fewer = messages.write_set(round_.session, range(5))
    for index, client in enumerate(round_.session.clients[:5]):
        body = everyone if index % 2 else fewer
        round_.clients[client].consistency(messages.seal_request(round_.session, "consistency", client, body))
    signed_fewer = [client for client in round_.clients.values() if client._survivors == frozenset(range(5))]

    assert max(len(signed_fewer), 6 - len(signed_fewer)) < round_.session.threshold


def test_survivors_must_hold_the_client_itself_and_only_those_who_shared(cohort: Factory) -> None:
    round_ = cohort(6)
    round_.until("share")
    round_.step("share", gone=[20])
    round_.step("mask")
    for places in ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]):
        body = messages.write_set(round_.session, places)
        request = messages.seal_request(round_.session, "consistency", 5, body)
        refuses(round_.clients[5], lambda request=request: round_.clients[5].consistency(request), "leave this client")
    few = messages.seal_request(round_.session, "consistency", 5, messages.write_set(round_.session, [0, 1, 2, 3]))
    refuses(round_.clients[5], lambda: round_.clients[5].consistency(few), "4 survivors, but the threshold is 5")


def test_keys_that_the_server_made_up_are_refused(cohort: Factory) -> None:
    round_ = cohort(4)
    round_.until("share")
    request = round_.requests[5]
    start = messages.HEADER + messages.set_size(round_.session)
    body = bytearray(request[messages.HEADER : -16])
    body[start - messages.HEADER : start - messages.HEADER + 32] = primitives.exchange_key(b"\7" * 32)
    forged = messages.seal_request(round_.session, "share", 5, bytes(body))

    refuses(round_.clients[5], lambda: round_.clients[5].share(forged), "not signed by its registered key")


@pytest.mark.parametrize(
    ("sharing", "masking", "problem"),
    [
        (bytes(32), None, "keeps no secret"),  # the point of order one
        (None, (1).to_bytes(32, "little"), "keeps no secret"),  # a point of order four
        ("same", "same", "keeps no secret"),
        ("copied", None, "a key of another client"),
    ],
)
def test_worthless_keys_are_refused_at_the_door(cohort: Factory, sharing: Any, masking: Any, problem: str) -> None:
    round_ = cohort(4)
    other = round_.clients[8].advertise()
    round_.server.accept("advertise", 8, other)
    fresh = primitives.exchange_key(b"\1" * 32), primitives.exchange_key(b"\2" * 32)
    first = {"same": fresh[0], "copied": other[40:72]}.get(sharing, sharing) or fresh[0]
    second = fresh[0] if masking == "same" else masking or fresh[1]
    message = messages.seal_reply(round_.session, "advertise", 5, first + second, round_.signing[5])

    refuses(round_.server, lambda: round_.server.accept("advertise", 5, message), problem)


def test_a_wrong_share_is_left_out_and_without_enough_others_nothing_is_released(cohort: Factory) -> None:
    round_ = cohort(4)
    round_.until("unmask")

    def lie(client: int, message: bytes) -> bytes:
        if client != 5:
            return message
        body = bytearray(message[messages.HEADER : -64])
        body[33] ^= 1
        return messages.seal_reply(round_.session, "unmask", 5, bytes(body), round_.signing[5])

    with pytest.raises(SecAggError, match=r"2 are left: clients \[5\] told wrong ones; nothing was released"):
        round_.step("unmask", gone=[14], alter=lie)
    with pytest.raises(SecAggError, match="there is no total"):
        round_.server.total()


def test_a_refused_message_costs_its_sender_and_nobody_else(cohort: Factory) -> None:
    round_ = cohort(4)
    round_.until("mask")
    round_.step("mask", alter=lambda client, message: message[:-1] if client == 14 else message)
    round_.step("consistency"), round_.step("unmask")

    assert list(round_.rejected["mask"]) == [14]
    assert "bytes, expected" in round_.rejected["mask"][14]
    assert np.array_equal(round_.server.total(), round_.expected([5, 8, 11]))
