"""Test the draws of cohorts against the law that is charged for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.noise import distance_p_value


def cohort_sizes(name: str, sizes: NDArray[np.int64], clients: int, rate: float, *, fixed: int | None) -> AuditFinding:
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
    return AuditFinding(
        name,
        distance,
        distance_p_value(distance, sizes.size),
        f"cohorts are not drawn by a coin of {rate:.4g} for each of {clients} clients: {sizes.size} of them have the "
        f"mean size {sizes.mean():.4g}, and the variance {sizes.var():.4g} for {clients * rate * (1 - rate):.4g}",
    )


def overlaps(
    name: str, pairs: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]], rate: float, *, what: str
) -> AuditFinding:
    """Compare how often the coins of two draws both fall with Binomial(coins, rate^2): exact tails, two-sided."""
    from scipy.stats import binom

    coins = sum(one.size for one, _ in pairs)
    both = sum(int((one & other).sum()) for one, other in pairs)
    tail = min(float(binom.cdf(both, coins, rate**2)), float(binom.sf(both - 1, coins, rate**2))) if coins else 1.0
    return AuditFinding(
        name,
        float(both),
        min(1.0, 2 * tail),
        f"{what} {both} times of {coins}, where coins of their own give {coins * rate**2:.4g}",
    )


def rates(name: str, draws: NDArray[np.int64], rounds: int, rate: float) -> AuditFinding:
    """Compare how often each client was drawn with Binomial(rounds, rate): exact tails, a union bound over clients."""
    from scipy.stats import binom

    low, high = int(draws.min()), int(draws.max())
    tail = min(float(binom.cdf(low, rounds, rate)), float(binom.sf(high - 1, rounds, rate)))
    worst = high if binom.sf(high - 1, rounds, rate) <= binom.cdf(low, rounds, rate) else low
    return AuditFinding(
        name,
        float(worst),
        min(1.0, 2 * draws.size * tail),
        f"some client was drawn in {worst} of {rounds} rounds, at a rate of {rate:.4g}",
    )
