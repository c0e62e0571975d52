"""Bound how far a sum of discrete Gaussian shares is from a rounded continuous Gaussian.

Two steps, each a small distance, so that the continuous Gaussian's accountant is right for the integers that are sent.

1. The sum of n shares DG(c_k, x) is near DG(c, n x), c the sum of the centres. By Poisson summation the Fourier
   transform of a share is the continuous Gaussian's times 1 + r(t), |r(t)| <= 2.1 exp(-2 pi^2 x (1 - 2|t|)). So that of
   the sum differs from the Gaussian's by at most about 2.1 n exp(-2 pi^2 x (1 - 1/n)), near |t| = 1/n. That bounds
   every probability, and all but 2^-128 of the mass lies within 13.5 standard deviations. (1 - 1/n is the square of the
   shortest dual vector of the lattice A_(n-1); Micciancio and Walter 2017 treat general lattices.)
2. DG(c, V) is near the lattice-Gaussian rounding, of width s, of a continuous Gaussian of variance V - s^2: within a
   factor 1 +- 2.1 exp(-2 pi^2 s^2) (Peikert 2010). Rounding is post-processing, so the release is as
   private as the continuous Gaussian of variance V - s^2.

A release at total variation distance at most `slack` from an (epsilon, d)-private one is
(epsilon, d + (1 + e^epsilon) slack)-private.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["ROUNDING", "rounding_slack", "sum_slack"]

ROUNDING: Final = 2.0  # s, in grid units


def sum_slack(shares: int, share_variance: float) -> float:
    """Bound the total variation distance of one coordinate in step 1, the tables' own rounding included."""
    if shares <= 1:
        return 2.0**-118
    span = 27 * math.sqrt(shares * share_variance) + 2
    return 3 * shares * span * math.exp(-2 * math.pi**2 * share_variance * (1 - 1 / shares)) + shares * 2.0**-118


def rounding_slack(width: float = ROUNDING) -> float:
    """Bound the total variation distance of one coordinate in step 2."""
    return 4.2 * math.exp(-2 * math.pi**2 * width * width)
