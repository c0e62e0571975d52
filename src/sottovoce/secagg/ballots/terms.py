"""What clients, leader and helper of a count have in common; every signature and every key is bound to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.validate import in_range
from sottovoce.secagg.primitives import KEY, usable

HASH: Final = 32
_VERSION: Final = b"sottovoce ballot 3"


@dataclass(frozen=True, kw_only=True)
class BallotTerms:
    """The terms of all rounds of a count; leader, helper and clients each derive their own from the configuration.

    `floor` is the fewest ballots that are opened (a round without any opens noise alone), `cap` the most.
    """

    config_digest: bytes
    session: bytes  # 16 bytes, new for every run
    length: int  # votes of a ballot
    bits: int  # of the aggregators' shares
    floor: int
    cap: int
    last_round: int
    participations: int  # rounds in which one client casts a ballot at most
    leader_key: bytes  # Ed25519, to verify what the leader signs
    helper_key: bytes  # Ed25519
    helper_exchange: bytes  # X25519, to which clients seal their seeds
    coins: tuple[
        int, ...
    ] = ()  # tossed together for every vote, of the weights 1, 2, 4, ...; none: each has its own noise
    first_round: int = 1

    def __post_init__(self) -> None:
        in_range("length", self.length, low=1)
        in_range("floor", self.floor, low=1, high=self.cap)
        if self.bits not in (16, 32) or 1 << (self.bits - 1) <= self.cap:
            raise InputError(f"shares have 16 or 32 bits and hold {self.cap} votes, got {self.bits}")
        sizes = {"config_digest": HASH, "session": 16, "leader_key": KEY, "helper_key": KEY, "helper_exchange": KEY}
        for name, size in sizes.items():
            if len(getattr(self, name)) != size:
                raise InputError(f"{name} must have {size} bytes, got {len(getattr(self, name))}")
        if self.leader_key == self.helper_key:
            raise InputError("the helper must not be the leader, and both have the same key; name another institution")
        if not usable(self.helper_exchange):
            raise SecAggError("the helper's exchange key is a point of small order: everybody could open seeds")

    def digest(self) -> bytes:
        """Return a fingerprint of everything above."""
        numbers = (self.length, self.bits, self.floor, self.cap, self.last_round, self.participations)
        packed = b"".join(number.to_bytes(8, "little") for number in numbers)
        keys = self.leader_key + self.helper_key + self.helper_exchange
        if self.coins or self.first_round != 1:
            packed += b"".join(number.to_bytes(8, "little") for number in (self.first_round, *self.coins))
        return hashlib.sha256(_VERSION + self.config_digest + self.session + packed + keys).digest()

    def context(self, round_: int, client: int, downlink: bytes) -> bytes:
        """Return what one ballot is bound to: terms, round, client, and the hash of the model it was made from."""
        return _VERSION + self.digest() + round_.to_bytes(8, "little") + client.to_bytes(8, "little") + downlink

    def check_round(self, round_: int) -> None:
        """Raise unless a round is one of this run."""
        if not self.first_round <= round_ <= self.last_round:
            rounds = f"{self.first_round} to {self.last_round}"
            raise SecAggError(f"round {round_} is refused: the rounds of this count are {rounds}")

    def check_participation(self, before: int) -> None:
        """Raise if a client that has cast so many ballots may cast no more."""
        if before >= self.participations:
            raise SecAggError(f"this client has cast {before} ballots, and the run allows {self.participations}")

    def check_number(self, ballots: int) -> None:
        """Raise unless so many ballots may be opened."""
        if 0 < ballots < self.floor:
            raise SecAggError(f"{ballots} ballots, but {self.floor} are needed; nothing was released")
        if ballots > self.cap:
            raise SecAggError(f"{ballots} ballots, but a round has at most {self.cap}; nothing was released")


def accepted_digest(terms: BallotTerms, round_: int, accepted: Iterable[tuple[int, bytes]]) -> bytes:
    """Return what both aggregators sign: the clients that a round counts, and the commitment to each masked ballot."""
    listed = b"".join(client.to_bytes(8, "little") + commitment for client, commitment in accepted)
    return hashlib.sha256(_VERSION + b" accepted" + terms.digest() + round_.to_bytes(8, "little") + listed).digest()
