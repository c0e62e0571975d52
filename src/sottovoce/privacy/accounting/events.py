"""Say what a run releases, in the words of its accountants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sottovoce.core.validate import in_range, one_of
from sottovoce.privacy.adjacency import ADJACENCY

Accountant = Literal["pld", "rdp", "moments"]
Sampling = Literal["poisson", "fixed"]
ACCOUNTANTS: tuple[Accountant, ...] = ("pld", "rdp", "moments")
SAMPLINGS: tuple[Sampling, ...] = ("poisson", "fixed")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Some `rounds` of releases of a Gaussian sum over sampled clients.

    `cohort_cap` and `clients` say that Poisson cohorts above the cap are cut down to a uniformly random subset of
    that size (truncated Poisson); without them the cohort is whatever was drawn. `floor_slack` is what all these rounds
    take from delta because cohorts below a floor are sent home, and `quorum_slack` because rounds with too few answers
    release nothing; infinite if nobody knows how likely they are. Both are reckoned by `others`. `rounding` is
    the share s^2 / (z R)^2 by which the variance exceeds (z R)^2 on the integer grid, and `lattice` the distance of one
    round from the rounded Gaussian.
    """

    noise_multiplier: float
    sample_rate: float
    rounds: int
    sampling: Sampling = "poisson"
    cohort_cap: int | None = None
    clients: int | None = None
    floor_slack: float = 0.0
    quorum_slack: float = 0.0
    rounding: float = 0.0
    lattice: float = 0.0
    present: float = 1.0

    def __post_init__(self) -> None:
        in_range("noise_multiplier", self.noise_multiplier, low=0, open_low=True, high=1e6)
        in_range("sample_rate", self.sample_rate, low=0, open_low=True, high=1)
        in_range("rounds", self.rounds, low=1)
        one_of("sampling", self.sampling, SAMPLINGS)

    @property
    def distance(self) -> float:
        """Return how far one client can move the sum, in clip norms, as the adjacency has it.

        In a cohort of fixed size the dominating pair is (1 - q) N(0) + q N(2S) against N(0).
        """
        return ADJACENCY.distance(fixed_size=self.sampling == "fixed", sample_rate=self.sample_rate)

    def left(self, part: float) -> float:
        """Return the noise, in what one client can move, against somebody who knows all but `part` of its variance.

        The variance is (z R)^2 (1 + rounding); of what is left, the rounding width is taken again.
        """
        return self.noise_multiplier / self.distance * math.sqrt(max(0.0, part - self.rounding * (1 - part)))

    @property
    def faced(self) -> float:
        """Return the noise multiplier that outsiders face for certain: less than planned if shares may be left out."""
        return self.noise_multiplier if self.present == 1 else self.left(self.present) * self.distance
