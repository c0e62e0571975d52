"""Play sessions of both modes with everything written down: what clients drew, sent and were asked.

A client's secrets all come from the `entropy` that it is given, so a test knows them without looking inside the client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sottovoce.core import wire
from sottovoce.secagg import (
    KeyedEntropy,
    Registrar,
    RoundClient,
    RoundServer,
    StandingClient,
    StandingServer,
    masks,
    messages,
    rules,
    shamir,
)

Words = NDArray[np.uint32]
FALSE_ALARM = 1e-6
LIVES = ("round", "session")
SIGNATURE = 64


class Entropy:
    """A source of secret bytes that writes down what it gave; stored with a client, it forgets."""

    def __init__(self, name: str = "") -> None:
        self.draws: list[bytes] = []
        self._source = KeyedEntropy(hashlib.sha256(name.encode()).digest())

    def __call__(self, size: int) -> bytes:
        self.draws.append(self._source(size))
        return self.draws[-1]

    def __reduce__(self) -> Any:
        return Entropy, ()

    @property
    def secrets(self) -> list[bytes]:
        """Return the keys and seeds; coefficients of sharings are drawn in longer pieces."""
        return [draw for draw in self.draws if len(draw) == 32]


class Transcript:
    """The clients of a cohort over some rounds, in the mode whose keys live for a round or for the session."""

    def __init__(self, cohort: Any, life: str, *, entropy: str = "one") -> None:
        self.cohort, self.life = cohort, life
        self.ids: tuple[int, ...] = cohort.session.clients
        self.entropy = {client: Entropy(f"{entropy} {client}") for client in self.ids}
        self.clients: dict[int, Any] = {}
        self.server: Any = None
        self.registrar: Any = None
        self.requests: dict[int, bytes] = {}
        self.advertised: dict[int, bytes] = {}
        self.sent: dict[tuple[int, str], dict[int, bytes]] = {}

    def start(self, round_: int, gone: Collection[int] = ()) -> Transcript:
        """Begin a round: up to, and not including, the phase `mask`. Who is gone advertises nothing."""
        if self.life == "round":
            session = self.cohort.session.for_round(round_)
            self.clients = {c: self._client(RoundClient, session, c) for c in self.ids}
            self.server = RoundServer(session)
            self.requests = dict.fromkeys(self.ids, b"")
            self.step("advertise", gone)
            self.step("share")
            return self
        if self.registrar is None:
            session = replace(self.cohort.session, round=round_ - 1, key_life="session")
            self.clients = {c: self._client(StandingClient, session, c) for c in self.ids}
            self.registrar = Registrar(session)
            self.advertised = {c: k.advertise() for c, k in self.clients.items() if c not in gone}
            requests, rejected = self.registrar.collect("advertise", self.advertised)
            assert not rejected
            for client, request in requests.items():
                self.clients[client].introduce(request)
        self.server = StandingServer(self.registrar.round(round_))
        self.requests = dict.fromkeys(self.registrar.enrolled, b"")
        return self

    def step(
        self, phase: str, gone: Collection[int] = (), alter: Callable[[int, bytes], bytes] | None = None
    ) -> Transcript:
        """Let everyone who was asked answer a phase; `alter` changes what arrives."""
        replies = {c: self.answer(phase, c) for c in self.requests if c not in gone}
        if alter is not None:
            replies = {client: alter(client, reply) for client, reply in replies.items()}
        if phase == "advertise":
            self.advertised = replies
        self.sent[self.session.round, phase] = replies
        self.requests, _ = self.server.collect(phase, replies)
        return self

    def run(self, round_: int, gone: Mapping[str, Collection[int]] | None = None) -> Words:
        """Play a whole round; return its sum."""
        self.start(round_)
        for phase in ("mask", "consistency", "unmask"):
            self.step(phase, (gone or {}).get(phase, ()))
        return self.server.total()  # type: ignore[no-any-return]

    def _client(self, kind: type[Any], session: Any, client: int) -> Any:
        return kind(session, client, self.cohort.signing[client], self.entropy[client])

    def answer(self, phase: str, client: int) -> bytes:
        machine, request = self.clients[client], self.requests[client]
        if phase == "advertise":
            return machine.advertise()  # type: ignore[no-any-return]
        if phase == "mask":
            first = request if self.life == "round" else self.session.round
            return machine.mask(first, self.cohort.words[client])  # type: ignore[no-any-return]
        return getattr(machine, phase)(request)  # type: ignore[no-any-return]

    @property
    def session(self) -> Any:
        return self.server.session

    # What somebody who reads all messages can compute.

    def told(self, owner: int, round_: int | None = None) -> dict[int, int]:
        """Return the shares of an owner's secret that the unmask replies of a round told, by point."""
        session = self.session if round_ is None else self.session.for_round(round_)
        replies = self.sent[session.round, "unmask"]
        masked = self.sent[session.round, "mask"]
        shares = {}
        for holder, reply in replies.items():
            at = messages.HEADER
            for client in session.clients:
                size = 32 if self.life == "session" and client not in masked else 33
                if client == owner and size == 33:
                    shares[session.position(holder) + 1] = shamir.read_share(reply[at : at + size])
                at += size
        return shares

    def opened(self, owner: int, round_: int) -> bytes:
        """Return the secret of an owner that a round opened: a seed, or the masking key of a client that dropped."""
        threshold = self.session.degree.threshold
        return shamir.reconstruct(self.told(owner, round_), threshold).to_bytes(32, "little")

    def masked(self, client: int, round_: int, message: bytes | None = None) -> Words:
        """Return the words of a masked vector as they travelled."""
        sent = self.sent[round_, "mask"][client] if message is None else message
        size = wire.frame_size(self.session.length, self.session.bits)
        frame = sent[-SIGNATURE - size : -SIGNATURE]
        return wire.unpack(frame, length=self.session.length, bits=self.session.bits)  # type: ignore[return-value]

    def without_seed(self, client: int, round_: int) -> Words:
        """Return a masked vector with the mask off whose seed the round opened: words under pair masks alone."""
        session = self.session.for_round(round_)
        key = rules.self_mask(session, self.opened(client, round_), session.position(client))
        return take_off(self.masked(client, round_), session.bits, {key: +1})


def take_off(words: Words, bits: int, keys: Mapping[bytes, int]) -> Words:
    """Return words with masks off that were added with these signs."""
    total = masks.new_sum(words.size, bits, words)
    for key, sign in keys.items():
        masks.add_mask(total, key, -sign)
    return masks.reduce(total, bits)


def uniform(words: Words, bits: int) -> bool:
    """Pass uniform words with probability 1 - FALSE_ALARM (chi-square over all 2^bits values)."""
    return float(stats.chisquare(np.bincount(words, minlength=1 << bits)).pvalue) > FALSE_ALARM
