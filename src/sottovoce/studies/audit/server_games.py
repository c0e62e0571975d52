"""What the games of the curious server, or of a curious site, show: two lower bounds, and tests of the noise they saw.

`server_play` plays them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.bounds import epsilon_from_counts, epsilon_of_mu, mu_below
from sottovoce.threats.audit.finding import AuditFinding, checked, p_value_of_bound
from sottovoce.threats.audit.noise import NoiseSample, echo, repetition, shift


def exact_bound(
    present: Sequence[float], absent: Sequence[float], threshold: float, delta: float, alpha: float
) -> float:
    """Return the lower bound of epsilon from the scores of games, of which those above a threshold are said to be in.

    It needs no assumption, and saturates at the logarithm of the number of games.
    """
    if not (present and absent):
        return 0.0
    false_positives = sum(score > threshold for score in absent)
    false_negatives = sum(score <= threshold for score in present)
    return epsilon_from_counts(false_positives, len(absent), false_negatives, len(present), delta=delta, alpha=alpha)


def claim(what: str, name: str, bound: Callable[[float], float], claimed: float, alpha: float) -> AuditFinding:
    """Test a claimed epsilon by a lower bound; the statistic is the bound at confidence 1 - alpha."""
    value = bound(alpha)
    key, _, games = what.partition(" ")
    return AuditFinding(
        f"{what}, {name}",
        value,
        p_value_of_bound(bound, claimed),
        f"the {games} show an {key} of at least {value:.4g} ({name}), and {claimed:.4g} is claimed",
    )


@dataclass
class ServerGames:
    """The scores of the games, and the noise that was seen meanwhile."""

    units: UnitFormulas
    participations: int
    stddev: float  # of a score, by the plan
    threshold: float  # of a game's score: above it the server says "in"
    seen: NoiseSample  # sums before noise was made up
    released: NoiseSample
    shares: NoiseSample
    present: list[float] = field(default_factory=list)  # one score for each canary of a round, without the count
    absent: list[float] = field(default_factory=list)
    counted: list[float] = field(default_factory=list)  # adaptive clipping: the count, in the direction of the canary
    uncounted: list[float] = field(default_factory=list)
    kinds: dict[str, list[float]] = field(default_factory=dict)
    games_present: list[float] = field(default_factory=list)  # one score a game, in standard deviations
    games_absent: list[float] = field(default_factory=list)
    vectors: list[tuple[str, float, NDArray[np.float64]]] = field(default_factory=list)
    whole: NDArray[np.float64] | None = None  # the noise of one message, uncut
    failures: list[str] = field(default_factory=list)
    opened_unpaid: int = 0
    against: str = "epsilon_server"  # which claim the games are about

    @property
    def games(self) -> int:
        """Count the games."""
        return len(self.games_present) + len(self.games_absent)

    def exact(self, delta: float, alpha: float) -> float:
        """Return the lower bound of epsilon_server that needs no assumption; it saturates at log(games)."""
        return exact_bound(self.games_present, self.games_absent, self.threshold, delta, alpha)

    def conditional(self, delta: float, alpha: float) -> float:
        """Return the lower bound of epsilon_server if the noise is Gaussian, and independent in values and rounds."""
        if not (self.present and self.absent):
            return 0.0
        mu = self._mu(self.present, self.absent, alpha / 2 if self.counted else alpha)
        if self.counted and self.uncounted:  # two independent Gaussians are one, of the root of both squares
            mu = math.hypot(mu, self._mu(self.counted, self.uncounted, alpha / 2))
        return epsilon_of_mu(mu * math.sqrt(self.participations), delta)

    def bounds(self, claimed: float, delta: float, alpha: float, conditional_alpha: float) -> list[AuditFinding]:
        """Test the claim by both lower bounds; their statistics are the bounds at confidence 1 - alpha."""
        return [
            claim(f"{self.against} games", name, partial(bound, delta), claimed, rate)
            for name, bound, rate in (("exact", self.exact, alpha), ("Gaussian", self.conditional, conditional_alpha))
        ]

    def score(self, name: str, along: float, *, present: bool) -> None:
        """Take in the score of one canary in one round."""
        (self.present if present else self.absent).append(along)
        if present:
            self.kinds.setdefault(name, []).append(along)

    def findings(self) -> list[AuditFinding]:
        """Test the noise, the clipping and the order of charge and opening."""
        found = [
            *self.shares.findings("share", "the noise of one client"),
            *self.seen.findings("unfinished sum", "the noise that the server sees before it makes up what is missing"),
            *self.released.findings("released sum", "the noise of a released sum"),
        ]
        if len(self.vectors) > 1:
            labels, stddevs, vectors = zip(*self.vectors, strict=True)
            found.append(repetition("repeated noise", np.stack(vectors), stddevs, labels, what="noise"))
        if self.whole is not None:
            stddev = math.sqrt(self.shares.planned)
            found.append(echo("repeated stretch", self.whole, stddev, what="a stretch of one client's noise"))
        for kind, scores in self.kinds.items():
            what = f"a canary ({kind})"
            most = self.units.update_radius
            found.append(shift(f"clipping, {kind}", np.asarray(scores), most, self.stddev, what=what))
        if self.counted:
            what, most = "the count of one client", self.units.count_centre
            found.append(shift("clipping, count", np.asarray(self.counted), most, self.stddev, what=what))
        found.append(
            checked(
                "charged before opened",
                not self.opened_unpaid,
                f"{self.opened_unpaid} sums were opened before they were charged",
            )
        )
        reason = self.failures[0] if self.failures else ""
        found.append(
            checked("games played", not self.failures, f"{len(self.failures)} games could not be played: {reason}")
        )
        return found

    def _mu(self, present: list[float], absent: list[float], alpha: float) -> float:
        return mu_below(np.asarray(present), np.asarray(absent), self.seen.spread, alpha)
