"""Refuse a private sum that carries more than honest clients can have sent; free, as it reads what was released.

The noise of a released sum y of d values has a public variance V in every value. So e = |y|^2 - V d estimates the
squared norm of the sum without its noise, with a standard deviation of V sqrt(2 d). The guard rejects a round if
e > B^2 + k V sqrt(2 d): the model stays as it was, and the round stays charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from sottovoce.core.vectors import Vector
from sottovoce.privacy import PrivacyPlan

INFLUENCE: Final = ("most_per_coordinate", "votes", "guard_radius")  # what `influence` returns


@dataclass(frozen=True)
class EnergyGuard:
    """The energy guard: B = `bound` clip norms, k = `width` standard deviations.

    Honest sums are at most as long as the cohort is large, in clip norms, and usually far below: updates of different
    clients hardly agree. A smaller bound leaves attackers less and rejects honest rounds more often.
    """

    bound: float
    width: float

    def excess(self, total: Vector, stddev: float, clip_norm: float) -> float:
        """Return by how much the energy of a released sum is above the limit, in squared clip norms; at most 0: fine.

        A sum that is not finite is above every limit.
        """
        energy = float(np.dot(total.astype(np.float64), total.astype(np.float64))) / clip_norm**2
        variance = (stddev / clip_norm) ** 2
        excess = energy - variance * total.size - self.limit(variance, total.size)
        return excess if math.isfinite(excess) else math.inf

    def limit(self, variance: float, length: int) -> float:
        """Return B^2 + k V sqrt(2 d), in squared clip norms."""
        return self.bound**2 + self.width * variance * math.sqrt(2 * length)


def influence(plan: PrivacyPlan, width: float = 4.0) -> dict[str, float | None]:
    """Return what one client that leaves out its noise can do to a round of this plan, as `sottovoce plan` prints it.

    most_per_coordinate   the most by which it moves one value of the sum, half the modulus: in clip norms, or in
                          votes where clients send signs; null where sums are not modular
    votes                 A = sqrt(1 + V d / K), in honest contributions: what any check of single noisy messages would
                          still have to let pass, because an honest message carries that much noise
    guard_radius          sqrt(k V sqrt(2 d) + V d / K) clip norms: what the energy guard still lets one client add,
                          where its bound B is the norm of the honest sum
    Of ballots all are 1: a client that sends any bytes has one vote, and its length is one clip norm.
    V is the noise variance of the whole sum in squared clip norms, d the length of a message, K the expected cohort.
    """
    request = plan.request
    if plan.shares.by_aggregators:
        return dict.fromkeys(INFLUENCE, 1.0)
    unit = 1.0 if request.form == "signs" else request.clip_norm
    variance = (plan.stddev() / request.clip_norm) ** 2
    left_out = variance * request.length / plan.expected_cohort
    return {
        "most_per_coordinate": None if plan.bits is None else 2.0 ** (plan.bits - 1) * plan.step() / unit,
        "votes": math.sqrt(1 + left_out),
        "guard_radius": math.sqrt(width * variance * math.sqrt(2 * request.length) + left_out),
    }
