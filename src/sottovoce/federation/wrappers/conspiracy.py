"""How malicious clients behave in a run: an attack's updates, and messages that are boosted instead of protected.

Nobody can check a word that is masked or noised, so under a secure sum malicious clients leave out clipping and noise
unless they are told to keep them, and send as much as they like. They know the modulus, as everybody does: together
they stay within a quarter of it, because a sum that wraps would undo their own work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.coding import Clear, Coding, Private, SignGrid, Terms
from sottovoce.federation.wrappers.behaviour import Scene
from sottovoce.privacy.noise.clipping import clip
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import expand
from sottovoce.threats.attack import Attack

_QUARTER = 0.25
_MARGIN = 2.0  # standard deviations that the energy-aware attacker stays below the guard


@dataclass(frozen=True)
class Conspiracy:
    """The behaviour of malicious clients: what they train towards, and what they do to a message."""

    attack: Attack
    boost: float | None  # None: the attack's own, for the number of malicious clients in the round
    data: str  # the name of the data, by which the papers choose the boost
    fraction: float
    cohort: float  # the expected one, which is public
    omit_noise: bool = True
    skip_clipping: bool = True
    guard_width: float = 4.0

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the attack's updates."""
        return self.attack.updates(scene, clients)

    def words(self, scene: Scene, client: int, message: Message, coding: Coding, terms: Terms) -> NDArray[Any]:
        """Return the message, boosted as the attack has it."""
        malicious = len(scene.malicious)
        values = _values(message, coding)
        if isinstance(coding, Ballots):
            return coding.aimed(values, scene.round)  # any bytes are a ballot, and nothing says more than this one
        if isinstance(coding, Private) and not self.skip_clipping:
            values = _clipped(values, coding, terms)
        boost, part = self._boost(malicious, values, coding, terms), _QUARTER / malicious
        if self.attack.form == "quarter":
            values, boost = np.sign(values), math.inf if boost else 0.0
        words = coding.forge(values, terms, boost=min(boost, 1e30), part=part)
        if not isinstance(coding, Private) or self.omit_noise:
            return words
        honest = coding.forge(_clipped(_values(message, coding), coding, terms), terms, boost=1, part=2 * _QUARTER)
        noise = coding.words(message, terms, scene.round, client) - honest  # words are unsigned, and wrap
        added: NDArray[Any] = words + noise
        return added if coding.plan.bits is None else np.bitwise_and(added, np.uint32((1 << coding.bits) - 1))

    def _boost(self, malicious: int, values: Vector, coding: Coding, terms: Terms) -> float:
        if self.attack.form == "energy" and isinstance(coding, Private):
            return self._room(malicious, values, coding, terms)
        if self.boost is not None:
            return self.boost
        return self.attack.usual_boost(data=self.data, fraction=self.fraction, malicious=malicious, cohort=self.cohort)

    def _room(self, malicious: int, values: Vector, coding: Private, terms: Terms) -> float:
        """Return the factor that brings the attackers' sum to what the energy guard lets pass."""
        length, clip_norm = coding.plan.request.length, _clip_norm(coding, terms)
        adaptive = None if coding.plan.adaptive is None else clip_norm
        variance = (coding.plan.stddev(adaptive) / clip_norm) ** 2
        room = max(0.0, self.guard_width - _MARGIN) * variance * math.sqrt(2 * length)
        if self.omit_noise:
            room += malicious * variance * length / self.cohort
        norm = float(np.linalg.norm(values.astype(np.float64)))
        return math.sqrt(room) * clip_norm / (malicious * norm) if norm else 0.0


def _values(message: Message, coding: Coding) -> NDArray[Any]:
    """Return a message as numbers; packed signs as +1 and -1."""
    if isinstance(coding, SignGrid) or (isinstance(coding, Clear) and coding.form == "signs"):
        return expand(message, coding.length)
    if isinstance(coding, Private | Ballots) and coding.plan.request.form == "signs":
        return expand(message, coding.plan.request.length)
    return message


def _clipped(values: NDArray[Any], coding: Private, terms: Terms) -> NDArray[Any]:
    return values if coding.plan.request.form == "signs" else clip(values, _clip_norm(coding, terms))


def _clip_norm(coding: Private, terms: Terms) -> float:
    return coding.plan.request.clip_norm if coding.plan.adaptive is None else terms.clip_norm
