"""Bound how often one client takes part, because the server sees every participation of its own."""

from __future__ import annotations

from sottovoce.core.errors import PrivacyError
from sottovoce.core.validate import in_range
from sottovoce.privacy.events import Sampling

__all__ = ["participation_cap"]


def participation_cap(
    *, sample_rate: float, rounds: int, delta: float, sampling: Sampling = "poisson", wanted: int | None = None
) -> int:
    """Return the enforced number of rounds in which one client may contribute.

    The default is the smallest m with P[Binomial(rounds, sample_rate) > m] <= delta. As delta is at most 1 / clients, less
    than one client is expected to reach it.

    Guarantee: a client that was drawn m times contributes nothing from then on, and the accounting stays valid. Its draws are
    independent of everything else, and against the release without the client (the same for every past of its draws) each
    past gives a pair that the sampled Gaussian dominates. The hockey-stick divergence is jointly convex, so their mixture
    is dominated too, and adaptive composition follows (Zhu, Dong and Wang 2022, theorem 10). Two conditions: a cohort cap is
    applied *after* counting the draw, so that nobody's count depends on others; and under fixed-size sampling, where draws do
    depend on others, the cap must be one that nobody reaches, so there m has P[...] <= 1e-6 delta^2: the union over
    1 / delta clients costs 1e-6 delta.

    >>> participation_cap(sample_rate=1 / 60, rounds=200, delta=1e-5)
    13
    """
    from scipy.stats import binom

    in_range("rounds", rounds, low=1)
    tail = delta if sampling == "poisson" else 1e-6 * delta * delta
    enough = min(rounds, max(1, int(binom.isf(tail, rounds, sample_rate))))
    if wanted is None:
        return enough
    in_range("max_participations", wanted, low=1)
    if sampling == "fixed" and wanted < enough:
        raise PrivacyError(
            f"max_participations must be at least {enough} under fixed-size sampling, got {wanted}: a cap that a client can "
            "reach makes the others' draws depend on it; use poisson sampling"
        )
    return min(rounds, wanted)
