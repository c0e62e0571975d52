"""Solve a request step by step: cohort cap and floor, the rounds that the budget affords, the noise, the grid."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.binomial import upper_quantile
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.participation import participation_cap
from sottovoce.privacy.noise.grid import COARSEST, NoiseGrid, solve_grid
from sottovoce.privacy.noise.lattice import ROUNDING
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.shares import Shares

__all__ = [
    "accounted_delta",
    "affordable_rounds",
    "against",
    "check_target",
    "cohort_cap",
    "cohort_floor",
    "events_of",
    "grid_costs",
    "participations",
    "request_grid",
    "solve_noise",
]

RESERVE: Final = 1e-5  # of delta, kept for the lattice slack and for caps that nobody reaches
USUAL_EPSILON: Final = 5.0
RARE_CUT: Final = 1e-4  # of delta: what cutting Poisson cohorts at the default cap may cost
RARE_SLACK: Final = 1e-3  # of delta: what the lattice may cost against the server
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


def solve_noise(request: PrivacyRequest, shares: Shares) -> float:
    """Return the noise multiplier: the one given, or the least that keeps every target."""
    if request.noise_multiplier is not None:
        return request.noise_multiplier
    noise = 0.0
    if request.epsilon is not None:
        noise = accounts.noise_multiplier(
            request.epsilon,
            lambda z: events_of(request, shares, z, request.rounds),
            delta=accounted_delta(request),
            accountant=request.accountant,
        )
    if request.epsilon_server is not None:
        noise = max(noise, _noise_against_server(request, shares))
    return noise


def _noise_against_server(request: PrivacyRequest, shares: Shares) -> float:
    """Return the least noise multiplier that keeps `epsilon_server`, whichever grid is chosen."""
    target = request.epsilon_server or 0.0
    most = participations(request, request.rounds, request.epsilon or target)
    coarsest = (ROUNDING / COARSEST) ** 2
    slack = RARE_SLACK * request.delta  # what the lattice costs at most, at a grid that `request_grid` accepts

    def cost(noise: float) -> float:
        [*before, own] = events_of(request, shares, noise, request.rounds, rounding=coarsest)
        releases = [*_releases(before, shares.server_part), (own.left(shares.server_part), most)]
        spare = accounted_delta(request) - own.floor_slack - slack
        return accounts.epsilon_server(releases, delta=spare, accountant=request.accountant) if spare > 0 else math.inf

    high = 1.0
    while cost(high) > target:
        high *= 2
        if high > accounts.MAX_NOISE:
            raise PrivacyError(
                f"epsilon_server {target:g} is out of reach with {most} participations a client and a server that "
                f"may know {1 - shares.server_part:.0%} of the noise; lower max_participations or rounds, or raise it"
            )
    low = high / 2 if high > 1 else 0.01
    while high / low - 1 > 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high


def affordable_rounds(request: PrivacyRequest, shares: Shares, noise: float) -> int:
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


def check_target(request: PrivacyRequest, epsilon_server: float) -> None:
    """Raise if the solved plan misses `epsilon_server`, because no grid was fine enough for it."""
    if request.epsilon_server is not None and epsilon_server > request.epsilon_server:
        raise PrivacyError(
            f"epsilon_server {request.epsilon_server:g} is out of reach: the noise's distance from a Gaussian leaves "
            f"{epsilon_server:.6g}; ask for a smaller one"
        )


def _releases(events: list[Event], part: float) -> list[tuple[float, int]]:
    return [(event.left(part), event.rounds) for event in events]


def request_grid(
    request: PrivacyRequest, shares: Shares, noise: float, rounds: int, epsilon: float, most: int
) -> NoiseGrid | None:
    """Return the grid, its distance from the Gaussian within what `accounted_delta` keeps back; None for floats.

    Against the server the distance counts e^epsilon_server times, so the grid is fine enough for a server that does not
    know two thirds of the noise; the real threshold and the colluders change what the server is charged, and not the
    grid, so that the model stays the same. Where no grid is fine enough for that, because epsilon_server is so large
    that the tables' own 128 bits are too few, the outsiders' epsilon decides.
    """
    if request.mechanism == "gaussian":
        return None
    extra = 1 if request.clipping == "adaptive" else 0
    length = request.length + extra
    slack = min(1e-18, 0.1 * RESERVE * request.delta / (rounds * (1 + math.exp(min(700.0, epsilon)))))
    events = events_of(request, shares, noise, rounds, rounding=(ROUNDING / COARSEST) ** 2)
    server = against(request, events, most=most, part=2 / 3)
    server = max(server, request.epsilon_server or 0.0)  # a target is kept at any threshold
    finer = RARE_SLACK * request.delta / (rounds * (1 + math.exp(min(700.0, server))))
    if finer > length * shares.cap * 2.0**-117:
        slack = min(slack, finer)
    return solve_grid(
        noise_multiplier=noise,
        shares=shares,
        length=length,
        form=request.form,
        max_slack=slack,
        step_one=request.grid == "papers",
        bits=request.bits,
    )


def grid_costs(grid: NoiseGrid | None, noise: float) -> dict[str, float]:
    """Return s^2 / (z R)^2, by how much the rounding widens the variance, and the lattice's distance; floats: none."""
    return {} if grid is None else {"rounding": (ROUNDING / (noise * grid.radius)) ** 2, "lattice": grid.slack}
