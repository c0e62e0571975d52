"""Eyes on a count of ballots: what clients cast, what was opened, and whether both accounts had paid by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.streams import NamedStreams, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.coding import Coding, Opened, Terms
from sottovoce.federation.wrappers.behaviour import Scene
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import Signs
from sottovoce.studies.audit.canaries import Canary


@dataclass(frozen=True)
class Voters:
    """The behaviour of canaries that vote: those that are `present` cast a known ballot, the others send nothing.

    That is zero-out adjacency for ballots: a client is counted with sqrt(d) votes, or it is not.
    """

    canaries: Mapping[int, Canary]
    present: frozenset[int]

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield updates of nothing: no canary trains."""
        still = np.zeros(scene.task.params.size, np.float32)
        return (still for _ in clients)

    def words(self, scene: Scene, client: int, message: Message, coding: Coding, terms: Terms) -> NDArray[Any]:
        """Return the canary's ballot, packed, or leave."""
        if not isinstance(coding, Ballots):
            raise InputError("canaries that vote are for ballots")
        if client not in self.present:
            raise RunError(f"client {client} is a canary that stays out")
        return self.canaries[client].message(coding.plan, 0.0)


@dataclass(frozen=True)
class Mixed:
    """The owners of randomness in a game, of which each aggregator may have secrets of another run.

    Noise that is an aggregator's own changes with its secrets, and with nobody else's.
    """

    common: Seeds  # of what everybody knows
    clients: Seeds
    leader: Seeds
    other: Seeds  # the helper's

    @classmethod
    def of(cls, seeds: Seeds) -> Self:
        """Return the owners of an ordinary run."""
        return cls(seeds, seeds, seeds, seeds)

    @property
    def seed(self) -> int:
        """Return the seed of what is public."""
        return self.common.seed

    @property
    def public(self) -> Streams:
        """Return the streams that every party knows."""
        return self.common.public

    @property
    def world(self) -> Streams:
        """Return the streams of what happens to the parties."""
        return self.common.world

    @property
    def adversary(self) -> Streams:
        """Return the streams of malicious clients."""
        return self.common.adversary

    @property
    def server(self) -> NamedStreams:
        """Return the leader's streams."""
        return self.leader.server

    @property
    def helper(self) -> NamedStreams:
        """Return the helper's streams."""
        return self.other.helper

    def client(self, client: int) -> NamedStreams:
        """Return one client's own streams."""
        return self.clients.client(client)


@dataclass(frozen=True)
class Casting(Ballots):
    """The clients' coding, which remembers the ballot of each."""

    cast: dict[int, Signs] = field(default_factory=dict)

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> Signs:
        """Return the ballot of a message."""
        self.cast[client] = super().words(message, terms, round_, client)
        return self.cast[client]


@dataclass(frozen=True)
class SumOpening(Ballots):
    """The leader's coding, which tells the votes that are opened, with both noises, and when."""

    told: Callable[[NDArray[np.int64]], None] = field(default=lambda votes: None)

    def decode(self, votes: NDArray[Any], round_: int) -> Opened:
        """Return the sum of messages that noisy votes stand for."""
        self.told(np.array(votes, np.int64))
        return super().decode(votes, round_)
