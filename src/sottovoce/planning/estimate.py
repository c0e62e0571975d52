"""Sketch the privacy of a pace: the noise that its targets need, to a percent or two, in milliseconds.

An exact plan of a sampled cohort takes up to a second, and a search looks at dozens. What is sketched is never shown:
whoever is shown was solved exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.protection import Protection, privacy_request
from sottovoce.core.errors import PrivacyError
from sottovoce.devices.cost import Load
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.client import setup_message
from sottovoce.models import training_gflop, training_memory_mb
from sottovoce.planning.candidates import Constraint, Pace, Sender, with_pace
from sottovoce.planning.compare import outline_of
from sottovoce.planning.signal_to_noise import loudest
from sottovoce.privacy.accounting.accountant import rough_noise
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.charges import (
    COARSEST_ROUNDING,
    accounted_delta,
    against,
    events_of,
    participations,
    shares_of,
)
from sottovoce.privacy.plan.cohort import Shares
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.server import expected_contributions, noise_for_server
from sottovoce.privacy.plan.solve import request_grid
from sottovoce.runs.devices import judged_costs, traffic_limits

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


ENOUGH: Final = 10.0  # signal-to-noise ratio from which noise hardly costs accuracy any more (docs/planning.md)
LOUDER: Final = tuple(2 ** (step / 2) for step in range(1, 11))  # more noise makes fewer bits, to 32 times as much


@dataclass(frozen=True, eq=False)
class Paced:
    """The parts of an experiment at one pace, and the noise that its limits need there; None: it is not private."""

    pace: Pace
    parts: Parts
    sketch: Sketch | None

    @property
    def participations(self) -> float:
        """Return the rounds that a client is expected to contribute to."""
        draws = self.pace.rounds * self.parts.cohort.expected / self.parts.cohort.clients
        return draws if self.sketch is None else self.sketch.contributions


@dataclass(frozen=True, eq=False)
class Offer:
    """A scheme at a pace, with the figures that limits are compared with."""

    sender: Sender
    paced: Paced
    bits: int
    figures: dict[str, float]

    @property
    def signal(self) -> float:
        """Return the largest signal-to-noise ratio that the run can have; infinite without noise."""
        known = self.paced.sketch
        return math.inf if known is None else loudest(known.per_draw(known.noise), self.sender.bound.length)

    @property
    def merits(self) -> tuple[float, ...]:
        """Return what is better the larger it is: signal as far as it matters, weights that move, rounds, less cost."""
        costs = (self.figures[name] for name in ("bytes", "joules", "hours"))
        return (min(self.signal, ENOUGH), self.sender.share, self.figures["rounds"], *(-cost for cost in costs))


def paced(parts: Parts, pace: Pace, constraints: tuple[Constraint, ...], spent: tuple[Event, ...] = ()) -> Paced:
    """Return the parts at a pace with about the least noise that keeps all limits on epsilon, or say why there is none.

    `spent` are the releases before round 1, as the file's own pace has them.
    """
    there = with_pace(parts, pace)
    table = there.experiment.privacy
    if table is None:
        return Paced(pace, there, None)
    rate = float(pace.sample_rate)
    before = tuple(event if event.sample_rate == 1 else replace(event, sample_rate=rate) for event in spent)
    norm = 0.0 if parts.scheme.form == "signs" else 1.0
    request = privacy_request(there, table, clip_norm=norm, spent=before)
    member = next((c.limit for c in constraints if c.name == "epsilon_member"), math.inf)
    return Paced(pace, there, sketch(request, member))


def price(sender: Sender, at: Paced) -> Offer:
    """Return what a scheme costs at a pace."""
    protection = Protection(replace(at.parts, experiment=sender.experiment, scheme=sender.scheme))
    bits, length = _bits(sender, at, protection)
    parts, costs = protection.parts, _costs(sender, at, protection, bits, length)
    load = Load(
        phases=costs.phases,
        gflop=training_gflop(parts.network, parts.training(), parts.mean_size),
        memory_mb=training_memory_mb(parts.network),
        participations=at.participations,
        rounds=at.pace.rounds,
        clients=parts.cohort.clients,
        cohort=parts.cohort.expected,
        once_up=costs.once.up,
        once_down=costs.once.down + len(setup_message(sender.bound, parts.seeds.public, parts.network.start_payload())),
    )
    judged = judged_costs(parts, costs, load)
    figures = {
        **traffic_limits(load, judged.hours),
        "joules": judged.joules,
        "hours": judged.hours,
        "rounds": float(at.pace.rounds),
    }
    return Offer(sender, at, bits, figures)


def _bits(sender: Sender, at: Paced, protection: Protection) -> tuple[int, int]:
    """Return the bits of a word and how many words there are; floats in simulation have 32."""
    known, table, bound = at.sketch, sender.experiment.privacy, sender.bound
    if known is None or table is None:
        return protection.coding(bound, None).bits, bound.length
    signs = bound.form == "signs"
    request = replace(
        known.request,
        length=bound.length,
        form=bound.form,
        clip_norm=0.0 if signs else 1.0,
        clipping="fixed" if signs else table.clipping,
        grid=table.grid,
        bits=table.bits,
    )
    epsilon = request.epsilon or request.epsilon_server or 1.0
    grid = request_grid(request, known.shares, known.noise, request.rounds, epsilon, known.most)
    return 32 if grid is None else grid.bits, bound.length + (request.clipping == "adaptive")


def _costs(sender: Sender, at: Paced, protection: Protection, bits: int, length: int) -> Costs:
    """Return what the file's protocol costs for messages of so many words."""
    known, parts = at.sketch, protection.parts
    fewest = protection.fewest(None) if known is None else known.shares.survivors
    costs = parts.experiment.protocol.costs(outline_of(parts, fewest, length, bits), sender.down)
    return replace(costs, cohort=parts.cohort.expected)
