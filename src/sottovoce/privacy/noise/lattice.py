"""Bound how far a sum of discrete Gaussian shares is from a rounded continuous Gaussian.

The continuous Gaussian's accountant is right for the integers that are sent, by two steps.

1. The sum of k shares DG(c_i, x) is near DG(c, k x), c the sum of the centres. By Poisson summation the Fourier
   transform of a share is the continuous Gaussian's times 1 + r(t), |r(t)| <= 2.1 exp(-2 pi^2 x (1 - 2|t|)). So that of
   the sum differs from the Gaussian's by at most about 2.1 k exp(-2 pi^2 x (1 - 1/k)), near |t| = 1/k. That bounds
   every probability, and all but 2^-128 of the mass lies within 13.5 standard deviations. (1 - 1/k is the square of the
   shortest dual vector of the lattice A_(k-1); Micciancio and Walter 2017 treat general lattices.) One wider share, the
   noise that the server makes up, only makes this smaller: its own r(t) has the exponent V m (1 - m) for its part m
   of V, and m (1 - m) >= (1/k) (1 - 1/k). This step is a total variation distance, tau for each coordinate.
2. DG(c, V) is, outcome by outcome, within a factor exp(+-kappa), kappa = 2.2 exp(-2 pi^2 s^2), of the lattice-Gaussian
   rounding, of width s, of a continuous Gaussian of variance V - s^2 (Peikert 2010). Rounding is post-processing, so
   that release is as private as the continuous Gaussian of variance V - s^2.

What this costs. Let P be the real release and Q the rounded Gaussian's, P' and Q' the same without the client, over d
coordinates and T rounds, with K = d T kappa and E = d T tau. By steps 1 and 2, for every set S of outcomes,
P(S) <= e^K Q(S) + E and Q'(S) <= e^K (P'(S) + E). If Q is (epsilon, delta)-private,

    P(S) <= e^K (e^epsilon Q'(S) + delta) + E <= e^(epsilon + 2K) P'(S) + e^K delta + (1 + e^(epsilon + 2K)) E

so step 2 adds 2K to epsilon (about 1e-24: nothing that a float shows), whatever epsilon is, and only step 1, which is
far smaller, is multiplied by e^epsilon. Against the server that is e^epsilon_server; the rounding's own distance must
not be (it would be the larger term from epsilon_server 30 on). The rounds may be adaptive: the bounds hold for every
past.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDING: Final = 2.0  # s, in grid units


def sum_slack(shares: ArrayLike, share_variance: ArrayLike) -> NDArray[np.float64]:
    """Bound the total variation distance of one coordinate in step 1, the tables' own rounding included.

    Takes arrays. One share alone is what it should be, and no share is no release.
    """
    count: NDArray[Any] = np.asarray(shares, dtype=float)
    variance: NDArray[Any] = np.asarray(share_variance, dtype=float)
    several = np.maximum(count, 1)
    span = 27 * np.sqrt(several * variance) + 2
    distance = 3 * several * span * np.exp(-2 * math.pi**2 * variance * (1 - 1 / several))
    return np.asarray(np.where(count > 1, distance, 0.0) + several * 2.0**-118)


def rounding_ratio(width: float = ROUNDING) -> float:
    """Bound the logarithm of the ratio of one coordinate's probabilities in step 2."""
    return 2.2 * math.exp(-2 * math.pi**2 * width * width)
