"""Take the steps of a request: cohort cap and floor, the releases, what they cost, the noise against outsiders."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.binomial import upper_quantile
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.participation import participation_cap
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.shares import Shares

__all__ = [
    "accounted_delta",
    "against",
    "cohort_cap",
    "cohort_floor",
    "events_of",
    "noise_for_epsilon",
    "participations",
    "shares_of",
]

RESERVE: Final = 1e-5  # of delta, kept for the lattice slack and for caps that nobody reaches
USUAL_EPSILON: Final = 5.0
RARE_CUT: Final = 1e-4  # of delta: what cutting Poisson cohorts at the default cap may cost
RARE_FLOOR: Final = 1e-4  # of delta: what sending cohorts below the default floor home may cost ...
DEAR_FLOOR: Final = 0.5  # ... and what a floor of 2 may, because the sum of one client is no secure sum


def accounted_delta(request: PrivacyRequest) -> float:
    """Return the delta that the accountant gets; the rest pays for what the Gaussian does not describe."""
    return request.delta * (1 - RESERVE)


def events_of(
    request: PrivacyRequest, shares: Shares, noise: float, rounds: int, *, rounding: float = 0.0, lattice: float = 0.0
) -> list[Event]:
    """Return what a run releases: what was spent before, and its rounds.

    `rounding` and `lattice` are the grid's, once it is known.
    """
    capped = request.sampling == "poisson" and shares.cap < request.clients
    event = Event(
        noise_multiplier=noise,
        sample_rate=request.sample_rate,
        rounds=rounds,
        sampling=request.sampling,
        cohort_cap=shares.cap if capped else None,
        clients=request.clients if capped else None,
        floor_slack=_floor_slack(request, shares.cap, shares.floor, rounds),
        rounding=rounding,
        lattice=lattice,
    )
    return [*request.spent, event]


def shares_of(request: PrivacyRequest) -> Shares:
    """Return how the noise of a cohort is shared, from the smallest cohort to the largest."""
    cap = cohort_cap(request)
    by_aggregators = request.noise_by == "aggregators"
    return Shares(request.threshold, request.colluders, cohort_floor(request, cap), cap, by_aggregators)


def cohort_cap(request: PrivacyRequest) -> int:
    """Return the largest cohort: the one asked for, or one that is hardly ever reached."""
    if request.sampling == "fixed":
        return request.cohort_size
    if request.cohort_cap is not None:
        return min(request.clients, request.cohort_cap)
    tail = RARE_CUT * request.delta / (request.rounds * (1 + math.exp(min(700.0, _likely_epsilon(request)))))
    return max(1, upper_quantile(tail, request.clients, request.sample_rate))


def cohort_floor(request: PrivacyRequest, cap: int) -> int:
    """Return the smallest cohort that is asked: the one given, or the largest whose charge is next to nothing.

    Where even a floor of 2 costs more than that, it is charged; where it costs too much, there is none (1): then a
    cohort of one client is asked, whose share is the whole noise, and only masks cannot be had for it.
    """
    if request.sampling == "fixed":
        return request.cohort_size
    if request.cohort_floor is not None:
        return request.cohort_floor

    def cost(floor: int) -> float:
        return _floor_slack(request, cap, floor, request.rounds) / request.delta

    low, high = 1, max(2, math.floor(request.sample_rate * request.clients))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= RARE_FLOOR else (low, middle)
    return 2 if low == 1 and cap >= 2 and cost(2) <= DEAR_FLOOR else low


@lru_cache(maxsize=256)
def _floor_slack(request: PrivacyRequest, cap: int, floor: int, rounds: int) -> float:
    """Bound the probability that in any of the rounds the others who take part are just below the floor, or fewer.

    Guarantee: sending cohorts below `floor` home adds at most this to delta, for every epsilon. Given everybody else's
    coins, which do not depend on the client, a round is one of three kinds. Others at the floor or above: the sampled
    Gaussian, as charged. Others at floor - 2 or fewer: noise alone, with the client or without. Others at floor - 1:
    noise alone without the client, and with it a cohort at the floor if it is drawn. If no round is of the third kind
    the run is the charged one; the hockey-stick divergence is jointly convex and at most 1 on the rest.
    """
    if request.sampling == "fixed" or floor < 2:
        return 0.0
    from scipy.stats import binom

    most = participations(request, rounds, 0.0)
    # A client that has been drawn too often sits out, so cohorts are a little smaller than the draws.
    staying = float(binom.cdf(most - 1, rounds - 1, request.sample_rate)) if rounds > 1 else 1.0
    few = float(binom.cdf(floor - 1, request.clients - 1, request.sample_rate * staying))
    cut = float(binom.sf(cap, request.clients, request.sample_rate)) if cap < request.clients else 0.0
    few_of_cut = float(binom.cdf(floor - 1, cap - 1, staying)) if cut else 0.0
    return rounds * (few + cut * few_of_cut)


def participations(request: PrivacyRequest, rounds: int, epsilon: float) -> int:
    """Return the enforced number of rounds in which one client may contribute."""
    return participation_cap(
        sample_rate=request.sample_rate,
        rounds=rounds,
        delta=request.delta,
        epsilon=epsilon,
        sampling=request.sampling,
        wanted=request.max_participations,
    )


def _likely_epsilon(request: PrivacyRequest) -> float:
    """Return about what the run may cost, before anybody cuts a cohort."""
    if request.epsilon is not None or request.noise_multiplier is None:
        return request.epsilon or request.epsilon_server or USUAL_EPSILON
    events = [
        *request.spent,
        Event(noise_multiplier=request.noise_multiplier, sample_rate=request.sample_rate, rounds=request.rounds),
    ]
    cost = accounts.epsilon(events, delta=accounted_delta(request) * (1 - 2 * RARE_CUT), accountant=request.accountant)
    return max(USUAL_EPSILON, cost)


def noise_for_epsilon(request: PrivacyRequest, shares: Shares) -> float | None:
    """Return the least noise multiplier that keeps `epsilon` against outsiders; None: no such target."""
    if request.epsilon is None:
        return None
    return accounts.noise_multiplier(
        request.epsilon,
        lambda z: events_of(request, shares, z, request.rounds),
        delta=accounted_delta(request),
        accountant=request.accountant,
    )


def against(request: PrivacyRequest, events: list[Event], *, most: int, part: float) -> float:
    """Return epsilon against somebody who knows whom the server sampled, and all of the noise but `part` of V.

    What the lattice and the floor of each event cost is taken from delta; infinity where they leave nothing of it, or
    where no noise is unknown.
    """
    [*before, own] = events
    releases = [*_releases(before, part), (own.left(part), most)]
    if min(noise for noise, _ in releases) <= 0:
        return math.inf
    slack = sum(event.rounds * event.lattice for event in events)
    spare = accounted_delta(request) - sum(event.floor_slack for event in events)
    left = spare
    for _ in range(20):
        if left <= 0:
            return math.inf
        value = accounts.epsilon_server(releases, delta=left, accountant=request.accountant)
        now = spare - (1 + math.exp(min(700.0, value))) * slack
        if now >= left:
            return value
        left = now * (1 - 1e-9)
    return math.inf


def _releases(events: list[Event], part: float) -> list[tuple[float, int]]:
    return [(event.left(part), event.rounds) for event in events]
