"""What the games show of each aggregator: lower bounds of epsilon_server, and tests of the noise that hides from it.

The leader knows its own noise, so the helper's hides a client from it, and the other way round. Either subtracts from
the opened votes all that it knows, and measures what is left along a canary's ballot v:

    score = <v, T - own noise - the others' votes> / sqrt(d)        N(sqrt(d), V_a) if it was counted, N(0, V_a) if not

Where both toss coins together neither knows any noise: its own bits tell nothing of a coin, and all hides a client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.server_games import claim, exact_bound
from sottovoce.threats.audit.bounds import Spread, epsilon_of_mu, mu_of_shift
from sottovoce.threats.audit.finding import AuditFinding
from sottovoce.threats.audit.noise import CellNoise, NoiseSample, shift

ROUNDING = 2.0  # the rounding width of docs/privacy.md

Values = NDArray[np.float64]


def planned_variance(noise_multiplier: float, length: int) -> float:
    """Return V_a = z_a^2 d + s^2 with z_a = z / sqrt(2), as docs/ballots.md has it: the noise of one aggregator."""
    return noise_multiplier**2 / 2 * length + ROUNDING**2


def hidden_variance(plan: PrivacyPlan) -> float:
    """Return the variance of what hides a client from one aggregator: the other's noise, or all coins."""
    if plan.grid is not None and plan.grid.coins:
        return sum(count * 4.0**place / 4 for place, count in enumerate(plan.grid.coins))
    return planned_variance(plan.noise_multiplier, plan.request.length)


def released_variance(plan: PrivacyPlan) -> float:
    """Return the variance of the noise in a released sum."""
    return hidden_variance(plan) * (1 if plan.shares.joint else 2)


@dataclass
class AggregatorView:
    """What one aggregator sees of all games; `other` is the one whose noise hides the clients from it."""

    name: str
    other: str
    length: int
    participations: int
    threshold: float  # of a game's score: above it the aggregator says "in"
    noise: NoiseSample
    present: list[float] = field(default_factory=list)  # one score for each canary of a round, off known noise
    absent: list[float] = field(default_factory=list)
    rest: Spread = field(default_factory=lambda: Spread(0.0, 0))  # what is left of the noise in these scores
    kinds: dict[str, list[float]] = field(default_factory=dict)  # of those that were counted, by the kind of ballot
    games_present: list[float] = field(default_factory=list)  # one score a game, in standard deviations
    games_absent: list[float] = field(default_factory=list)
    _places: CellNoise = field(init=False)  # the same noise, coordinate by coordinate
    _products: Values = field(default_factory=lambda: np.zeros(3))  # of the ballots that scores are measured along
    _lengths: dict[str, float] = field(default_factory=dict)  # of the summed ballots of each kind, squared

    def __post_init__(self) -> None:
        self._places = CellNoise(self.length, discrete=True)

    @property
    def games(self) -> int:
        """Count the games."""
        return len(self.games_present) + len(self.games_absent)

    @property
    def stddev(self) -> float:
        """Return the standard deviation of a score, by the plan."""
        return math.sqrt(self.noise.planned)

    def take(
        self,
        ballots: NDArray[Any],
        there: NDArray[np.bool_],
        names: list[str],
        unknown: Values,
        drawn: NDArray[Any],
    ) -> Values:
        """Take in a round: the canaries' ballots, which of them were counted, and the votes that nothing explains.

        Returns the score of each canary. The ballots of the others are known, so each canary adds its own back.
        `drawn` is the other's noise, which the auditor knows and this aggregator does not: off it, the scores tell how
        far one ballot moves the sum, and nothing about how well it is hidden.
        """
        self.noise.add(unknown)
        self._places.add(unknown, self.noise.planned)
        exact = np.asarray(ballots, np.float64)
        scores = exact @ unknown / math.sqrt(self.length) + there * math.sqrt(self.length)
        left = unknown - drawn
        self.rest = self.rest.plus(left)
        moved = exact @ left / math.sqrt(self.length) + there * math.sqrt(self.length)
        self.present += moved[there].tolist()
        self.absent += moved[~there].tolist()
        for name in dict.fromkeys(names):
            same = there & np.array([each == name for each in names])
            if same.any():
                self.kinds.setdefault(name, []).extend(scores[same].tolist())
                summed = exact[same].sum(axis=0)
                self._lengths[name] = self._lengths.get(name, 0.0) + float(summed @ summed) / self.length
        counted_sum, left_sum = exact[there].sum(axis=0), exact[~there].sum(axis=0)
        self._products += (
            np.array([counted_sum @ counted_sum, left_sum @ left_sum, counted_sum @ left_sum]) / self.length
        )
        return np.asarray(scores)

    def end_game(self, score: float, *, present: bool) -> None:
        """Take in the score of a game's own canary, summed over its rounds."""
        scaled = score / (self.stddev * math.sqrt(self.participations))
        (self.games_present if present else self.games_absent).append(scaled)

    def exact(self, delta: float, alpha: float) -> float:
        """Return the lower bound of epsilon_server that needs no assumption."""
        return exact_bound(self.games_present, self.games_absent, self.threshold, delta, alpha)

    def conditional(self, delta: float, alpha: float) -> float:
        """Return the lower bound of epsilon_server if the noise is Gaussian, and independent in values and rounds.

        Ballots are not orthogonal, so the scores of a round go together. The difference of their means is what is left
        of the noise along one vector, whose length is known.
        """
        counted, left = len(self.present), len(self.absent)
        if not (counted and left):
            return 0.0
        both, none, cross = self._products.tolist()
        width = math.sqrt(max(0.0, both / counted**2 + none / left**2 - 2 * cross / (counted * left)))
        difference = float(np.mean(self.present) - np.mean(self.absent))
        mu = mu_of_shift(difference, width, self.rest, self.noise.spread, alpha)
        return epsilon_of_mu(mu * math.sqrt(self.participations), delta)

    def bounds(self, claimed: float, delta: float, alpha: float, conditional_alpha: float) -> list[AuditFinding]:
        """Test the claim by both lower bounds; their statistics are the bounds at confidence 1 - alpha."""
        what = f"epsilon_server games of the {self.name}"
        return [
            claim(what, "exact", partial(self.exact, delta), claimed, alpha),
            claim(what, "Gaussian", partial(self.conditional, delta), claimed, conditional_alpha),
        ]

    def findings(self) -> list[AuditFinding]:
        """Test the noise that hides clients from this aggregator, and what a client can add."""
        what = f"the noise of the {self.other}, which hides clients from the {self.name},"
        found = self.noise.findings(f"{self.other}'s noise", what)
        found += self._places.findings(f"{self.other}'s noise in each coordinate", what, "coordinate")
        most = math.sqrt(self.length)
        for kind, scores in self.kinds.items():
            what = f"the ballot of a client ({kind}), as the {self.name} sees it,"
            spread = self.stddev * math.sqrt(self._lengths[kind] / len(scores))  # ballots are not orthogonal
            found.append(shift(f"one vote, {kind}, {self.name}", np.asarray(scores), most, spread, what=what))
        return found
