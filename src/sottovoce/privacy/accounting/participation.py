"""Bound how often one client takes part, because the server sees every participation of its own."""

from __future__ import annotations

import math
from functools import cache

from sottovoce.core.errors import PrivacyError
from sottovoce.core.validate import in_range
from sottovoce.privacy.accounting.events import Sampling


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


def participation_cap(
    *,
    sample_rate: float,
    rounds: int,
    delta: float,
    epsilon: float,
    sampling: Sampling = "poisson",
    wanted: int | None = None,
) -> int:
    """Return the enforced number of rounds in which one client may contribute.

    The default is the smallest m with P[Binomial(rounds, sample_rate) > m] <= delta. As delta is at most 1 / clients,
    less than one client is expected to reach it.

    Guarantee: a client that was drawn m times contributes nothing from then on, and `epsilon` stays valid. Its draws
    are independent of all else, and the release without the client is the same whatever they were. So for each past
    the sampled Gaussian dominates the pair; the hockey-stick divergence is jointly convex, so it dominates their
    mixture; adaptive composition follows (Zhu, Dong and Wang 2022). Two conditions. A draw counts before
    a cohort is cut to its cap, so that nobody's count depends on others. And under fixed-size sampling, where draws
    do depend on others, nobody may reach the cap: there (1 + e^epsilon) P[...] <= 1e-6 delta^2, so that all of at
    most 1 / delta clients together cost 1e-6 of delta.

    >>> participation_cap(sample_rate=1 / 60, rounds=200, delta=1e-5, epsilon=1.0)
    13
    """
    in_range("rounds", rounds, low=1)
    tail = delta if sampling == "poisson" else 1e-6 * delta * delta / (1 + math.exp(min(epsilon, 700.0)))
    enough = rounds if sample_rate == 1 else max(1, upper_quantile(tail, rounds, sample_rate))
    if wanted is None:
        return enough
    in_range("max_participations", wanted, low=1)
    if sampling == "fixed" and wanted < enough:
        raise PrivacyError(
            f"max_participations must be at least {enough} under fixed-size sampling, got {wanted}: a cap that a "
            "client can reach makes the others' draws depend on it; use poisson sampling"
        )
    return min(rounds, wanted)
