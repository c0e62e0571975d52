"""Take the steps of a request: cohort cap and floor, the releases, what they cost, the noise against outsiders."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.others import Others
from sottovoce.privacy.accounting.participation import participation_cap, upper_quantile
from sottovoce.privacy.noise.grid import COARSEST
from sottovoce.privacy.noise.lattice import ROUNDING
from sottovoce.privacy.plan.cohort import Shares, least_cohort
from sottovoce.privacy.plan.request import PrivacyRequest

COARSEST_ROUNDING: Final = (ROUNDING / COARSEST) ** 2  # by how much the coarsest grid widens the variance
RESERVE: Final = 1e-5  # of delta, kept for the lattice slack and for caps that nobody reaches
COIN_RESERVE: Final = 1e-3  # the same where two aggregators toss coins
USUAL_EPSILON: Final = 5.0
RARE_CUT: Final = 1e-4  # of delta: what cutting Poisson cohorts at the default cap may cost
RARE_FLOOR: Final = 1e-4  # of delta: how likely cohorts below a floor may be that costs next to nothing


def accounted_delta(request: PrivacyRequest) -> float:
    """Return the delta that the accountant gets; the rest pays for what the Gaussian does not describe."""
    return request.delta * (1 - reserve(request))


def reserve(request: PrivacyRequest) -> float:
    """Return the part of delta that is kept for what the Gaussian does not describe: coins describe it less well."""
    return COIN_RESERVE if request.noise_by == "jointly" else RESERVE


def events_of(
    request: PrivacyRequest, shares: Shares, noise: float, rounds: int, *, rounding: float = 0.0, lattice: float = 0.0
) -> list[Event]:
    """Return what a run releases: what was spent before, and its rounds.

    `rounding` and `lattice` are the grid's, once it is known.

    Records and persons are charged by their own coins over all rounds: the server chooses the sites, so that whom it
    asks amplifies nothing. Neither floor nor quorum depends on one of them.
    """
    event = Event(
        noise_multiplier=noise,
        rounds=rounds,
        rounding=rounding,
        lattice=lattice,
        present=shares.outsider_part,
        sample_rate=request.unit_rate if request.of_sites else request.sample_rate,
    )
    if request.of_sites:
        return [*request.spent, event]
    capped = request.sampling == "poisson" and shares.cap < request.clients
    event = replace(
        event,
        sampling=request.sampling,
        cohort_cap=shares.cap if capped else None,
        clients=request.clients if capped else None,
        floor_slack=floor_slack(request, shares.cap, shares.floor, rounds),
        quorum_slack=quorum_slack(request, shares, rounds),
    )
    return [*request.spent, event]


def shares_of(request: PrivacyRequest) -> Shares:
    """Return how the noise of a cohort is shared, from the smallest cohort to the largest."""
    cap = cohort_cap(request)
    return Shares(
        request.threshold,
        request.colluders,
        cohort_floor(request, cap),
        cap,
        by_aggregators=request.noise_by != "clients",
        joint=request.noise_by == "jointly",
        of_sites=request.of_sites,
        local=request.local_noise,
    )


def cohort_cap(request: PrivacyRequest) -> int:
    """Return the largest cohort: the one asked for, or one that is hardly ever reached."""
    if request.sampling == "fixed":
        return request.cohort_size
    if request.cohort_cap is not None:
        return min(request.clients, request.cohort_cap)
    if request.of_sites:
        return request.clients
    tail = RARE_CUT * request.delta / (request.rounds * (1 + math.exp(min(700.0, _likely_epsilon(request)))))
    return max(1, upper_quantile(tail, request.clients, request.sample_rate))


def cohort_floor(request: PrivacyRequest, cap: int) -> int:
    """Return the least cohort that is asked: the one given, or a default.

    The default is the largest below which hardly any cohort is ever drawn. Where that is too small to hide a client
    among others (`least_cohort`), it is the largest that `floor_share` of delta can pay for, up to half of the expected
    cohort. 1 means that there is none: then a cohort of one client is asked, whose share is the whole noise.
    """
    if request.sampling == "fixed":
        return request.cohort_size
    if request.cohort_floor is not None:
        return request.cohort_floor
    if request.of_sites:
        if request.sample_rate == 1:
            return request.clients
        return 1 if request.local_noise else min(cap, least_cohort(request.threshold, request.colluders))
    expected = request.sample_rate * request.clients
    just_below = _others(request, cap, request.rounds).drawn_with(np.arange(min(cap, max(2, math.floor(expected)))))

    def within(costs: NDArray[np.float64], share: float) -> int:
        return max(1, int(np.argmax([*(costs > share * request.delta), True])))

    rare = within(np.cumsum(just_below) / request.sample_rate, RARE_FLOOR)
    enough = least_cohort(request.threshold, request.colluders)
    if rare >= enough:
        return rare
    before = sum(event.floor_slack for event in request.spent)
    paid = within(just_below, max(RARE_FLOOR, request.floor_share - before / request.delta))
    return max(rare, min(paid, max(enough, math.ceil(expected / 2))))


@lru_cache(maxsize=256)
def floor_slack(request: PrivacyRequest, cap: int, floor: int, rounds: int) -> float:
    """Return what sending cohorts below `floor` home takes from delta."""
    if request.sampling == "fixed" or floor < 2:
        return 0.0
    return float(_others(request, cap, rounds).drawn_with(np.array([floor - 1]))[0])


@lru_cache(maxsize=256)
def quorum_slack(request: PrivacyRequest, shares: Shares, rounds: int) -> float:
    """Return what rounds with too few answers take from delta; infinity if nobody knows how likely they are."""
    if request.answer_rate is None:
        return math.inf
    if request.answer_rate == 1:
        return 0.0
    # Cohorts just below the floor are charged for as such; where there is no floor, a client may be alone.
    fewest = shares.cap - 1 if request.sampling == "fixed" else shares.floor if shares.floor > 1 else 0
    needed = np.array([shares.survivors(others + 1) for others in range(fewest, shares.cap)], np.int64)
    return _others(request, shares.cap, rounds).short_of(needed, request.answer_rate)


def _others(request: PrivacyRequest, cap: int, rounds: int) -> Others:
    return Others(
        clients=request.clients,
        sample_rate=request.sample_rate,
        sampling=request.sampling,
        cap=cap,
        rounds=rounds,
        most=participations(request, rounds, 0.0),
    )


def charged(request: PrivacyRequest, events: list[Event]) -> bool:
    """Tell whether too few answers are likely enough to be charged for: at most half of what the floors leave."""
    floors = math.fsum(event.floor_slack for event in events)
    return math.fsum(event.quorum_slack for event in events) <= (accounted_delta(request) - floors) / 2


def answered(events: list[Event]) -> list[Event]:
    """Return the events of a run in which every client that is asked answers."""
    return [replace(event, quorum_slack=0.0) for event in events]


def accounted(request: PrivacyRequest, events: list[Event]) -> list[Event]:
    """Return what the noise is solved for: where too few answers cannot be charged, as if everybody answered."""
    return events if charged(request, events) else answered(events)


def participations(request: PrivacyRequest, rounds: int, epsilon: float) -> int:
    """Return the enforced number of rounds in which one client may contribute; a site may in all of them."""
    if request.of_sites:
        return rounds
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
    delta = accounted_delta(request) * (1 - 2 * RARE_CUT)
    cost = accounts.epsilon(answered(events), delta=delta, accountant=request.accountant)
    return max(USUAL_EPSILON, cost)


def noise_for_epsilon(request: PrivacyRequest, shares: Shares) -> float | None:
    """Return the least noise multiplier that keeps `epsilon` against outsiders; None: no such target."""
    if request.epsilon is None:
        return None
    return accounts.noise_multiplier(
        request.epsilon,
        lambda z: accounted(request, events_of(request, shares, z, request.rounds, rounding=COARSEST_ROUNDING)),
        delta=accounted_delta(request),
        accountant=request.accountant,
    )


def against(request: PrivacyRequest, events: list[Event], *, most: int, part: float) -> float:
    """Return epsilon against somebody who knows whom the server sampled, and all of the noise but `part` of V.

    What the lattice costs is taken from delta; infinity where it leaves nothing of it, or where no noise is unknown.
    Floor and quorum cost nothing here: who sees who takes part learns nothing more from them.
    """
    [*before, own] = events
    releases = [*_releases(before, part), (own.left(part), most)]
    if min(noise for noise, _ in releases) <= 0:
        return math.inf

    def price(delta: float) -> float:
        if request.of_sites:  # a site's coins are secrets of the site
            return accounts.epsilon(facing(events, part), delta=delta, accountant=request.accountant)
        return accounts.epsilon_server(releases, delta=delta, accountant=request.accountant)

    slack = sum(event.rounds * event.lattice for event in events)
    left = spare = accounted_delta(request)
    for _ in range(20):
        if left <= 0:
            return math.inf
        value = price(left)
        now = spare - (1 + math.exp(min(700.0, value))) * slack
        if now >= left:
            return value
        left = now * (1 - 1e-9)
    return math.inf


def apart_cost(request: PrivacyRequest, part: float) -> float:
    """Return what units that are set aside pay against somebody who knows all of the noise but `part` of V; or 0."""
    if not request.apart:
        return 0.0
    return against(request, list(request.apart), most=request.apart[-1].rounds, part=part)


def facing(events: list[Event], part: float) -> list[Event]:
    """Return the events as somebody sees them who knows all of the noise but `part` of V."""
    return [replace(event, noise_multiplier=event.left(part), present=1.0) for event in events]


def _releases(events: list[Event], part: float) -> list[tuple[float, int]]:
    return [(event.left(part), event.rounds) for event in events]
