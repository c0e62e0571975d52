"""Sketch the privacy of a pace: the noise that its targets need, to a percent or two, in milliseconds.

An exact plan of a sampled cohort takes up to a second, and a search looks at dozens. What is sketched is never shown:
whoever is shown was solved exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.accounting.accountant import rough_noise
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.server import expected_contributions, noise_for_server
from sottovoce.privacy.plan.shares import Shares
from sottovoce.privacy.plan.solver import (
    COARSEST_ROUNDING,
    accounted_delta,
    against,
    events_of,
    participations,
    shares_of,
)

__all__ = ["CAPS", "Sketch", "sketch"]

CAPS: Final = 16  # that are compared, at most


@dataclass(frozen=True)
class Sketch:
    """About what a privacy plan would be."""

    request: PrivacyRequest
    shares: Shares
    noise: float
    most: int  # participations of a client
    for_epsilon: float | None = None  # the noise that each target needs by itself
    for_server: float | None = None
    forced: bool = False  # more noise than the targets need, because of another limit

    @property
    def contributions(self) -> float:
        """Return the rounds that a client is expected to contribute to."""
        return expected_contributions(self.request.sample_rate, self.request.rounds, self.most)

    def per_draw(self, noise: float) -> float:
        """Return a noise of all rounds together for each contribution, in clip norms."""
        return noise * math.sqrt(self.request.rounds) / (self.request.clients * self.contributions)

    def louder(self, noise: float) -> Sketch:
        """Return the same with more noise."""
        return replace(self, noise=noise, forced=True)


def sketch(request: PrivacyRequest, member: float = math.inf) -> Sketch:
    """Return about the plan of a request, with epsilon against a member of the cohort at most `member`.

    Raise where no noise keeps a target. A given noise multiplier is taken as it is.
    """
    shares = shares_of(request)
    usual = participations(request, request.rounds, request.epsilon or request.epsilon_server or 0.0)
    if request.noise_multiplier is not None:
        return _for_member(Sketch(request, shares, request.noise_multiplier, usual), member)
    outsiders = None
    if request.epsilon is not None:
        delta = accounted_delta(request)
        outsiders = rough_noise(
            request.epsilon, lambda z: events_of(request, shares, z, request.rounds), delta=delta, within=1e-4
        )
    caps = np.unique(np.rint(np.geomspace(1, usual, CAPS))).astype(int).tolist() if _free(request) else [usual]
    found: Sketch | None = None
    reason: PrivacyError | None = None
    for most in caps:
        try:
            capped = _capped(request, most, outsiders)
        except PrivacyError as error:  # with so low a cap the last cohorts are too small
            reason = error
            continue
        if found is None or capped.per_draw(capped.noise) < found.per_draw(found.noise):
            found = capped
    if found is None:
        raise reason or PrivacyError("no cap on participations keeps the limits")
    return _for_member(found, member)


def _free(request: PrivacyRequest) -> bool:
    """Tell whether the cap on participations is to be chosen, as `privacy.plan.server.with_cap` does."""
    given = request.max_participations is not None or request.epsilon_server is None
    return not given and request.sampling == "poisson" and request.sample_rate < 1


def _capped(request: PrivacyRequest, most: int, outsiders: float | None) -> Sketch:
    capped = replace(request, max_participations=most) if _free(request) else request
    shares = shares_of(capped)
    server = noise_for_server(capped, shares, rounding=COARSEST_ROUNDING)
    return Sketch(capped, shares, max(outsiders or 0.0, server or 0.0), most, outsiders, server)


def _for_member(found: Sketch, limit: float) -> Sketch:
    """Return a sketch with the noise at which a client of the cohort learns at most `limit`, on any grid."""
    request, shares = found.request, found.shares

    def cost(noise: float) -> float:
        events = events_of(request, shares, noise, request.rounds, rounding=COARSEST_ROUNDING)
        return against(request, events, most=found.most, part=shares.member_part)

    goal = limit * (1 - 1e-3)  # a hair less, for the lattice
    if math.isinf(limit) or cost(found.noise) <= goal:
        return found
    low, high = found.noise, 2 * found.noise
    while cost(high) > goal:
        low, high = high, 2 * high
        if high > 1e5:
            raise PrivacyError(f"epsilon_member {limit:g} is out of reach at any noise; raise it")
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > goal else (low, middle)
    return found.louder(high)
