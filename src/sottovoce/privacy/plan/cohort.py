"""Draw the cohort exactly as it is charged for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.privacy.accounting.events import Sampling

__all__ = ["Drawn", "draw_cohort"]

Counts = NDArray[np.int32]


class Drawn(NamedTuple):
    """Who takes part, in ascending order, and how often each client has been drawn by now."""

    clients: NDArray[np.int64]
    draws: Counts


def draw_cohort(
    draws: Counts,
    *,
    sampling: Sampling,
    sample_rate: float,
    size: int,
    cohort_cap: int,
    max_participations: int,
    cohort_floor: int = 1,
    rng: Generator,
) -> Drawn:
    """Return the cohort of the next round, given how often each client was drawn before.

    Poisson: each client by its own coin. More than `cohort_cap` drawn: a uniformly random subset of that size, which is
    dp-accounting's truncated Poisson event (arXiv 2508.15089). Fixed: `size` of all clients, uniformly.
    Then whoever has been drawn more than `max_participations` times sits out. A draw counts even if it was cut.
    A cohort below `cohort_floor` is sent home, and the round releases noise as if nobody had been drawn.

    Guarantee: this is the sampler that `Event` describes; a client's count depends on nobody's data and, under Poisson
    sampling, on no other client's draws. Nothing that is published tells a small cohort from an empty one: a round that
    was visibly called off for its size would make a draw likelier, in the others, than the rate that is charged.
    """
    if draws.ndim != 1 or draws.size == 0:
        raise InputError(f"draws must count every client, got shape {draws.shape}")
    if sampling == "fixed":
        drawn = np.sort(rng.choice(draws.size, size=size, replace=False))
    else:
        drawn = np.flatnonzero(rng.random(draws.size) < sample_rate)
    after = draws.copy()
    after[drawn] += 1
    if drawn.size > cohort_cap:
        drawn = np.sort(rng.choice(drawn, size=cohort_cap, replace=False))
    taking = drawn[after[drawn] <= max_participations].astype(np.int64)
    return Drawn(taking if taking.size >= cohort_floor else taking[:0], after)
