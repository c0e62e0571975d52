"""What clients refuse when the server does not stop a session that is too small, and what both refuse of each other.

The server's own checks are taken away here, so that it asks what an honest one never would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.secagg.transcripts import LIVES, Transcript

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import Registrar, RoundClient, RoundServer, StandingClient, messages, rules, verifying_key
from sottovoce.secagg import server as of_round
from sottovoce.secagg import standing_server as of_session

Factory = Any
both = pytest.mark.parametrize("life", LIVES)


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers go on with however few clients there are."""
    for module in (of_round, of_session):
        monkeypatch.setattr(module, "check_quorum", lambda session, count, what: None)


@both
@pytest.mark.usefixtures("careless")
def test_a_client_shares_nothing_among_fewer_clients_than_the_threshold(cohort: Factory, life: str) -> None:
    played = Transcript(cohort(7), life)

    with pytest.raises(SecAggError, match="4 clients have keys, but 5 must hold shares"):
        played.start(1, gone=played.ids[:3])
    assert Transcript(cohort(7), life).start(1, gone=played.ids[:2]).requests


@pytest.mark.usefixtures("careless")
def test_a_client_masks_nothing_when_fewer_shared_than_the_threshold(cohort: Factory) -> None:
    for gone, refused in ((2, False), (3, True)):
        round_ = cohort(7)
        round_.step("advertise")
        round_.step("share", gone=round_.session.clients[:gone])
        if refused:
            with pytest.raises(SecAggError, match="4 clients shared, but 5 must hold shares"):
                round_.step("mask")
        else:
            round_.step("mask")


@both
@pytest.mark.usefixtures("careless")
def test_a_client_signs_no_survivors_below_the_threshold(cohort: Factory, life: str) -> None:
    for gone, refused in ((2, False), (3, True)):
        played = Transcript(cohort(7), life).start(1)
        played.step("mask", gone=played.ids[:gone])
        if refused:
            with pytest.raises(SecAggError, match="4 survivors, but the threshold is 5"):
                played.step("consistency")
        else:
            played.step("consistency")


# Keys.


def own_key(public: dict[int, bytes]) -> dict[int, bytes]:
    """Let client 8 advertise what client 5 did."""
    return {**public, 8: public[5]}


def twice(public: dict[int, bytes]) -> dict[int, bytes]:
    """Let client 11 advertise what client 8 did."""
    return {**public, 11: public[8]}


def crossed(public: dict[int, bytes]) -> dict[int, bytes]:
    """Let client 11 share under the key under which client 8 masks."""
    return {**public, 11: public[8][32:] + public[11][32:]}


def alike(public: dict[int, bytes]) -> dict[int, bytes]:
    """Let client 8 share and mask under one key."""
    return {**public, 8: public[8][:32] * 2}


@both
@pytest.mark.parametrize("forge", [own_key, twice, crossed, alike])
def test_no_key_comes_twice_in_the_list_that_a_client_believes(
    cohort: Factory, life: str, forge: Callable[[dict[int, bytes]], dict[int, bytes]]
) -> None:
    """Two helpers sign each other's keys, so the signatures are good. Client 5 must see it, and the server too."""
    made = cohort(4)
    session = made.session if life == "round" else made.session.__class__(**terms_of(made.session, key_life="session"))
    kind = RoundClient if life == "round" else StandingClient
    clients = {c: kind(session, c, made.signing[c]) for c in session.clients}
    honest = {c: client.advertise() for c, client in clients.items()}
    public = {c: message[messages.HEADER : -64] for c, message in honest.items()}
    for keys, good in ((public, True), (forge(public), False)):
        sealed = {c: messages.seal_reply(session, "advertise", c, keys[c], made.signing[c]) for c in keys}
        entries = {session.position(c): rules.Keys(keys[c][:32], keys[c][32:], sealed[c][-64:]) for c in keys if c != 5}
        request = messages.seal_request(session, "share", 5, rules.write_keys(session, entries, [1, 2, 3]))
        server = RoundServer(session) if life == "round" else Registrar(session)
        _, rejected = server.collect("advertise", sealed)
        if good:
            assert not rejected
        else:
            assert len(rejected) == 1
            with pytest.raises(SecAggError, match="the key list has a key twice"):
                answer_keys(clients[5], request)
    honest_list = {
        session.position(c): rules.Keys(public[c][:32], public[c][32:], honest[c][-64:]) for c in public if c != 5
    }
    answer_keys(
        clients[5], messages.seal_request(session, "share", 5, rules.write_keys(session, honest_list, [1, 2, 3]))
    )


def answer_keys(client: RoundClient | StandingClient, request: bytes) -> None:
    if isinstance(client, RoundClient):
        client.share(request)
    else:
        client.introduce(request)


def terms_of(session: Any, **other: Any) -> dict[str, Any]:
    return {**{name: getattr(session, name) for name in session.__dataclass_fields__}, **other}


@both
def test_parties_that_know_other_registered_keys_refuse_each_other(cohort: Factory, life: str) -> None:
    """Even where the key that differs belongs to somebody else: a server may not show each client its own roster."""
    made = cohort(4)
    terms = terms_of(made.session, key_life=life)
    other = made.session.__class__(**{**terms, "keys": {**terms["keys"], 14: verifying_key(b"\5" * 32)}})
    mine = made.session.__class__(**terms)
    kind, server = (RoundClient, RoundServer) if life == "round" else (StandingClient, Registrar)

    assert other.context != mine.context
    with pytest.raises(SecAggError, match="does not verify"):
        server(mine).accept("advertise", 5, kind(other, 5, made.signing[5]).advertise())
    server(mine).accept("advertise", 5, kind(mine, 5, made.signing[5]).advertise())


# What is opened.


@pytest.mark.parametrize(
    ("life", "owner"), [("round", "a survivor"), ("round", "a dropped client"), ("session", "a survivor")]
)
def test_a_share_that_was_not_dealt_is_left_out(cohort: Factory, life: str, owner: str) -> None:
    """A wrong seed or a wrong key would come off as a mask that was never put on, and the sum would be noise.

    With session keys nobody holds shares of a client that dropped. `tests/attacks` has those that were dealt wrong.
    """
    played = Transcript(cohort(7), life).start(1)
    liar, victim, dropped = played.ids[0], played.ids[3], played.ids[-1]
    dropped_too = [dropped] if owner == "a dropped client" else []
    about = dropped if dropped_too else victim

    def lie(client: int, message: bytes) -> bytes:
        if client != liar:
            return message
        body = bytearray(message[messages.HEADER : -64])
        body[33 * played.session.position(about) + 16] ^= 1  # X25519 does not look at the lowest bits of a key
        return messages.seal_reply(played.session, "unmask", client, bytes(body), played.cohort.signing[client])

    played.step("mask", gone=dropped_too)
    played.step("consistency")
    played.step("unmask", alter=lie)

    left = [client for client in played.ids if client not in dropped_too]
    assert np.array_equal(played.server.total(), played.cohort.expected(left))
    assert played.server.accused == {liar: f"told a wrong share of client {about}"}


@both
def test_a_signature_of_other_survivors_does_not_count(cohort: Factory, life: str) -> None:
    """The server names all seven to six clients, and six to the victim: nobody else signed what the victim did.

    If it could, it would open the same vectors twice, with and without one of them.
    """
    played = Transcript(cohort(7), life).start(1)
    victim, hidden = played.ids[0], played.ids[-1]
    fork = copy.deepcopy(played.server)
    played.step("mask")
    vectors = played.sent[1, "mask"]
    six, _ = fork.collect("mask", {client: vector for client, vector in vectors.items() if client != hidden})
    played.requests[victim] = six[victim]
    signed = {client: played.answer("consistency", client) for client in played.ids}
    session = played.session
    signatures = {session.position(client): signed[client][-64:] for client in played.ids[1:5]}
    body = rules.write_unmask(session, range(6), [6], signatures)

    with pytest.raises(SecAggError, match="client 8 did not sign these survivors"):
        played.clients[victim].unmask(messages.seal_request(session, "unmask", victim, body))
