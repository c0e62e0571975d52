"""What a plan promises while malicious clients leave out their shares of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.plan.charges import accounted, accounted_delta, against
from sottovoce.privacy.plan.cohort import Shares

if TYPE_CHECKING:
    from sottovoce.privacy.plan.plan import PrivacyPlan

RARE: Final = 1e-2  # of delta: how likely rounds with more attackers than are charged for may be


class Omission(NamedTuple):
    """The clients that add no noise: so many of a cohort of n, or so many of all clients, who are drawn like others."""

    of_cohort: Callable[[int], int] | None
    of_population: int = 0


class Weakened(NamedTuple):
    """Both epsilons of a run in which shares are left out; infinite where there is no bound."""

    epsilon: float
    epsilon_server: float


def epsilons_under_attack(plan: PrivacyPlan, omission: Omission) -> Weakened:
    """Return what holds for an honest client while others leave out their noise, in every round after round 0.

    Guarantee: at the plan's delta. Where attackers are drawn like everybody else, rounds in which they are a larger
    part of the cohort than is charged for take at most `RARE` of delta; who else is drawn does not depend on the
    client. The amplified epsilon holds against outsiders who do not measure the noise itself: with shares left out its
    variance tells the size of the cohort, and then the server's number is the one to quote.
    """
    if plan.shares.by_aggregators:  # clients add none
        return Weakened(plan.epsilon, plan.epsilon_server)
    outsiders, server, rare = _parts(plan, omission)
    *before, own = plan.events()
    request = replace(plan.request, delta=plan.request.delta * (1 - rare))
    if outsiders <= own.rounding:
        return Weakened(np.inf, np.inf)
    events = accounted(request, [*before, replace(own, present=outsiders)])
    epsilon = accounts.epsilon(events, delta=accounted_delta(request), accountant=request.accountant)
    part = max(0.0, server)
    return Weakened(
        max(epsilon, plan.epsilon),
        max(plan.epsilon_server, against(request, plan.events(), most=plan.max_participations, part=part)),
    )


def _parts(plan: PrivacyPlan, omission: Omission) -> tuple[float, float, float]:
    """Return the parts of V that outsiders and the server do not know, and the part of delta that rare rounds take."""
    shares, request = plan.shares, plan.request
    if omission.of_cohort is not None or request.sample_rate == 1 or request.sampling == "fixed":
        most = omission.of_cohort or (lambda size: min(size, omission.of_population))
        cheating = np.array([most(int(size)) for size in shares.sizes])
        return (*_least(shares, shares.sizes, cheating), 0.0)
    return (*_drawn(plan, omission.of_population), RARE)


def _least(shares: Shares, sizes: NDArray[np.int64], cheating: NDArray[np.int64]) -> tuple[float, float]:
    survivors = np.array([shares.survivors(int(size)) for size in sizes])
    return float(np.min((sizes - cheating) / sizes)), float(np.min((survivors - cheating) / sizes))


def _drawn(plan: PrivacyPlan, cheating: int) -> tuple[float, float]:
    """Return both parts of all but the rarest cohorts, when honest clients and attackers are drawn by their coins."""
    from scipy.stats import binom

    shares, request = plan.shares, plan.request
    others = request.clients - cheating - 1
    honest, left_out = np.arange(shares.cap + 1)[:, None], np.arange(min(cheating, shares.cap) + 1)[None, :]
    chance = binom.pmf(honest, others, request.sample_rate) * binom.pmf(left_out, cheating, request.sample_rate)
    sizes = honest + left_out + 1
    asked = (sizes >= shares.floor) & (sizes <= shares.cap)
    needed = np.array([shares.survivors(size) for size in range(int(sizes.max()) + 1)])[sizes]
    rare = RARE * request.delta / plan.rounds
    return _quantile((honest + 1) / sizes, chance * asked, rare), _quantile(
        (needed - left_out) / sizes, chance * asked, rare
    )


def _quantile(parts: NDArray[np.float64], chance: NDArray[np.float64], rare: float) -> float:
    """Return the least part once the rarest cases, of a total chance of at most `rare`, are left out."""
    order = np.argsort(parts, axis=None)
    total = np.cumsum(chance.reshape(-1)[order])
    return float(parts.reshape(-1)[order][min(int(np.searchsorted(total, rare, side="right")), order.size - 1)])
