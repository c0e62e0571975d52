"""The geometric median of the updates (RFA)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Defence, Matrix, Rows
from sottovoce.threats.defences.columns import middle_mean
from sottovoce.threats.defences.rows import length, squared_distances, weighted_sum

_SMOOTHING: Final = 1e-6  # nu, in units of the median distance to the start
_TOLERANCE: Final = 1e-4  # stop when a step is shorter, in the same units
_MOST: Final = 50  # iterations


@dataclass(frozen=True)
class GeometricMedian(Defence):
    """The point with the smallest sum of distances to the updates, by the smoothed Weiszfeld algorithm (RFA).

    out = argmin_v sum_i |x_i - v|: repeat w_i = 1 / max(nu, |x_i - v|), v = sum_i w_i x_i / sum_i w_i, until v moves by
    less than 1e-4 of the median distance. The paper begins at the mean and takes a few steps; we begin at the median of
    each coordinate, because from a mean that one huge update has carried off a few steps do not lead back.

    Guarantee: with 2 f < n it lies within 2 (n - f) / (n - 2 f) times the honest updates' greatest distance to any one
    point of that point, but for the tolerance.
    """

    name = "geometric-median"
    paper = "Pillutla, Kakade, Harchaoui 2022, Robust Aggregation for Federated Learning"
    assumes = "n >= 2 f + 1"
    counts_malicious = False

    def fewest(self, malicious: int) -> int:
        """Return 2 f + 1."""
        return 2 * malicious + 1

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the geometric median of the rows."""
        start = middle_mean(updates, rows, (len(rows) - 1) // 2, len(rows) // 2 + 1)
        point = start.astype(np.float64)
        distances = np.sqrt(squared_distances(updates, rows, point))
        scale = float(np.median(distances))  # the sum would be the malicious updates' to choose
        if scale == 0:  # more than half of the updates are the start itself, which is then the geometric median
            return start
        for _ in range(_MOST):
            weights = 1 / np.maximum(_SMOOTHING * scale, distances)
            before, point = point, weighted_sum(updates, rows, weights / weights.sum())
            if length(point - before) <= _TOLERANCE * scale:
                break
            distances = np.sqrt(squared_distances(updates, rows, point))
        return point.astype(np.float32)
