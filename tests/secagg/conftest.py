"""Run whole sessions in memory, with anybody leaving at any phase and any message altered on its way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.secagg import PHASES, KeyedEntropy, RoundClient, RoundServer, Session, verifying_key

Words = NDArray[np.uint32]


def key(*name: object) -> bytes:
    return hashlib.sha256(repr(name).encode()).digest()


class Cohort:
    """Hold the clients of one session, their words and everything that the server received."""

    def __init__(self, clients: int = 5, length: int = 16, bits: int = 13, **terms: Any) -> None:
        ids = tuple(5 + 3 * index for index in range(clients))
        self.signing = {client: key("signing", client) for client in ids}
        defaults: dict[str, Any] = {
            "run": key("run"),
            "session_id": b"test session  16",
            "round": 7,
            "config_digest": key("config"),
            "clients": ids,
            "keys": {client: verifying_key(secret) for client, secret in self.signing.items()},
        }
        self.session = Session(bits=bits, length=length, **{**defaults, **terms})
        rng = np.random.default_rng([clients, length, bits])
        self.words = {client: rng.integers(0, 1 << bits, length, dtype=np.uint32) for client in ids}
        self.clients = {client: self.client(client) for client in self.session.clients}
        self.server = RoundServer(self.session)
        self.requests: dict[int, bytes] = dict.fromkeys(ids, b"")
        self.sent: dict[str, dict[int, bytes]] = {}
        self.received: dict[str, dict[int, bytes]] = {}
        self.rejected: dict[str, dict[int, str]] = {}

    def client(self, client: int) -> RoundClient:
        entropy = KeyedEntropy(key("entropy", client, self.session.session_id, self.session.round))
        return RoundClient(self.session, client, self.signing[client], entropy)

    def answer(self, phase: str, client: int, request: bytes) -> bytes:
        return ask(self.clients[client], phase, request, self.words[client])

    def step(
        self,
        phase: str,
        gone: Collection[int] = (),
        alter: Callable[[int, bytes], bytes] | None = None,
    ) -> None:
        replies = {c: self.answer(phase, c, r) for c, r in self.requests.items() if c not in gone}
        if alter is not None:
            replies = {c: alter(c, r) for c, r in replies.items()}
        self.sent[phase], self.received[phase] = self.requests, replies
        self.requests, self.rejected[phase] = self.server.collect(phase, replies)

    def until(self, phase: str) -> None:
        """Run honestly up to, and not including, a phase."""
        for name in PHASES[: PHASES.index(phase)]:
            self.step(name)

    def run(self, gone: Mapping[str, Collection[int]] | None = None) -> Words:
        for phase in PHASES:
            self.step(phase, (gone or {}).get(phase, ()))
        return self.server.total()

    def expected(self, clients: Collection[int] | None = None) -> Words:
        chosen = self.session.clients if clients is None else clients
        total = sum((self.words[client].astype(np.uint64) for client in chosen), np.zeros(1, np.uint64))
        return (total & np.uint64((1 << self.session.bits) - 1)).astype(np.uint32)


def ask(client: RoundClient, phase: str, request: bytes, words: Words) -> bytes:
    if phase == "advertise":
        return client.advertise()
    if phase == "mask":
        return client.mask(request, words)
    return getattr(client, phase)(request)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def cohort() -> type[Cohort]:
    return Cohort
