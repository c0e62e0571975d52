"""A small count of ballots for the tests: keys, an account in memory, and base transfers that cost nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sottovoce.secagg import KeyedEntropy, verifying_key
from sottovoce.secagg.ballots import BallotTerms, Helper, Leader, cast
from sottovoce.secagg.ballots import helper as helper_module
from sottovoce.secagg.ballots import leader as leader_module
from sottovoce.secagg.primitives import exchange_key

DOWNLINK = hashlib.sha256(b"the model").digest()


def key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


class FakeSender:
    """Base transfers without secrets: as quick as a hash, and no more secret than the offer."""

    def __init__(self, entropy: Any) -> None:
        self._offer = entropy(32)

    def offer(self) -> bytes:
        return bytes(self._offer)

    def keys(self, session: bytes, request: bytes) -> list[tuple[bytes, bytes]]:
        return [(_fake(session, self._offer, i, 0), _fake(session, self._offer, i, 1)) for i in range(128)]


class FakeReceiver:
    def __init__(self, session: bytes, choices: list[int], entropy: Any) -> None:
        self._session, self._choices = session, choices

    def request(self) -> bytes:
        return b""

    def keys(self, offer: bytes) -> list[bytes]:
        return [_fake(self._session, offer, i, choice) for i, choice in enumerate(self._choices)]


def _fake(session: bytes, offer: bytes, index: int, choice: int) -> bytes:
    return hashlib.sha256(session + offer + bytes([index, choice])).digest()


def without_base_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (leader_module, helper_module):
        monkeypatch.setattr(module, "BaseSender", FakeSender)
        monkeypatch.setattr(module, "BaseReceiver", FakeReceiver)


@dataclass
class Memory:
    """An account in memory that writes down what it was asked."""

    most: int = 10**9
    log: list[tuple[Any, ...]] = field(default_factory=list)
    counted: dict[int, int] = field(default_factory=dict)

    def check_round(self, round_: int) -> None:
        self.log.append(("round", round_))

    def admits(self, client: int, round_: int) -> bool:
        return self.counted.get(client, 0) < self.most

    def reserve(self, round_: int, clients: list[int], *, counter: int, session: str) -> None:
        for client in clients:
            self.counted[client] = self.counted.get(client, 0) + 1
        self.log.append(("reserve", round_, tuple(clients), counter))

    def compare(self, round_: int, own: bytes, expected: bytes) -> None:
        self.log.append(("compare", round_))

    def differ(self, round_: int) -> None:
        self.log.append(("differ", round_))

    def charge(self, round_: int) -> None:
        self.log.append(("charge", round_))


class Stage:
    """Leader, helper and clients in one process; every request between the two is kept in `wire`."""

    def __init__(
        self,
        length: int = 40,
        clients: int = 4,
        *,
        bits: int = 16,
        most: int = 10**9,
        noise: int = 0,
        coins: tuple[int, ...] = (),
    ) -> None:
        self.clients = clients
        self.terms = BallotTerms(
            config_digest=key("config"),
            session=key("session")[:16],
            length=length,
            bits=bits,
            floor=2,
            cap=50,
            last_round=10**6,
            participations=10**6,
            leader_key=verifying_key(key("leader")),
            helper_key=verifying_key(key("helper")),
            helper_exchange=exchange_key(key("exchange")),
            coins=coins,
        )
        self.keys = {client: verifying_key(self.signing(client)) for client in range(clients)}
        self.account = Memory(most)
        self.wire: list[tuple[str, bytes, bytes]] = []
        self.entropy = KeyedEntropy(key("entropy"))
        self.helper = self.new_helper(noise)
        self.leader = Leader(self.terms, key("leader"), self.keys, self.answer, KeyedEntropy(key("leader entropy")))
        self.leader._toss = self.tosser("leader")

    def new_helper(self, noise: int = 0, **changes: Any) -> Helper:
        entropy = KeyedEntropy(key("helper entropy"))
        given = {"account": self.account, "entropy": entropy, "toss": self.tosser("helper"), **changes}
        return Helper(
            self.terms,
            key("helper"),
            key("exchange"),
            self.keys,
            noise=lambda round_: np.full(self.terms.length, noise * round_, np.int64),
            **given,
        )

    def tosser(self, side: str) -> Callable[[int], np.ndarray]:
        """Return how a side tosses its bits of all coins; the same ones every time that it is asked of a round."""
        rows, length = sum(self.terms.coins), self.terms.length

        def toss(round_: int) -> np.ndarray:
            rng = np.random.default_rng([round_, side == "leader"])
            return np.packbits(rng.integers(0, 2, (rows, length), np.uint8), axis=1, bitorder="little")

        return toss

    def coins(self, round_: int) -> np.ndarray:
        """Return what the coins of a round come to, in votes."""
        bits = self.tosser("leader")(round_) ^ self.tosser("helper")(round_)
        weights = np.repeat(1 << np.arange(len(self.terms.coins)), self.terms.coins)
        return weights @ np.unpackbits(bits, axis=1, count=self.terms.length, bitorder="little").astype(np.int64)

    def answer(self, kind: str, payload: bytes) -> bytes:
        reply = self.helper.answer(kind, payload)
        self.wire.append((kind, payload, reply))
        return reply

    @staticmethod
    def signing(client: int) -> bytes:
        return key(f"client {client}")

    def ballot(self, votes: np.ndarray) -> bytes:
        return np.packbits(votes > 0, bitorder="little").tobytes()

    def message(self, round_: int, client: int, votes: np.ndarray, **changes: Any) -> bytes:
        given = {"downlink": DOWNLINK, "signing_key": self.signing(client), "entropy": self.entropy, **changes}
        return cast(self.terms, round_, client, self.ballot(votes), **given)

    def votes(self, seed: int) -> np.ndarray:
        return 2 * np.random.default_rng(seed).integers(0, 2, self.terms.length) - 1

    def count(self, round_: int, messages: dict[int, bytes], refused: dict[int, str] | None = None) -> np.ndarray:
        """Play a round; a message that the leader refuses is left out, with the reason in `refused`."""
        self.leader.begin(round_, list(messages), DOWNLINK)
        for client, payload in messages.items():
            try:
                self.leader.accept(client, payload)
            except Exception as error:
                if refused is None:
                    raise
                refused[client] = str(error)
        self.leader.agree()
        self.leader.multiply()
        self.leader.compare()
        return self.leader.open(np.zeros(self.terms.length, np.int64))
