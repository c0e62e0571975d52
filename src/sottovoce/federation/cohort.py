"""Draw the clients of a round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.cohort import LEAST_COHORT
from sottovoce.schemes.base import State

_RARE: Final = 1e-6


@dataclass(frozen=True)
class Cohort:
    """The law by which clients are asked: each with probability `sample_rate` (Poisson), or exactly that share (fixed).

    >>> Cohort(clients=600, sample_rate=Fraction(1, 60)).expected
    10.0
    """

    clients: int
    sample_rate: Fraction
    sampling: Literal["poisson", "fixed"] = "poisson"
    cap: int | None = None  # truncated Poisson: a larger draw is cut to a uniform subset of this size
    floor: int | None = None  # the least cohort of which a secure sum is opened; None: a default

    def __post_init__(self) -> None:
        in_range("clients", self.clients, low=1)
        in_range("sample_rate", float(self.sample_rate), low=0, high=1, open_low=True)
        if self.floor is not None:
            in_range("[cohort] floor", self.floor, low=2, high=max(2, self.most))
        if self.sampling == "fixed" and self.size < 1:
            raise InputError(
                f"sample_rate {self.sample_rate} of {self.clients} clients asks nobody; "
                f"it must be at least 1/{self.clients}"
            )

    @property
    def size(self) -> int:
        """Return the number of clients that fixed sampling asks."""
        return round(self.sample_rate * self.clients)

    @property
    def expected(self) -> float:
        """Return the public number that sums are divided by."""
        return float(self.size) if self.sampling == "fixed" else float(self.sample_rate * self.clients)

    @property
    def most(self) -> int:
        """Bound the size of a cohort; a Poisson draw above it happens in fewer than one of 10^30 rounds."""
        if self.cap is not None:
            return min(self.cap, self.clients)
        if self.sampling == "fixed":
            return self.size
        return min(self.clients, math.ceil(self.expected + 12 * math.sqrt(self.expected) + 50))

    @property
    def least(self) -> int:
        """Bound the size of a cohort from below; a Poisson draw below it happens in at most one of 10^6 rounds."""
        if self.sampling == "fixed":
            return self.most
        from scipy.special import bdtr  # scipy.stats, which has the quantile, takes a second and 60 MB

        low, high = -1, self.clients  # P[at most low] < 10^-6 <= P[at most high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if bdtr(middle, self.clients, float(self.sample_rate)) >= _RARE else (middle, high)
            )
        return min(self.most, high)

    def smallest(self, colluders: int = 0) -> int:
        """Return the least cohort of a secure sum that is not private: the floor, or half of the expected cohort.

        At least LEAST_COHORT and the colluders, if so many are expected; more, if smaller draws hardly ever happen.
        """
        if self.floor is not None:
            return self.floor
        wanted = max(LEAST_COHORT + colluders, math.ceil(self.expected / 2))
        return max(2, self.least, min(wanted, int(self.expected)))

    def draw(self, rng: Generator) -> NDArray[np.int64]:
        """Return the ids of this round's clients, ascending.

        A binomial count and then a uniform subset of that size is the same law as one coin a client, and costs nothing
        for the clients that are not asked.
        """
        size = self.size if self.sampling == "fixed" else int(rng.binomial(self.clients, float(self.sample_rate)))
        drawn = rng.choice(self.clients, size=size, replace=False)
        if len(drawn) > self.most:
            drawn = rng.choice(drawn, size=self.most, replace=False)
        return np.sort(drawn).astype(np.int64)


class Sampler(Protocol):
    """A way to draw the clients of a round, for private and other runs alike."""

    def draw(self, state: State, rng: Generator) -> tuple[list[int], State]:
        """Return the clients of the next round, ascending, and what the server must keep of the draw."""
        ...


@dataclass(frozen=True)
class PlainSampler:
    """The sampler of a run that is not private; nothing is kept."""

    cohort: Cohort

    def draw(self, state: State, rng: Generator) -> tuple[list[int], State]:
        """Return the clients of the next round."""
        return self.cohort.draw(rng).tolist(), {}


@dataclass(frozen=True)
class PrivateSampler:
    """The sampler of a private run: it draws exactly as the plan is charged, and counts how often each is drawn."""

    plan: PrivacyPlan

    def draw(self, state: State, rng: Generator) -> tuple[list[int], State]:
        """Return the clients of the next round, and the counts after it."""
        drawn = self.plan.draw_cohort(state["draws"], rng)
        return drawn.clients.tolist(), {"draws": drawn.draws}
