"""The others of a round: how many take part beside one client, how many of them answer, and what it costs.

Whether a cohort reaches its floor, and a round its quorum, may depend on one client (`privacy.adjacency`). Fix all that
the others do; it does not depend on the client. A round is *tipped* if the client would decide:

    others in the cohort = floor - 1                     with the client the cohort is asked, without it it is not
    others that answer   = t(n) - 1 of a cohort of n     with the client the sum is opened, without it it is not

In every other round the pair is the charged one: with the client or without it, the same others are summed, or nobody.
In a tipped round both worlds are the same if the client is not drawn. So the pair is within total variation q of one
without the client at all, and leaving that round out of the composition costs q of delta, in both directions and for
every epsilon. The hockey-stick divergence is jointly convex, so the average over all that the others do is charged:

    delta grows by at most  q * sum over rounds of P[the round is tipped].

There is no factor 1 + e^epsilon: the others' coins and answers have the same law in both worlds.

The others' coins are ours, and their law is exact. Their answers are theirs: `answer_rate` is the least chance of each,
whatever the others do. Then at least as many answer as by coins of that rate, and what is charged is the tail,
P[at most t(n) - 1 answer], which only falls if somebody answers more surely. What the client itself does is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.accounting.events import Sampling

Counts = NDArray[np.int64]
Values = NDArray[np.float64]

_BLOCKS: Final = 64  # of rounds, in each of which the chance to sit out is bounded from both sides
_ROUNDING: Final = 1 + 1e-9  # of logarithms of factorials


@dataclass(frozen=True)
class Others:
    """The law of everybody but one client over the rounds of a run.

    `cap` is the largest cohort (the size of a fixed one), `most` the number of rounds in which one client contributes.
    """

    clients: int
    sample_rate: float
    sampling: Sampling
    cap: int
    rounds: int
    most: int

    def drawn_with(self, counts: Counts) -> Values:
        """Bound the rounds, as expected, in which the client is drawn and exactly so many others take part."""
        total = np.zeros(counts.size)
        for rounds, low, high in self._blocks():
            total += rounds * self._chance(counts, low, high)
        return np.asarray(self.sample_rate * total * _ROUNDING)

    def short_of(self, needed: Counts, answer_rate: float) -> float:
        """Bound the rounds, as expected, in which the client is drawn and fewer others answer than are needed.

        `needed` are t(n) of the largest cohorts, up to the cap; of a cohort of n, n - 1 are others.
        """
        from scipy.special import bdtr

        counts = np.arange(self.cap - needed.size, self.cap)
        short = np.where(needed > counts, 1.0, bdtr(np.minimum(needed - 1.0, counts), counts, answer_rate))
        return float(self.drawn_with(counts) @ short)

    def _blocks(self) -> Iterator[tuple[int, float, float]]:
        """Yield numbers of rounds, and the least and the largest chance that a drawn client contributes in them."""
        if self.sampling == "fixed" or self.most >= self.rounds:
            yield self.rounds, 1.0, 1.0
            return
        from scipy.special import bdtr

        edges = np.unique(np.linspace(0, self.rounds, min(self.rounds, _BLOCKS) + 1).astype(int))
        for first, last in pairwise(edges):
            high, low = (
                float(bdtr(min(self.most - 1, played), played, self.sample_rate)) for played in (first, last - 1)
            )
            yield int(last - first), low, high

    def _chance(self, counts: Counts, low: float, high: float) -> Values:
        """Bound the chance of so many others if each one drawn contributes with a chance from `low` to `high`.

        Of a cohort that is cut to its cap, the client is one, so that cap - 1 others are left.
        """
        if self.sampling == "fixed":
            return np.where(counts == self.cap - 1, 1.0, 0.0)
        rate, others = self.sample_rate, self.clients - 1
        chance = _largest(counts, others, rate * low, rate * high)
        if self.cap < self.clients:
            from scipy.special import bdtrc

            cut = float(bdtrc(self.cap - 1, others, rate))
            chance = chance + cut * _largest(counts, self.cap - 1, low, high)
        return chance


def _largest(counts: Counts, trials: int, low: float, high: float) -> Values:
    """Return the largest P[Binomial(trials, p) = count] over all p from low to high: p = count / trials, or an end."""
    from scipy.special import gammaln, xlog1py, xlogy

    inside = (counts >= 0) & (counts <= trials)
    k: NDArray[Any] = np.where(inside, counts, 0)
    p = np.clip(k / max(trials, 1), low, high)
    logs = gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1) + xlogy(k, p) + xlog1py(trials - k, -p)
    return np.where(inside, np.exp(np.minimum(logs, 0.0)), 0.0)
