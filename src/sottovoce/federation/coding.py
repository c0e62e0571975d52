"""Turn a client's message into what travels, and the total back into a sum of messages.

clear      float32 values or packed signs, as the scheme made them
grid       integers modulo 2^b on a fixed grid: what a secure sum without privacy needs
private    integers modulo 2^b with clipping and a share of noise, as the privacy plan says
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError, WireError
from sottovoce.core.streams import NamedStreams, Owners, Purpose
from sottovoce.core.vectors import Vector
from sottovoce.federation.sums import LARGEST, FloatSum, Fold, SignSum, WordSum
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import expand

Words = NDArray[np.uint32]


class Terms(NamedTuple):
    """What server and clients agree on in a round besides the model: how many take part, and where they clip."""

    cohort: int
    clip_norm: float

    def pack(self) -> bytes:
        """Return the terms as a frame after the downlink."""
        return wire.pack(np.array(self, np.float32))

    @classmethod
    def split(cls, payload: bytes) -> tuple[bytes, Terms]:
        """Cut the terms off a downlink."""
        size = wire.frame_size(2)
        cohort, clip_norm = wire.unpack_floats(payload[-size:], length=2).tolist()
        if not (0 <= cohort <= 1 << 24 and cohort == int(cohort) and math.isfinite(clip_norm) and clip_norm >= 0):
            raise WireError(f"the terms of a round are no numbers of clients and norm: {cohort:g} and {clip_norm:g}")
        return payload[:-size], cls(int(cohort), clip_norm)


class Opened(NamedTuple):
    """The sum of a round's messages, and the clip norm of the next round."""

    values: NDArray[Any]
    clip_norm: float


class Coding(Protocol):
    """A way for messages to travel."""

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        ...

    @property
    def bits(self) -> int:
        """Return the bits of one coordinate on the wire."""
        ...

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> NDArray[Any]:
        """Return the message, protected: integers below 2^bits where it can be masked."""
        ...

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> NDArray[Any]:
        """Return `boost` times a message as a malicious client sends it: not clipped, without noise, in no range.

        `values` are floats, or +1 and -1. No word is further from zero than `part` of the modulus.
        """
        ...

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return what a client sends when nothing masks it."""
        ...

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the sum of the messages that a total stands for."""
        ...


@dataclass(frozen=True)
class Clear:
    """Messages as they are."""

    form: Literal["floats", "signs"]
    length: int
    senders: int

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        return SignSum(self.length) if self.form == "signs" else FloatSum(self.length, self.senders)

    @property
    def bits(self) -> int:
        """Return one bit for a sign, 32 for a float."""
        return 1 if self.form == "signs" else 32

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> NDArray[Any]:
        """Return the message itself."""
        return message

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> NDArray[Any]:
        """Return the boosted message, within what the server takes for an update; a sign cannot be boosted."""
        if self.form == "signs":
            return np.packbits(values > 0, bitorder="little")
        return _boosted(values, boost)

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the message's frame."""
        return wire.frame(words, length=self.length, bits=1) if self.form == "signs" else wire.pack(words)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the total itself."""
        return Opened(total, terms.clip_norm)


@dataclass(frozen=True)
class FloatGrid:
    """Floats on a grid that leaves room for all senders at the largest value; 32 bits a coordinate.

    The rounding error of a sum of k messages is at most k * step / 2 in every coordinate.
    """

    length: int
    senders: int
    largest: float

    bits = 32

    @property
    def step(self) -> float:
        """Return the distance of two neighbours on the grid."""
        return self.largest * self.senders / (2.0 ** (self.bits - 1) - self.senders)

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        return WordSum(self.length, self.bits)

    def words(self, message: Vector, terms: Terms, round_: int, client: int) -> Words:
        """Return the nearest grid points, modulo 2^bits."""
        if not float(np.max(np.abs(message), initial=0.0)) <= self.largest:
            raise RunError(
                f"the message has a value outside the secure sum's range of {self.largest:g}; "
                "raise [aggregation] largest"
            )
        return np.rint(message.astype(np.float64) / self.step).astype(np.int64).astype(np.uint32)

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> Words:
        """Return the boosted message on the grid."""
        return _wrapped(values * (boost / self.step), self.bits, part)

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the words, packed."""
        return wire.pack(words, bits=self.bits)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the sum; words in the upper half are negative."""
        return Opened(total.astype(np.uint32).view(np.int32) * self.step, terms.clip_norm)


@dataclass(frozen=True)
class SignGrid:
    """Votes for +1, counted in integers that hold the largest cohort."""

    length: int
    senders: int

    @property
    def bits(self) -> int:
        """Return the bits of the largest count."""
        return max(1, math.ceil(math.log2(self.senders + 1)))

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        return WordSum(self.length, self.bits)

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> Words:
        """Return 1 for +1 and 0 for -1."""
        return (expand(message, self.length) > 0).astype(np.uint32)

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> Words:
        """Return what makes the sum of signs grow by `boost` votes: every client counts as one vote against."""
        return _wrapped((1 + boost * values) / 2, self.bits, part)

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the words, packed."""
        return wire.pack(words, bits=self.bits)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the sum of signs: votes for less votes against."""
        return Opened(2 * total.astype(np.int64) - senders, terms.clip_norm)


@dataclass(frozen=True)
class Private:
    """Messages that are clipped, rounded and noised by the privacy plan.

    Guarantee: in a deployment every share of noise has a fresh key of the operating system; elsewhere it is seeded, and
    the run is a simulation.
    """

    plan: PrivacyPlan
    seeds: Owners

    @property
    def bits(self) -> int:
        """Return the bits of one word."""
        if self.plan.bits is None:
            raise InputError("the continuous Gaussian does not travel as integers")
        return self.plan.bits

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        if self.plan.bits is None:
            return FloatSum(self.plan.word_length, self.plan.cohort_cap)
        return WordSum(self.plan.word_length, self.bits)

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> Words:
        """Return the protected message."""
        if self.plan.request.form == "signs":
            message = expand(message, self.plan.request.length)
        randomness = self._own_randomness(round_, client)
        clip_norm = None if self.plan.adaptive is None else terms.clip_norm
        return self.plan.protect(message, cohort=terms.cohort, randomness=randomness, clip_norm=clip_norm)

    def payloads(
        self, messages: NDArray[np.float32], terms: Terms, round_: int, clients: Sequence[int]
    ) -> tuple[list[bytes], int] | None:
        """Return what some clients send, and how many of their messages were not finite; None: protect them singly."""
        randomness = [self._own_randomness(round_, client) for client in clients]
        found = self.plan.protect_rows(messages, cohort=terms.cohort, randomness=randomness)
        return None if found is None else (wire.pack_rows(found[0], self.bits), found[1])

    @property
    def of_sites(self) -> bool:
        """Tell whether a message is the sum of a site's own units."""
        return self.plan.request.of_sites

    def site_words(self, total: NDArray[np.int64], terms: Terms, round_: int, client: int) -> Words:
        """Return the sum of a site's units, protected once."""
        randomness = self._own_randomness(round_, client)
        return self.plan.protect_total(total, cohort=terms.cohort, randomness=randomness)

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> NDArray[Any]:
        """Return the boosted message on the grid; the count of adaptive clipping says nothing for or against."""
        if self.plan.bits is None:
            return _boosted(values, boost)
        step = self.plan.step(None if self.plan.adaptive is None else terms.clip_norm)
        words = _wrapped(values * (boost / step), self.bits, part)
        return words if self.plan.adaptive is None else np.append(words, np.uint32(0))

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the protected message, packed."""
        return wire.pack(words) if self.plan.bits is None else wire.pack(words, bits=self.bits)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the noisy sum; raise if too few came for the noise to be complete."""
        release = self.plan.recover(
            total,
            cohort=terms.cohort,
            survivors=senders,
            randomness=self._randomness(self.seeds.server, round_),
            clip_norm=None if self.plan.adaptive is None else terms.clip_norm,
            round_=round_,
        )
        return Opened(release.total, release.clip_norm)

    def _own_randomness(self, round_: int, client: int) -> Randomness:
        return self._randomness(self.seeds.client(client), round_)

    def _randomness(self, owner: NamedStreams, round_: int) -> Randomness:
        if self.plan.request.deployment:
            return Randomness.system()
        return Randomness.simulated(owner.key(Purpose.NOISE, round_))


def _wrapped(steps: NDArray[np.float64], bits: int, part: float) -> Words:
    """Return real numbers of grid steps as words modulo 2^bits, none further from zero than `part` of the modulus."""
    limit = max(1.0, math.floor(part * 2.0**bits))
    whole = np.rint(np.clip(np.nan_to_num(np.asarray(steps, np.float64)), -limit, limit)).astype(np.int64)
    return (whole & np.int64((1 << bits) - 1)).astype(np.uint32)


def _boosted(values: NDArray[Any], boost: float) -> Vector:
    """Return floats times a factor, within what a server takes for an update."""
    return np.asarray(np.clip(np.asarray(values, np.float64) * boost, -LARGEST, LARGEST), np.float32)
