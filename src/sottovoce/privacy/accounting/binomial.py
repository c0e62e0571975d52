"""Invert binomial tails far beyond where scipy's own inverse gives up (it works with 1 - tail)."""

from __future__ import annotations

from functools import cache

__all__ = ["upper_quantile"]


@cache
def upper_quantile(tail: float, trials: int, probability: float) -> int:
    """Return the smallest m with P[Binomial(trials, probability) > m] <= tail.

    >>> upper_quantile(1e-30, 200, 1 / 60)
    40
    """
    from scipy.stats import binom

    low, high = -1, trials
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binom.sf(middle, trials, probability) <= tail else (middle, high)
    return high
