"""Turn messages into ballots of one bit a value, and counted votes back into a sum of messages.

A ballot x of d bits stands for d votes, 2x - 1. Three ways to cast a message u, with c = clip_norm / sqrt(d):

    sign         x = [u > 0]; the vote on a zero is drawn by a fair coin
    stochastic   P(x = 1) = (1 + clip(u / c, -1, 1)) / 2, so that c (2x - 1) is u on average where |u| <= c
    rotated      the same after a random rotation of the round (signs, then an orthonormal cosine transform), which
                 spreads every message evenly over all values

The sum of the votes T becomes c T, turned back. A message need not be clipped: its ballot cannot be longer than
sqrt(d) votes, whatever is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, WireError
from sottovoce.core.streams import NamedStreams, Owners, Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Opened, Terms
from sottovoce.federation.sums import Fold
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import Signs, Tally, expand, pack_signs, packed_size
from sottovoce.secagg.ballots import SEAL, BallotTerms
from sottovoce.secagg.sizes import Outline

BallotForm = Literal["sign", "stochastic", "rotated"]
SHARE_BITS: Final = 16  # of the aggregators' shares of a vote, where a plan does not say
_ROTATION: Final = 1  # paths of Purpose.BALLOT
_COINS: Final = 2


@dataclass(frozen=True)
class BallotSum:
    """The count of ballots as they are: those of an ideal count, with zeros in the place of what would seal them."""

    length: int

    @property
    def payload_size(self) -> int:
        """Return the bytes of every message: ceil(d / 8) + 144."""
        return packed_size(self.length) + SEAL

    def empty(self) -> Tally:
        """Return a tally without votes."""
        return Tally(self.length)

    def add(self, accumulator: Tally, payload: bytes) -> None:
        """Add one ballot; only +1 and -1 can be said in one bit."""
        if len(payload) != self.payload_size:
            raise WireError(f"a ballot has {self.payload_size} bytes, got {len(payload)}")
        signs = np.frombuffer(payload, np.uint8, packed_size(self.length))
        if self.length % 8 and signs[-1] >> self.length % 8:
            raise WireError("the bits after the last vote of a ballot must be zero")
        accumulator.add(signs)

    def merge(self, accumulator: Tally, other: Tally) -> None:
        """Add another tally."""
        accumulator.merge(other)

    def total(self, accumulator: Tally) -> NDArray[np.int32]:
        """Return the sum of votes."""
        return accumulator.total()


@dataclass(frozen=True)
class Ballots:
    """Messages as ballots.

    Guarantee: in a deployment every noise has a fresh key of the operating system; elsewhere it is seeded.
    """

    plan: PrivacyPlan
    seeds: Owners
    form: BallotForm

    bits = 1

    @property
    def length(self) -> int:
        """Return the votes of one ballot."""
        return self.plan.request.length

    def outline(self, cohort: int) -> Outline:
        """Return a round of so many ballots as far as its bytes go."""
        return Outline(cohort, self.length, self.plan.bits or SHARE_BITS, coins=self.coins)

    @property
    def coins(self) -> tuple[int, ...]:
        """Return the coins that both aggregators toss together; none if each adds noise of its own."""
        return () if self.plan.grid is None else self.plan.grid.coins

    @property
    def fold(self) -> Fold:
        """Return how ballots add up."""
        return BallotSum(self.length)

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> Signs:
        """Return the ballot of a message, packed."""
        if self.plan.request.form == "signs":
            return message
        if not np.isfinite(np.sum(message, dtype=np.float64)):
            raise RunError("an update with values that are not finite has no ballot; the client diverged")
        rng = self.seeds.client(client).get(Purpose.BALLOT, _COINS, round_)
        if self.form == "sign":
            return pack_signs(message, rng)
        turned = self._turned(message, round_)
        # u / c is a vote's mean; below -1 or above 1 the coin has one side.
        ones = rng.random(turned.size, np.float32) * np.float32(2) - np.float32(1) < turned / np.float32(
            self.plan.step()
        )
        return np.packbits(ones, bitorder="little")

    def aimed(self, values: NDArray[Any], round_: int) -> Signs:
        """Return the ballot of a malicious client that moves the sum as far as a ballot can towards `values`."""
        wanted = values if self.plan.request.form == "signs" else self._turned(np.asarray(values, np.float32), round_)
        return np.packbits(np.nan_to_num(wanted) > 0, bitorder="little")

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> NDArray[Any]:
        """Return the votes of `values` in a round whose rotation is not known; nothing can be boosted in one bit."""
        return replace(self, form="sign").aimed(values, 0)

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the message of an ideal count: the ballot, and zeros where a real one is sealed and signed."""
        return words.tobytes() + bytes(SEAL)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Return the noisy sum of the messages that votes stand for: both aggregators add their noise."""
        if self.coins:
            return self.decode(total + self.joint_noise(round_), round_)
        return self.decode(total + self.leader_noise(round_) + self.helper_noise(round_), round_)

    def decode(self, votes: NDArray[Any], round_: int) -> Opened:
        """Return the sum of messages that noisy votes stand for."""
        clip_norm = self.plan.request.clip_norm
        if self.plan.request.form == "signs":
            return Opened(votes, clip_norm)
        values = (votes * self.plan.step()).astype(np.float32)
        if self.form == "rotated":
            values = rotate_back(values, self._rotation(round_))
        return Opened(values, clip_norm)

    def joint_noise(self, round_: int) -> NDArray[np.int64]:
        """Return what the coins of both aggregators add to the votes of a round."""
        return self.plan.coin_votes(self.leader_coins(round_) ^ self.helper_coins(round_))

    def leader_coins(self, round_: int) -> NDArray[np.uint8]:
        """Return the leader's bits of the coins of a round."""
        return self.plan.toss(self._randomness(self.seeds.server, round_))

    def helper_coins(self, round_: int) -> NDArray[np.uint8]:
        """Return the helper's bits of the coins of a round."""
        return self.plan.toss(self._randomness(self.seeds.helper, round_))

    def cover(self, round_: int) -> NDArray[np.int64]:
        """Return the noise of a round that failed: that of two aggregators, all of it the leader's."""
        if not self.coins:
            return self.leader_noise(round_) + self.leader_noise(round_)
        return self.plan.coin_votes(self.leader_coins(round_))

    def leader_noise(self, round_: int) -> NDArray[np.int64]:
        """Return what the leader adds to the votes of a round, beside coins."""
        if self.coins:  # their mean is taken off
            return self.plan.coin_votes(np.zeros((sum(self.coins), packed_size(self.length)), np.uint8))
        return self._noise(self.seeds.server, round_)

    def helper_noise(self, round_: int) -> NDArray[np.int64]:
        """Return what the helper adds to the votes of a round, beside coins."""
        if self.coins:
            return np.zeros(self.length, np.int64)
        return self._noise(self.seeds.helper, round_)

    def _noise(self, owner: NamedStreams, round_: int) -> NDArray[np.int64]:
        return self.plan.aggregator_noise(self._randomness(owner, round_))

    def _randomness(self, owner: NamedStreams, round_: int) -> Randomness:
        if self.plan.request.deployment:
            return Randomness.system()
        return Randomness.simulated(owner.key(Purpose.NOISE, round_))

    def _turned(self, message: Vector, round_: int) -> Vector:
        return rotate(message, self._rotation(round_)) if self.form == "rotated" else message

    def _rotation(self, round_: int) -> Signs:
        return _signs(self.seeds.public, round_, self.length)


def rotate(values: Vector, signs: Signs) -> Vector:
    """Return D s u: random signs, then the orthonormal cosine transform; lengths and angles stay as they are."""
    from scipy.fft import dct  # 16 MB, which nodes of other runs need not hold

    return np.asarray(dct(values * expand(signs, values.size), type=2, norm="ortho"), np.float32)


def rotate_back(values: Vector, signs: Signs) -> Vector:
    """Undo `rotate`, up to rounding."""
    from scipy.fft import idct

    turned = idct(values, type=2, norm="ortho")
    return np.asarray(turned * expand(signs, values.size), np.float32)


@lru_cache(maxsize=2)  # every client of a round asks for the same
def _signs(public: Streams, round_: int, length: int) -> Signs:
    """Return the rotation of a round: it follows from the public seed, which is fixed before anybody votes."""
    rng = public.get(Purpose.BALLOT, _ROTATION, round_)
    signs = np.frombuffer(rng.bytes(packed_size(length)), np.uint8).copy()
    if length % 8:
        signs[-1] &= (1 << length % 8) - 1
    return signs


class CountKeys(NamedTuple):
    """The public keys of the two aggregators; between machines those of the roster."""

    leader: bytes  # Ed25519
    helper: bytes  # Ed25519
    exchange: bytes  # X25519, to which clients seal their seeds


def terms_of(
    plan: PrivacyPlan, keys: CountKeys, session: bytes, config_digest: bytes, first_round: int = 1
) -> BallotTerms:
    """Return what every signature and key of a count is bound to."""
    if plan.bits is None or plan.grid is None:
        raise RunError("the continuous Gaussian does not count votes")
    return BallotTerms(
        config_digest=config_digest,
        session=session,
        length=plan.request.length,
        bits=plan.bits,
        floor=min(2, plan.shares.floor),
        cap=plan.cohort_cap,
        first_round=first_round,
        last_round=first_round + plan.rounds - 1,
        coins=plan.grid.coins,
        participations=plan.max_participations,
        leader_key=keys.leader,
        helper_key=keys.helper,
        helper_exchange=keys.exchange,
    )
