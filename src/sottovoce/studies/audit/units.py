"""The units in which an audit measures a plan's words: grid steps, or the message's own where noise is continuous."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.noise.grid import Form

Values = NDArray[np.float64]


@dataclass(frozen=True)
class UnitFormulas:
    """What the words of a plan should be, by the formulas of docs/privacy.md and not by the code that makes them."""

    plan: PrivacyPlan

    @property
    def discrete(self) -> bool:
        """Tell whether words are integers."""
        return self.plan.grid is not None

    @property
    def form(self) -> Form:
        """Return what messages are made of."""
        return self.plan.request.form

    @property
    def radius(self) -> float:
        """Return the most by which one client may move the sum of all words."""
        return self.plan.request.clip_norm if self.plan.grid is None else self.plan.grid.radius

    @property
    def update_radius(self) -> float:
        """Return by how much a canary moves them, without the count of adaptive clipping.

        The centre of a sign is at most one grid step, so short messages of signs move less than they are charged for.
        """
        if self.form == "signs":
            return min(self.radius, math.sqrt(self.plan.request.length))
        return self.radius if self.plan.grid is None else self.plan.update_radius

    @property
    def rate(self) -> float:
        """Return the chance of a canary to take part in a round, against whoever does not know the draws."""
        request = self.plan.request
        return request.unit_rate if request.of_sites else request.sample_rate

    @property
    def variance(self) -> float:
        """Return V, the noise variance of a whole cohort in each word."""
        return self.plan.stddev() ** 2 if self.plan.grid is None else self.plan.grid.variance

    @property
    def count_centre(self) -> float:
        """Return what a client below the clip norm adds to the count, and one above takes from it."""
        if self.plan.adaptive is None or self.plan.grid is None:
            return 0.0
        half = self.plan.noise_multiplier * self.radius / self.plan.adaptive.count_stddev / 2
        places = 2**self.plan.grid.precision
        return float(math.floor(half * places) / places)

    def signed(self, words: NDArray[Any]) -> Values:
        """Return words as numbers: those in the upper half of the modulus are negative."""
        if self.plan.bits is None:
            return np.asarray(words, np.float64)
        whole = np.asarray(words, np.int64)
        return np.where(whole >= 1 << (self.plan.bits - 1), whole - (1 << self.plan.bits), whole).astype(np.float64)

    def of_release(self, values: NDArray[Any], clip_norm: float) -> Values:
        """Return a released sum in these units; integers again where words are."""
        if self.plan.grid is None:
            return np.asarray(values, np.float64)
        step = self.plan.step(None if self.plan.adaptive is None else clip_norm)
        return np.rint(np.asarray(values, np.float64) / step)

    def still(self) -> Values:
        """Return the centre of a client whose update is 0 everywhere, or +1 where only signs can be sent."""
        centre = np.zeros(self.plan.word_length)
        if self.plan.request.of_sites:
            return centre  # what a site sends that has no canary: its quiet units are zero
        if self.form == "signs":
            centre[:] = self.update_radius / math.sqrt(self.plan.request.length)
        if self.plan.adaptive is not None:
            centre[-1] = self.count_centre
        return centre
