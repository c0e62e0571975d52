"""Leader and helper of the real protocol in one process, with an ear at what travels between them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.aggregation.ballots.count import RealCount, helper_private, helper_signing, leader_signing
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ballots import BallotTerms, Helper, Leader
from sottovoce.secagg.ot.base import TRANSFERS


class ChargeWatch(Protocol):
    """Whoever notes which accounts are charged when the helper's share is asked for, and when it is there."""

    def check_leader(self) -> None:
        """Note whether the leader's account was charged by now."""
        ...

    def check_helper(self) -> None:
        """Note whether the helper's account was charged by now."""
        ...


class AggregatorPair:
    """Leader and helper of all games of an audit: one session of transfers, whoever votes and whatever the noise is."""

    def __init__(self, terms: BallotTerms, seeds: Seeds, secret: bytes) -> None:
        self.terms = terms
        self.registry: Mapping[int, bytes] = {}
        self.account: HelperAccount | None = None
        self.coding: Ballots | None = None  # of the helper
        self.listens = False
        self.asked: list[tuple[str, bytes, bytes]] = []
        self.watch: ChargeWatch | None = None
        entropy = KeyedEntropy(hashlib.sha256(b"sottovoce audit" + secret).digest())
        self._helper = Helper(
            terms,
            helper_signing(seeds),
            helper_private(seeds),
            _Registered(self),
            account=_Current(self),
            noise=self._noise,
            entropy=entropy,
            toss=self._helper_coins if terms.coins else None,
        )
        toss = self._leader_coins if terms.coins else None
        self.leader = Leader(terms, leader_signing(seeds), _Registered(self), self._answer, entropy, toss=toss)

    def _noise(self, round_: int) -> NDArray[np.int64]:
        if self.coding is None:
            raise RunError("no session has begun")
        return self.coding.helper_noise(round_)

    def _leader_coins(self, round_: int) -> NDArray[np.uint8]:
        if self.coding is None:
            raise RunError("no session has begun")
        return self.coding.leader_coins(round_)

    def _helper_coins(self, round_: int) -> NDArray[np.uint8]:
        if self.coding is None:
            raise RunError("no session has begun")
        return self.coding.helper_coins(round_)

    def _answer(self, kind: str, payload: bytes) -> bytes:
        if kind == "open" and self.watch is not None:
            self.watch.check_leader()
        reply = self._helper.answer(kind, payload)
        if self.listens:  # of the columns of a chunk the first will do: all together are 128 bits for each vote
            kept = payload[: 8 + (len(payload) - 8) // TRANSFERS] if kind == "transfer" else payload
            self.asked.append((kind, kept, reply))
        if kind == "open" and self.watch is not None:
            self.watch.check_helper()
        return reply


class _Registered(Mapping[int, bytes]):
    """The keys of the clients of the game that is played."""

    def __init__(self, pair: AggregatorPair) -> None:
        self._pair = pair

    def __getitem__(self, client: int) -> bytes:
        return self._pair.registry[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._pair.registry)

    def __len__(self) -> int:
        return len(self._pair.registry)


class _Current:
    """The helper's account of the game that is played."""

    def __init__(self, pair: AggregatorPair) -> None:
        self._pair = pair

    @property
    def _account(self) -> HelperAccount:
        if self._pair.account is None:
            raise RunError("no session has begun")
        return self._pair.account

    def check_round(self, round_: int) -> None:
        """Raise if a round cannot be counted any more."""
        self._account.check_round(round_)

    def admits(self, client: int, round_: int) -> bool:
        """Tell whether a client may be counted once more."""
        return self._account.admits(client, round_)

    def reserve(self, round_: int, clients: list[int], *, counter: int, session: str) -> None:
        """Write down whom a round counts."""
        self._account.reserve(round_, clients, counter=counter, session=session)

    def compare(self, round_: int, own: bytes, expected: bytes) -> None:
        """Write down the proofs of a comparison."""
        self._account.compare(round_, own, expected)

    def differ(self, round_: int) -> None:
        """Write down that the run is over."""
        self._account.differ(round_)

    def charge(self, round_: int) -> None:
        """Charge a round."""
        self._account.charge(round_)


class HeardCount(RealCount):
    """A real count whose leader is that of a watched pair."""

    def hear(self, pair: AggregatorPair) -> None:
        """Take the pair's leader, who talks to a helper of this process."""
        self._leader = pair.leader
