"""Test the draws of cohorts against the law that is charged for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sottovoce.threats.audit.finding import Finding, checked
from sottovoce.threats.audit.noise import distance_p_value

__all__ = ["cohort_sizes", "rates"]


def cohort_sizes(name: str, sizes: NDArray[np.int64], clients: int, rate: float, *, fixed: int | None) -> Finding:
    """Compare how many were drawn in each round with Binomial(clients, rate), or with the one size of a fixed cohort.

    By the largest distance of the two distribution functions, as `noise.shape` does.
    """
    if fixed is not None:
        return checked(
            name, bool((sizes == fixed).all()), f"a cohort of fixed size {fixed} was drawn with another size"
        )
    from scipy.stats import binom

    values = np.arange(clients + 1)
    empirical = np.cumsum(np.bincount(sizes, minlength=clients + 1)) / sizes.size
    distance = float(np.max(np.abs(empirical - binom.cdf(values, clients, rate))))
    return Finding(
        name,
        distance,
        distance_p_value(distance, sizes.size),
        f"cohorts are not drawn by a coin of {rate:.4g} for each of {clients} clients: {sizes.size} of them have the "
        f"mean size {sizes.mean():.4g}, and the variance {sizes.var():.4g} for {clients * rate * (1 - rate):.4g}",
    )


def rates(name: str, draws: NDArray[np.int64], rounds: int, rate: float) -> Finding:
    """Compare how often each client was drawn with Binomial(rounds, rate): exact tails, a union bound over clients."""
    from scipy.stats import binom

    low, high = int(draws.min()), int(draws.max())
    tail = min(float(binom.cdf(low, rounds, rate)), float(binom.sf(high - 1, rounds, rate)))
    worst = high if binom.sf(high - 1, rounds, rate) <= binom.cdf(low, rounds, rate) else low
    return Finding(
        name,
        float(worst),
        min(1.0, 2 * draws.size * tail),
        f"some client was drawn in {worst} of {rounds} rounds, at a rate of {rate:.4g}",
    )
