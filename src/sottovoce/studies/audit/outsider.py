"""Play the one-run game of the outsider: many canaries, each in or out by a coin, drawn by the real sampler.

The outsider sees every released sum and not who was sampled. Its score of a canary is the log-likelihood ratio of the
sampled Gaussian over all rounds, x being the part of a sum that lies along the canary, R what it adds if it is drawn:

    sum over rounds of ln(1 - q + q exp((x R - R^2 / 2) / V))

The highest scores are said to be in, the lowest to be out. How many, is chosen beforehand, by a run that is drawn from
the plan.

One run holds few guesses that are nearly certain, so what they show stays far below what is proven. Where everybody is
in every round, a canary's part of a sum is one Gaussian or the other, and `Trace` bounds their distance from all of
them, as the games of the server do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.studies.audit.canaries import BELOW, OVERSIZED, Canary
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.bounds import (
    correct_guesses,
    epsilon_from_guesses,
    epsilon_of_mu,
    guess_tail,
    mu_below,
)
from sottovoce.threats.audit.finding import AuditFinding
from sottovoce.threats.audit.noise import NoiseSample

_SIMULATED = 3  # runs drawn from the plan, to choose the number of guesses
UNITS = 1000  # canary records or persons of one run
MOST_SIGNS = 50_000_000  # signs of dense canaries: each is as long as a message

Progress = Callable[[int, int], None]


@dataclass
class Outsider:
    """The scores of canaries over one or more runs, each with coins of its own."""

    units: UnitFormulas
    rounds: int
    scores: list[NDArray[np.float64]] = field(default_factory=list)
    present: list[NDArray[np.bool_]] = field(default_factory=list)

    kinds: dict[str, int] = field(default_factory=dict)

    def take(self, scores: NDArray[np.float64], present: NDArray[np.bool_], kind: str) -> None:
        """Take in one run."""
        self.scores.append(scores)
        self.present.append(present)
        self.kinds[kind] = self.kinds.get(kind, 0) + scores.size

    @property
    def played(self) -> str:
        """Return what was played, in words."""
        return " and ".join(f"{count} canaries {kind}" for kind, count in self.kinds.items())

    def increment(self, canaries: Mapping[int, Canary], released: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what one released sum adds to each canary's score."""
        length = self.units.plan.request.length
        values = released[:length]
        along = np.array([canary.project(values) for canary in canaries.values()])
        return self.likelihood(along)

    @property
    def canaries(self) -> int:
        """Count the canaries of all runs."""
        return sum(scores.size for scores in self.scores)

    def guesses(self, delta: float, alpha: float, rng: Generator) -> int:
        """Return how many canaries to call "in", and as many "out": what promises most by the plan.

        Where the plan promises nothing at all, what would show most with less noise: a half of it, or none.
        """
        count = self.canaries
        candidates = sorted({max(1, int(count / 2 * share)) for share in np.geomspace(0.01, 1, 16)}, reverse=True)
        promised = np.zeros(len(candidates))
        for noise in [1.0] * _SIMULATED + [0.5, 0.05]:
            if noise < 1 and promised.any():
                break
            scores, present = self._simulated(count, noise, rng)
            promised += [
                epsilon_from_guesses(count, 2 * each, correct_guesses(scores, present, each), delta=delta, alpha=alpha)
                for each in candidates
            ]
        return candidates[int(np.argmax(promised))]

    def finding(self, name: str, claimed: float, delta: float, alpha: float, seed: int) -> tuple[float, AuditFinding]:
        """Return the lower bound of epsilon at confidence 1 - alpha, and the test of the claim."""
        each = self.guesses(delta, alpha, Seeds(seed).adversary.get(Purpose.SETUP))
        right = correct_guesses(np.concatenate(self.scores), np.concatenate(self.present), each)
        bound = epsilon_from_guesses(self.canaries, 2 * each, right, delta=delta, alpha=alpha)
        p_value = 1.0 if math.isinf(claimed) else guess_tail(self.canaries, 2 * each, right, claimed, delta)
        sentence = (
            f"{right} of {2 * each} guesses about {self.canaries} canaries were right, and with epsilon {claimed:.4g} "
            f"that has probability {p_value:.2g} at most"
        )
        return bound, AuditFinding(name, float(right), p_value, sentence)

    def _simulated(self, count: int, noise: float, rng: Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return scores and coins as the plan has them, with so much of its noise."""
        present = rng.random(count) < 0.5
        scores = np.zeros(count)
        rate, radius = self.units.rate, self.units.update_radius
        for _ in range(self.rounds):
            there = present & (rng.random(count) < rate)
            stddev = noise * math.sqrt(self.units.variance)
            scores += self.likelihood(there * radius + stddev * rng.standard_normal(count))
        return scores, present

    def likelihood(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-likelihood ratios of one sum, by the part of it along each canary."""
        rate, radius = self.units.rate, self.units.update_radius
        ratio = (along * radius - radius * radius / 2) / self.units.variance
        if rate == 1:
            return ratio
        return np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


@dataclass
class Trace:
    """What released sums hold along canaries that were in or out, a value for each round; and beside them, the noise.

    Nothing is taken in where a coin or a clip norm decides from round to round what a canary adds.
    """

    units: UnitFormulas
    noise: NoiseSample
    rounds: int
    against: str = "epsilon"
    present: list[float] = field(default_factory=list)
    absent: list[float] = field(default_factory=list)

    def take(self, canaries: Mapping[int, Canary], there: frozenset[int], released: NDArray[np.float64]) -> None:
        """Take in one released sum."""
        plan = self.units.plan
        if self.units.rate < 1 or self.units.form != "floats" or plan.adaptive is not None:
            return
        for number, canary in canaries.items():
            (self.present if number in there else self.absent).append(canary.project(released[: plan.request.length]))

    def conditional(self, delta: float, alpha: float) -> float:
        """Return the lower bound of epsilon if the noise is Gaussian, and independent in values and rounds.

        A canary that is absent from some rounds, though it is in, adds less in the mean, which lowers the bound.
        """
        if not (self.present and self.absent):
            return 0.0
        mu = mu_below(np.asarray(self.present), np.asarray(self.absent), self.noise.spread, alpha)
        return epsilon_of_mu(mu * math.sqrt(self.rounds), delta)


def canaries_of(units: UnitFormulas, clients: int, wanted: int | None, *, half: bool = False) -> dict[int, Canary]:
    """Return canaries that do not disturb each other, spread over the clients: each has a coordinate of its own.

    Signs have no coordinate of their own; random ones hardly disturb each other. Under adaptive clipping half of the
    canaries are above the clip norm and half below, so that it stays where it is. With `half`, at most half of the
    clients are canaries, so that others can train. Where units are protected, any number of them are canaries.
    """
    length = units.plan.request.length
    of_sites = units.plan.request.of_sites
    most = length if units.form == "floats" else max(2, MOST_SIGNS // length)
    most = most if of_sites else min(clients, most)
    count = (min(most, UNITS) if of_sites else most) if wanted is None else wanted
    if not 2 <= count <= most:
        raise InputError(f"canaries must be from 2 to {most} with {clients} clients and {length} values, got {count}")
    if of_sites:
        clients = count  # a unit each; which site holds it follows from its number
    if half:
        count = min(count, max(2, clients // 2))
    numbers = np.linspace(0, clients - 1, count).round().astype(int).tolist()
    places = np.linspace(0, length - 1, count).round().astype(int).tolist() if units.form == "floats" else range(count)
    adaptive = units.plan.adaptive is not None
    return {
        number: Canary(
            int(place),
            "signs" if units.form == "signs" else "dirac",
            BELOW if index % 2 and adaptive else OVERSIZED,
        )
        for index, (number, place) in enumerate(zip(numbers, places, strict=True))
    }


def coins(canaries: Mapping[int, Canary], rng: Generator) -> NDArray[np.bool_]:
    """Flip a fair coin for each canary."""
    return rng.random(len(canaries)) < 0.5
