"""Bound epsilon from below where the noise is known to be Gaussian.

A release that is N(shift, sigma^2) with the canary and N(0, sigma^2) without it is mu-GDP with mu = shift / sigma, and
no more private than that (Dong, Roth, Su 2022, "Gaussian differential privacy"):

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)

(their Corollary 2.13; Balle, Wang 2018). k such releases are sqrt(k) mu-GDP, exactly. So a lower confidence bound of mu
is one of epsilon at any delta, also where no number of games could show so rare an event. It is *conditional*: nothing
here sees whether the noise is Gaussian. The tests of `noise` check that.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

__all__ = ["MOST_MU", "Spread", "epsilon_of_mu", "mu_below", "mu_of_shift"]

MOST_MU: Final = 1e4  # what is said of a release without noise, whose mu is infinite; epsilon is 5e7 there


class Spread(NamedTuple):
    """The squares of noise values around their known mean: their sum and their number."""

    squares: float
    values: int

    def plus(self, values: NDArray[Any]) -> Spread:
        """Return the spread with more values."""
        flat = np.asarray(values, np.float64).reshape(-1)
        return Spread(self.squares + float(flat @ flat), self.values + flat.size)

    def stddev_above(self, alpha: float) -> float:
        """Return the upper bound of sigma at confidence 1 - alpha: sum / sigma^2 is chi-square if they are Gaussian."""
        from scipy.stats import chi2

        return math.sqrt(self.squares / float(chi2.ppf(alpha, self.values)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the epsilon of a mu-GDP release, by dp-accounting.

    >>> round(epsilon_of_mu(1 / 1.54, 1e-5), 3)
    2.673
    """
    in_range("delta", delta, low=0, high=1, open_low=True, open_high=True)
    if mu <= 0:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(divide="ignore"):  # it takes the logarithm of a zero where nothing is left to pay
        return max(0.0, float(get_epsilon_gaussian(1 / mu, delta)))


def mu_below(present: NDArray[Any], absent: NDArray[Any], noise: Spread, alpha: float) -> float:
    """Return a lower bound of mu at confidence 1 - alpha, from the scores of games with the canary and without.

    With sigma bounded from above by the noise at alpha / 2, the mean difference d of the scores, of which there are
    n and k, gives shift >= d - sigma z sqrt(1 / n + 1 / k), z the upper alpha / 2 quantile of the normal law.
    """
    if present.size == 0 or absent.size == 0:
        raise InputError("a lower bound of mu needs games with the canary and games without it")
    from scipy.stats import norm

    sigma = noise.stddev_above(alpha / 2)
    width = math.sqrt(1 / present.size + 1 / absent.size)
    difference = float(np.mean(present, dtype=np.float64) - np.mean(absent, dtype=np.float64))
    ratio = MOST_MU if abs(difference) >= MOST_MU * sigma else abs(difference) / sigma
    return max(0.0, math.copysign(ratio, difference) - float(norm.isf(alpha / 2)) * width)


def mu_of_shift(difference: float, width: float, rest: Spread, noise: Spread, alpha: float) -> float:
    """Return a lower bound of mu at confidence 1 - alpha, from scores off which the auditor took noise that it knows.

    An auditor that drew the noise itself need not measure the shift through it: what is left of it, `rest`, has a
    standard deviation sigma_r, which is 0 if the release holds what was drawn. The difference of the scores then has
    `width` sigma_r. What hides the canary is still all of `noise`. With both sigmas bounded from above at alpha / 3,
    mu >= (difference - sigma_r z width) / sigma, z the upper alpha / 3 quantile of the normal law.
    """
    from scipy.stats import norm

    sigma = noise.stddev_above(alpha / 3)
    shift = difference - float(norm.isf(alpha / 3)) * rest.stddev_above(alpha / 3) * width
    if shift <= 0:
        return 0.0
    return MOST_MU if shift >= MOST_MU * sigma else shift / sigma
