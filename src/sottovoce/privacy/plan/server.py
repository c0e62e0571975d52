"""Solve for `epsilon_server`: noise and participations trade off one for the other, because nothing is amplified.

Against the server m participations of a Gaussian with noise multiplier z are one Gaussian with z / sqrt(m), exactly. So
a target fixes z / sqrt(m), and whoever contributes less often needs less noise:

    epsilon_server   8      4      2      1        of all of the noise, at delta 1e-5
    z / sqrt(m)      0.600  1.081  1.994  3.731
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Accountant, Event
from sottovoce.privacy.adjacency import ADJACENCY
from sottovoce.privacy.plan.charges import (
    COARSEST_ROUNDING,
    events_of,
    facing,
    noise_for_epsilon,
    participations,
    shares_of,
)
from sottovoce.privacy.plan.cohort import Shares
from sottovoce.privacy.plan.request import PrivacyRequest

RARE_SLACK: Final = 1e-3  # of delta: what the lattice may cost against the server
MOST_CAPS: Final = 256  # that are compared
CapSource = Literal["given", "chosen", "turns hardly anybody away"]


@dataclass(frozen=True)
class Targets:
    """What decided a plan: the noise multiplier that each target needs by itself, and where the cap comes from."""

    noise_for_epsilon: float | None  # None: no such target, or the noise is given
    noise_for_server: float | None
    cap: CapSource

    @property
    def noise(self) -> float:
        """Return the noise that keeps both."""
        return max(self.noise_for_epsilon or 0.0, self.noise_for_server or 0.0)

    @property
    def binding(self) -> Literal["epsilon", "epsilon_server", "noise_multiplier"]:
        """Name what decided the noise."""
        if self.noise == 0:
            return "noise_multiplier"
        return "epsilon" if self.noise_for_epsilon == self.noise else "epsilon_server"


class Capped(NamedTuple):
    """A request whose cap on participations is settled, and where it comes from."""

    request: PrivacyRequest
    source: CapSource


def expected_contributions(sample_rate: float, rounds: int, most: int) -> float:
    """Return E[min(B, m)], B binomial: the rounds that a client is expected to contribute to under a cap of m.

    >>> round(1 - expected_contributions(1 / 12, 40, 4) / (40 / 12), 3)
    0.125
    """
    if most >= rounds:
        return rounds * sample_rate
    from scipy.stats import binom

    return float(np.sum(binom.sf(np.arange(most), rounds, sample_rate)))


def with_cap(request: PrivacyRequest) -> Capped:
    """Return the request with its cap on participations chosen, where `epsilon_server` is a target and none is given.

    Chosen is the cap m with the least noise for each draw that survives it,

        z(m) / E[min(B, m)],   B ~ Binomial(rounds, sample_rate),

    where z(m) is the noise that keeps all targets: over all rounds the noises add up to z sqrt(rounds) clip norms, and
    the N clients contribute N E[min(B, m)] times. While `epsilon` decides the noise a higher cap is free; then z grows
    as sqrt(m), and E ever more slowly. With a given noise the cap is the largest that it affords. In cohorts of fixed
    size a client must never reach its cap, so there is nothing to choose.
    """
    if request.max_participations is not None:
        return Capped(request, "given")
    if request.of_sites:
        return Capped(request, "turns hardly anybody away")  # there is none
    usual = participations(request, request.rounds, request.epsilon or request.epsilon_server or 0.0)
    if request.epsilon_server is None or request.sampling == "fixed":
        return Capped(request, "turns hardly anybody away")
    if request.noise_multiplier is not None:
        cap = _affordable_cap(request, usual, request.noise_multiplier)
    elif request.sample_rate == 1:
        cap = usual  # z / m falls in m
    else:
        outsiders = noise_for_epsilon(request, shares_of(request)) or 0.0
        cap = min(_caps(usual), key=lambda most: _noise_per_draw(request, most, outsiders))
    if cap == usual:
        return Capped(request, "turns hardly anybody away")
    return Capped(replace(request, max_participations=cap), "chosen")


def noise_for_server(request: PrivacyRequest, shares: Shares, *, rounding: float) -> float | None:
    """Return the least noise multiplier that keeps `epsilon_server` on a grid of this `rounding`; None: no target."""
    if request.epsilon_server is None:
        return None
    if request.of_sites:
        return _noise_for_sites(request, shares, request.epsilon_server, rounding)
    most = participations(request, request.rounds, request.epsilon or request.epsilon_server)
    precision = _precision(request, shares) * _part(request, shares, rounding)
    noise = math.sqrt(most / precision) if precision > 0 else math.inf
    if noise <= accounts.MAX_NOISE:
        return noise
    fewer = int(precision * accounts.MAX_NOISE**2)
    way_out = f"lower max_participations to {fewer}, or raise it" if 0 < fewer < most else "raise it"
    raise PrivacyError(
        f"epsilon_server {request.epsilon_server:g} is out of reach with {most} participations a client and a server "
        f"that may know {1 - shares.server_part:.0%} of the noise; {way_out}"
    )


def _noise_for_sites(request: PrivacyRequest, shares: Shares, target: float, rounding: float) -> float:
    """Return the least noise multiplier that keeps records and persons at `target` against the server."""
    part = shares.server_part

    def events(noise: float) -> list[Event]:
        return facing(events_of(request, shares, noise, request.rounds, rounding=rounding), part)

    if any(event.left(part) <= 0 for event in events(1.0)):
        raise PrivacyError(f"epsilon_server {target:g} is out of reach: no noise is left that the server cannot know")
    delta = (1 - 2 * RARE_SLACK) * request.delta  # for the lattice, and for what `accounted_delta` keeps back
    return accounts.noise_multiplier(target, events, delta=delta, accountant=request.accountant)


def affordable_participations(request: PrivacyRequest, shares: Shares, noise: float) -> int:
    """Return how many participations a given noise affords under `epsilon_server`, on any grid; 0 if not even one."""
    # A hair less, so that the plan's own sum, which takes another order, stays within the target too.
    return int(_precision(request, shares) * _part(request, shares, COARSEST_ROUNDING) * noise * noise * (1 - 1e-9))


def _affordable_cap(request: PrivacyRequest, usual: int, noise: float) -> int:
    """Return the largest cap that a given noise affords; a lower cap makes the last cohorts smaller, and that may cost.

    With colluders, smaller cohorts leave less of the noise that they do not know.
    """
    cap, allowed = usual, affordable_participations(request, shares_of(request), noise)
    while 1 <= allowed < cap:
        cap = allowed
        capped = replace(request, max_participations=cap)
        allowed = affordable_participations(capped, shares_of(capped), noise)
    return cap if allowed else 1  # not even one: the plan says so


def _caps(usual: int) -> list[int]:
    """Return the caps to compare: all of them, or of very many about the nearest to each percent."""
    if usual <= MOST_CAPS:
        return list(range(1, usual + 1))
    return [int(cap) for cap in np.unique(np.rint(np.geomspace(1, usual, MOST_CAPS)))]


def _noise_per_draw(request: PrivacyRequest, most: int, outsiders: float) -> float:
    capped = replace(request, max_participations=most)
    try:
        server = noise_for_server(capped, shares_of(capped), rounding=COARSEST_ROUNDING) or 0.0
    except PrivacyError:
        server = math.inf  # with so low a cap the last cohorts are too small for the colluders, or for delta
    return max(server, outsiders) / expected_contributions(request.sample_rate, request.rounds, most)


def _part(request: PrivacyRequest, shares: Shares, rounding: float) -> float:
    """Return left(part)^2 / z^2 of `Event`: the part of (z R)^2 that the server does not know, in a client's reach."""
    reach = ADJACENCY.distance(fixed_size=request.sampling == "fixed", sample_rate=request.sample_rate) ** 2
    if shares.by_aggregators:
        return shares.server_part / reach  # each adds the rounding width to its own half
    return (shares.server_part - rounding * (1 - shares.server_part)) / reach


def _precision(request: PrivacyRequest, shares: Shares) -> float:
    """Return what the target leaves for the rounds of the sum of m / z^2; what was spent before is taken from it."""
    target = request.epsilon_server or 0.0
    spare = (1 - 2 * RARE_SLACK) * request.delta  # for the lattice, and for what `accounted_delta` keeps back
    lefts = [(event.left(shares.server_part), event.rounds) for event in request.spent]
    spent = sum(rounds / left**2 if left > 0 else math.inf for left, rounds in lefts)
    whole = 1 / _least_gaussian(target, spare, request.accountant) ** 2
    if spent < whole:
        return whole - spent
    cost = accounts.epsilon_server(lefts, delta=spare, accountant=request.accountant) if spent < math.inf else math.inf
    raise PrivacyError(
        f"epsilon_server {target:g} is out of reach: what is released before round 1 costs {cost:.4g} against the "
        "server; raise the noise of that release, or epsilon_server"
    )


@lru_cache(maxsize=256)
def _least_gaussian(target: float, delta: float, accountant: Accountant) -> float:
    """Return the least noise multiplier of one Gaussian release that costs at most `target`."""

    def cost(noise: float) -> float:
        return accounts.epsilon_server([(noise, 1)], delta=delta, accountant=accountant)

    high = 1.0
    while cost(high) > target:
        high *= 2
        if high > accounts.MAX_NOISE:
            raise PrivacyError(
                f"epsilon_server {target:g} is out of reach: no noise is enough by the {accountant} accountant at "
                f"delta {delta:.3g}; raise it, or use the pld accountant"
            )
    low = high / 2 if high > 1 else accounts.MIN_NOISE
    while high / low - 1 > 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high
