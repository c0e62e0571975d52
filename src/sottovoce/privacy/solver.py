"""Solve a request step by step: the cohort cap, the rounds that the budget affords, the grid."""

from __future__ import annotations

import math
from typing import Final

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy import accountant as accounts
from sottovoce.privacy.binomial import upper_quantile
from sottovoce.privacy.events import Event
from sottovoce.privacy.grid import Grid, solve_grid
from sottovoce.privacy.request import Request
from sottovoce.privacy.shares import Shares

__all__ = ["accounted_delta", "affordable_rounds", "cohort_cap", "events_of", "request_grid"]

RESERVE: Final = 1e-5  # of delta, kept for the lattice slack and for caps that nobody reaches
USUAL_EPSILON: Final = 5.0
RARE_CUT: Final = 1e-4  # of delta: what cutting Poisson cohorts at the default cap may cost


def accounted_delta(request: Request) -> float:
    """Return the delta that the accountant gets; the rest pays for what the Gaussian does not describe."""
    return request.delta * (1 - RESERVE)


def events_of(request: Request, shares: Shares, noise: float, rounds: int) -> list[Event]:
    """Return what a run releases: what was spent before, and its rounds."""
    capped = request.sampling == "poisson" and shares.cap < request.clients
    event = Event(
        noise_multiplier=noise,
        sample_rate=request.sample_rate,
        rounds=rounds,
        sampling=request.sampling,
        cohort_cap=shares.cap if capped else None,
        clients=request.clients if capped else None,
    )
    return [*request.spent, event]


def cohort_cap(request: Request) -> int:
    """Return the largest cohort: the one asked for, or one that is hardly ever reached."""
    if request.sampling == "fixed":
        return request.cohort_size
    if request.cohort_cap is not None:
        return min(request.clients, request.cohort_cap)
    tail = RARE_CUT * request.delta / (request.rounds * (1 + math.exp(min(700.0, _likely_epsilon(request)))))
    return max(1, upper_quantile(tail, request.clients, request.sample_rate))


def _likely_epsilon(request: Request) -> float:
    """Return about what the run may cost, before anybody cuts a cohort."""
    if request.epsilon is not None or request.noise_multiplier is None:
        return request.epsilon or USUAL_EPSILON
    events = [
        *request.spent,
        Event(noise_multiplier=request.noise_multiplier, sample_rate=request.sample_rate, rounds=request.rounds),
    ]
    cost = accounts.epsilon(events, delta=accounted_delta(request) * (1 - 2 * RARE_CUT), accountant=request.accountant)
    return max(USUAL_EPSILON, cost)


def affordable_rounds(request: Request, shares: Shares, noise: float) -> int:
    """Return how many of the rounds asked for the budget affords."""
    if request.epsilon is None or request.noise_multiplier is None:
        return request.rounds

    delta = accounted_delta(request)

    def cost(rounds: int) -> float:
        return accounts.epsilon(events_of(request, shares, noise, rounds), delta=delta, accountant=request.accountant)

    if cost(request.rounds) <= request.epsilon:
        return request.rounds
    if cost(1) > request.epsilon:
        raise PrivacyError(
            f"epsilon must be at least {cost(1):.4g} for one round at noise multiplier {noise:g}, got "
            f"{request.epsilon:g}; raise epsilon or noise_multiplier"
        )
    low, high = 1, request.rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= request.epsilon else (low, middle)
    return low


def request_grid(request: Request, shares: Shares, noise: float, rounds: int, epsilon: float) -> Grid | None:
    """Return the grid, its distance from the Gaussian within what `accounted_delta` keeps back; None for floats."""
    if request.mechanism == "gaussian":
        return None
    extra = 1 if request.clipping == "adaptive" else 0
    slack = 0.1 * RESERVE * request.delta / (rounds * (1 + math.exp(min(700.0, epsilon))))
    return solve_grid(
        noise_multiplier=noise,
        shares=shares,
        length=request.length + extra,
        form=request.form,
        max_slack=min(1e-18, slack),
        step_one=request.grid == "papers",
        bits=request.bits,
    )
