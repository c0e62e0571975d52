"""Canary clients: what they send in place of an update, and how their trace in a sum is measured.

A canary that is in the game sends a known message through the real coding: clipped, rounded and noised like any other.
One that is out sends nothing, which is what zero-out adjacency means: its share of noise around zero. Everything else
of it, its draws, keys, masks and dropouts, is as of any client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Coding, Private, Terms
from sottovoce.federation.wrappers.behaviour import Scene
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.noise import path
from sottovoce.privacy.noise.mechanisms import Gaussian
from sottovoce.schemes.base import Message

OVERSIZED = 10.0  # clip norms: a message that must be clipped
BELOW = 0.999  # clip norms: a message that must not be, whatever a float rounds to


@dataclass(frozen=True)
class Canary:
    """A message in one direction: a single coordinate (dirac), a random one of all coordinates (dense), or signs.

    `scale` is its norm before clipping, in clip norms; signs have one length. Votes that are all +1 or all -1 are the
    signs "plus" and "minus".
    """

    place: int  # the coordinate, or the seed of the direction
    form: Literal["dirac", "dense", "signs", "plus", "minus"] = "dirac"
    scale: float = 1.0

    @property
    def name(self) -> str:
        """Return how tables call this kind of canary."""
        return f"{self.form} {self.scale:g}" if self.form in ("dirac", "dense") else self.form

    def votes(self, length: int) -> NDArray[np.int8]:
        """Return the signs of a canary that sends some, as +1 and -1."""
        if self.form == "signs":
            return _signs(self.place, length)
        return np.full(length, -1 if self.form == "minus" else 1, np.int8)

    def message(self, plan: PrivacyPlan, clip_norm: float) -> Message:
        """Return the message of a plan's form."""
        length = plan.request.length
        if self.form in ("signs", "plus", "minus"):
            return np.packbits(self.votes(length) > 0, bitorder="little")
        if self.form == "dense":
            return (_direction(self.place, length) * (self.scale * clip_norm)).astype(np.float32)
        message = np.zeros(length, np.float32)
        message[self.place] = self.scale * clip_norm
        return message

    def project(self, values: NDArray[Any]) -> float:
        """Return the part of a vector, of a message's length, that lies in this direction."""
        if self.form in ("signs", "plus", "minus"):
            return float(self.votes(values.size) @ values) / math.sqrt(values.size)
        if self.form == "dense":
            return float(_direction(self.place, values.size) @ values)
        return float(values[self.place])


@dataclass(frozen=True)
class Canaries:
    """The behaviour of canary clients in a federation; `present` of them are in."""

    canaries: Mapping[int, Canary]
    present: frozenset[int] = field(default=frozenset())

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield updates of nothing: no canary trains."""
        still = np.zeros(scene.task.params.size, np.float32)
        return (still for _ in clients)

    def words(self, scene: Scene, client: int, message: Message, coding: Coding, terms: Terms) -> NDArray[Any]:
        """Return the canary's words, made by the coding of every client, or those of nothing."""
        if not isinstance(coding, Private):
            raise InputError("canaries are for private runs")
        if client not in self.present:
            return nothing(coding, terms, scene.round, client)
        clip_norm = coding.plan.request.clip_norm if coding.plan.adaptive is None else terms.clip_norm
        return coding.words(self.canaries[client].message(coding.plan, clip_norm), terms, scene.round, client)


@lru_cache(maxsize=4)
def _direction(place: int, length: int) -> NDArray[np.float64]:
    """Return a random direction, the same for the same place.

    Of normal values and not of signs: values of one size all round up, or all down, and the canary would shrink.
    """
    raw = Streams(place).get(Purpose.SETUP, length).standard_normal(length)
    return np.asarray(raw / np.linalg.norm(raw))


@lru_cache(maxsize=1024)
def _signs(place: int, length: int) -> NDArray[np.int8]:
    """Return random signs, the same for the same place."""
    coins = Streams(place).get(Purpose.SETUP, length).integers(0, 2, length, dtype=np.int8)
    return 2 * coins - np.int8(1)


def nothing(coding: Private, terms: Terms, round_: int, client: int) -> NDArray[Any]:
    """Return the words of a client whose message was replaced by nothing: noise around zero, and no count."""
    plan = coding.plan
    if plan.request.form == "floats" and plan.adaptive is None:
        return coding.words(np.zeros(plan.request.length, np.float32), terms, round_, client)
    randomness = Randomness.simulated(coding.seeds.client(client).key(Purpose.NOISE, round_))
    if plan.grid is None:
        zeros = np.zeros(plan.word_length, np.float32)
        return Gaussian(plan.stddev() / math.sqrt(terms.cohort)).add(zeros, randomness)
    share = Fraction(plan.grid.variance) / terms.cohort
    return path.add_noise(np.zeros(plan.word_length, np.uint32), share, plan.grid.bits, randomness.bits())
