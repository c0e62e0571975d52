"""Throw mutated messages at every state machine: it refuses with its own errors and stays as it was.

Two adversaries: one that alters bytes on the way, whose every message must be refused; and one inside, who alters the
body and then signs or seals it properly, so that the parsers behind the first gate are reached as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.secagg import PHASES, KeyedEntropy, Registrar, StandingClient, StandingServer, messages

Factory = Any
Seal = Callable[[bytes], bytes]
MUTANTS = 10_000  # at least, for each state machine, shared out evenly among its phases


def mutate(message: bytes, others: list[bytes], rng: Generator) -> bytes:
    """Alter a message in one of seven ways."""
    data = bytearray(message)
    at = int(rng.integers(0, max(1, len(data))))
    kind = int(rng.integers(0, 7))
    if kind == 0 and data:
        data[at] ^= 1 << int(rng.integers(0, 8))
    elif kind == 1:
        for place in rng.integers(0, max(1, len(data)), 8):
            data[int(place) : int(place) + 1] = rng.bytes(1)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = rng.bytes(int(rng.integers(1, 80)))
    elif kind == 4:
        data[at : at + 8] = (b"\0" * 8, b"\xff" * 8)[int(rng.integers(0, 2))]
    elif kind == 5:
        other = others[int(rng.integers(0, len(others)))]
        data[at:] = other[at:]
    else:
        length = int(rng.integers(1, 40))
        other_at = int(rng.integers(0, max(1, len(data))))
        data[at : at + length] = data[other_at : other_at + length]
    return bytes(data)


def state(machine: Any) -> bytes:
    """Return all that can change; the terms cannot, but cache what they compute."""
    return pickle.dumps({name: value for name, value in vars(machine).items() if name not in ("session", "_round")})


def same(one: Any, other: Any) -> bool:
    """Compare a copy with its original by value."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if hasattr(one, "__dict__"):
        return all(same(value, vars(other)[name]) for name, value in vars(one).items() if name != "session")
    return bool(one == other)


def bombard(machine: Any, feed: Callable[[Any, bytes], object], good: bytes, others: list[bytes], seal: Seal) -> int:
    """Feed a phase's share of mutants, odd ones sealed anew; return how many there were.

    What alters a message on its way is fed to the machine itself; what an insider made may be acceptable, and goes to a
    copy that is thrown away.
    """
    rng = np.random.default_rng(len(good))
    bodies, before, fed = [message[messages.HEADER :] for message in others], state(machine), 0
    end = 64 if good[5] <= len(PHASES) else 16  # replies end with a signature, requests with a digest
    while fed < MUTANTS // 3 + 1:
        sealed = fed % 2 == 1
        mutant = seal(mutate(good[messages.HEADER : -end], bodies, rng)) if sealed else mutate(good, others, rng)
        if mutant == good:
            continue
        fed += 1
        trial = pickle.loads(pickle.dumps(machine)) if sealed else machine
        try:
            feed(trial, mutant)
        except (SecAggError, WireError):
            assert same(trial, machine) if sealed else state(machine) == before
        else:
            assert sealed, "a message that was altered on its way was accepted"
    return fed


def seal_reply(session: Any, phase: str, signing_key: bytes) -> Seal:
    return lambda body: messages.seal_reply(session, phase, 5, body, signing_key)


def seal_request(session: Any, phase: str) -> Seal:
    return lambda body: messages.seal_request(session, phase, 5, body)


@pytest.mark.parametrize("phase", PHASES)
def test_the_server_survives_mutated_messages(cohort: Factory, phase: str) -> None:
    round_ = cohort(4, length=9, bits=5)
    round_.until(phase)
    good = {client: round_.answer(phase, client, request) for client, request in round_.requests.items()}
    others = [*good.values(), *(m for old in round_.received.values() for m in old.values())]

    def feed(server: Any, mutant: bytes) -> None:
        server.accept(phase, 5, mutant)

    fed = bombard(round_.server, feed, good[5], others, seal_reply(round_.session, phase, round_.signing[5]))
    assert fed * len(PHASES) >= MUTANTS


@pytest.mark.parametrize("phase", PHASES[1:])
def test_the_client_survives_mutated_messages(cohort: Factory, phase: str) -> None:
    round_ = cohort(4, length=9, bits=5)
    round_.until(phase)
    others = [m for old in (*round_.sent.values(), *round_.received.values()) for m in old.values() if m]

    def feed(client: Any, mutant: bytes) -> None:
        client.mask(mutant, round_.words[5]) if phase == "mask" else getattr(client, phase)(mutant)

    good = round_.requests[5]
    fed = bombard(round_.clients[5], feed, good, [good, *others], seal_request(round_.session, phase))
    assert fed * (len(PHASES) - 1) >= MUTANTS


@pytest.mark.parametrize("phase", ["mask", "consistency", "unmask"])
def test_the_standing_machines_survive_mutated_messages(cohort: Factory, phase: str) -> None:
    base = cohort(4, length=9, bits=5)
    terms = replace(base.session, round=0, key_life="session")
    clients = {c: StandingClient(terms, c, base.signing[c], KeyedEntropy(bytes([c]) * 32)) for c in terms.clients}
    registrar = Registrar(terms)
    requests, _ = registrar.collect("advertise", {c: client.advertise() for c, client in clients.items()})
    seen = list(requests.values())
    if phase == "mask":  # the first request to a standing client is the key list
        feed_keys = lambda client, mutant: client.introduce(mutant)  # noqa: E731
        assert bombard(clients[5], feed_keys, requests[5], seen, seal_request(terms, "share")) * 3 >= MUTANTS
    for client, request in requests.items():
        clients[client].introduce(request)
    server = StandingServer(registrar.round(1))
    requests = dict.fromkeys(clients, b"")
    for name in ("mask", "consistency", "unmask"):
        if name == phase and requests[5]:
            feed_client = lambda client, mutant: getattr(client, phase)(mutant)  # noqa: E731
            seal = seal_request(server.session, phase)
            assert bombard(clients[5], feed_client, requests[5], seen, seal) * 3 >= MUTANTS
        replies = {
            c: client.mask(1, base.words[c]) if name == "mask" else getattr(client, name)(requests[c])
            for c, client in clients.items()
        }
        seen += [*requests.values(), *replies.values()]
        seen = [message for message in seen if message]
        if name == phase:
            feed_server = lambda machine, mutant: machine.accept(phase, 5, mutant)  # noqa: E731
            seal = seal_reply(server.session, phase, base.signing[5])
            assert bombard(server, feed_server, replies[5], seen, seal) * 3 >= MUTANTS
        requests, rejected = server.collect(name, replies)
        assert not rejected
    assert np.array_equal(server.total(), base.expected())
