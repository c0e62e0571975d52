"""Defences that choose whole updates by their distances to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Defence, Matrix, Rows
from sottovoce.threats.defences.columns import closest_mean
from sottovoce.threats.defences.rows import Wide, pairwise, weighted_sum

_PAPER = (
    "Blanchard, El Mhamdi, Guerraoui, Stainer 2017, Machine Learning with Adversaries: Byzantine Tolerant Gradient "
    "Descent"
)


def ranking(distances: Wide, neighbours: int) -> Rows:
    """Return the rows by their score, the sum of squared distances to so many nearest others.

    Of equal scores the row that is closer to all others comes first: with one neighbour, the two rows of the closest
    pair always have the same score, and the number of a client must not decide.
    """
    ordered = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)[:, :-1]
    return np.lexsort((ordered.sum(axis=1), ordered[:, :neighbours].sum(axis=1)))


@dataclass(frozen=True)
class Krum(Defence):
    """The one update that is closest to its neighbours.

    out = x_k with k = argmin_i s(i), s(i) = sum of |x_i - x_j|^2 over the n - f - 2 updates j nearest to i. Of equal
    scores the one closer to all others wins. One client's update in place of a mean learns slowly where clients differ.
    """

    name = "krum"
    paper = _PAPER
    assumes = "n >= 2 f + 3"
    counts_malicious = True

    def fewest(self, malicious: int) -> int:
        """Return 2 f + 3."""
        return 2 * malicious + 3

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the row with the lowest score."""
        ranked = ranking(pairwise(updates, rows), len(rows) - malicious - 2)
        chosen: Vector = updates[rows[ranked[0]]].copy()
        return chosen


@dataclass(frozen=True)
class MultiKrum(Defence):
    """The mean of the n - f updates with the lowest scores of Krum: out = mean of x_i over the n - f smallest s(i)."""

    name = "multi-krum"
    paper = _PAPER
    assumes = "n >= 2 f + 3"
    counts_malicious = True

    def fewest(self, malicious: int) -> int:
        """Return 2 f + 3."""
        return 2 * malicious + 3

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the mean of the chosen rows."""
        kept = len(rows) - malicious
        chosen = np.sort(rows[ranking(pairwise(updates, rows), kept - 2)[:kept]])
        return weighted_sum(updates, chosen, np.full(kept, 1 / kept)).astype(np.float32)


@dataclass(frozen=True)
class Bulyan(Defence):
    """Krum, repeated, and then each coordinate by itself: no single coordinate can hide behind all the others.

    theta = n - 2 f times, Krum chooses an update, which moves to the set S. Then, in each coordinate c, out[c] = mean
    of the theta - 2 f values of S that are closest to the median of S.
    As updates move to S fewer are left, and with them Krum's n - f - 2 neighbours; we never take fewer than one.
    """

    name = "bulyan"
    paper = "El Mhamdi, Guerraoui, Rouault 2018, The Hidden Vulnerability of Distributed Learning in Byzantium"
    assumes = "n >= 4 f + 3"
    counts_malicious = True

    def fewest(self, malicious: int) -> int:
        """Return 4 f + 3."""
        return 4 * malicious + 3

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return, for each column, the mean of the chosen values around the median."""
        distances, left = pairwise(updates, rows), np.arange(len(rows))
        chosen: list[int] = []
        for _ in range(len(rows) - 2 * malicious):
            best = ranking(distances[np.ix_(left, left)], max(1, len(left) - malicious - 2))[0]
            chosen.append(int(left[best]))
            left = np.delete(left, best)
        return closest_mean(updates, np.sort(rows[chosen]), len(chosen) - 2 * malicious)
