"""Malicious clients around any engine: who of a round's cohort leaves the protocol.

How they behave is told to the engine's workers beforehand (`behaviour`). The papers give the share of malicious clients
"in the round's set": that is `of = "cohort"`, which takes that share of every cohort, rounded up. With
`of = "population"` the same clients are malicious in all rounds, and a cohort holds as many of them as it happens to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from sottovoce.core.streams import Purpose, Streams
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.stages.vote import VOTE
from sottovoce.federation.wrappers.base import Around


@dataclass(frozen=True)
class Choice:
    """The rule by which clients of a round are malicious; the world's streams decide.

    >>> len(Choice(Fraction(1, 10), "cohort", 50).among(3, range(25), Streams(1)))
    3
    """

    fraction: Fraction
    of: Literal["cohort", "population"]
    clients: int
    rounds: tuple[tuple[int, int], ...] = ()  # first and last of each stretch of attacked rounds; empty: all rounds
    opening: bool = False  # the message before round 1 is attacked too

    def among(self, round_: int, cohort: range | list[int], world: Streams) -> frozenset[int]:
        """Return the malicious clients of a cohort; nobody attacks the vote before round 1, but they do a whitening."""
        if (round_ == VOTE and not self.opening) or not len(cohort) or not self._strikes(round_):
            return frozenset()
        if self.of == "population":
            return _always(self, world).intersection(cohort)
        size = math.ceil(self.fraction * len(cohort))
        drawn = world.get(Purpose.ATTACK, 1, round_).choice(sorted(cohort), size=size, replace=False)
        return frozenset(drawn.tolist())

    def pool(self, world: Streams) -> tuple[int, ...]:
        """Return all clients that the attackers ever speak for: their share of the population, the same every time."""
        return tuple(sorted(_always(self, world)))

    def _strikes(self, round_: int) -> bool:
        return round_ == VOTE or not self.rounds or any(first <= round_ <= last for first, last in self.rounds)

    def most(self, cohort: int) -> int:
        """Bound the number of malicious clients in a cohort of so many."""
        share = math.ceil(self.fraction * (cohort if self.of == "cohort" else self.clients))
        return min(share, cohort)


@lru_cache(maxsize=1)  # the same clients in every round, perhaps many
def _always(choice: Choice, world: Streams) -> frozenset[int]:
    size = math.ceil(choice.fraction * choice.clients)
    drawn = world.get(Purpose.ATTACK, 0).choice(choice.clients, size=size, replace=False, shuffle=False)
    return frozenset(drawn.tolist())


@dataclass
class Malicious(Around):
    """An engine that tells its workers, in each request, which clients of the round are malicious."""

    choice: Choice
    streams: Streams  # the world's
    _round: frozenset[int] = field(default=frozenset(), init=False)  # of the round that was opened last

    def send(self, request: Request) -> Reply:
        """Deliver a request; an opening shows who is in the cohort, and so who of it is malicious."""
        if request.opening:
            self._round = self.choice.among(request.round, list(request.payloads), self.streams)
        # Malicious clients come first, so that few workers act for them and compute what they compute together.
        payloads = dict(sorted(request.payloads.items(), key=lambda item: item[0] not in self._round))
        return self.engine.send(request._replace(malicious=self._round, payloads=payloads))
