"""Price a scheme at a pace: the noise of the pace is sketched once, and each scheme then needs its grid and its sizes.

Noise and epsilon do not depend on the message's length but through the grid's rounding, by less than a thousandth. What
is compared here is settled anew, exactly and as a whole, before it is printed (`solve`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from sottovoce.core import wire
from sottovoce.devices import Exchange
from sottovoce.experiment.candidates import Pace, Sender, with_pace
from sottovoce.experiment.constraints import Constraint
from sottovoce.experiment.device_costs import Load
from sottovoce.experiment.loads import judged_costs
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection, privacy_request
from sottovoce.experiment.real_costs import ballot_bytes, outline_of
from sottovoce.experiment.signal import loudest
from sottovoce.experiment.sketch import Sketch, sketch
from sottovoce.federation.client import setup_message
from sottovoce.federation.costs import Costs
from sottovoce.models import training_gflop, training_memory_mb
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.solve import request_grid
from sottovoce.secagg.sizes import Sizes, announcement_size, enrolment_sizes, round_sizes

__all__ = ["ENOUGH", "LOUDER", "Offer", "Paced", "paced", "price"]

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
    phases, enrolment = _sizes(sender, at, protection, bits, length)
    parts, costs = protection.parts, Costs(at.parts.cohort.expected, phases, enrolment)
    load = Load(
        phases={name: Exchange(*sizes) for name, sizes in phases.items()},
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
        "up": load.up,
        "down": load.down,
        "bytes": load.bytes_total,
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


def _sizes(
    sender: Sender, at: Paced, protection: Protection, bits: int, length: int
) -> tuple[dict[str, Sizes], dict[str, Sizes]]:
    """Return what one client sends and receives in each phase of a round, and once to enrol."""
    known = at.sketch
    if sender.experiment.counts_ballots:
        return {"train": Sizes(ballot_bytes(length), sender.down)}, {}
    if sender.experiment.secure != "real":
        floats = bits == 32 if known is None else known.request.mechanism == "gaussian"
        return {"train": Sizes(wire.frame_size(length, None if floats else bits), sender.down)}, {}
    fewest = protection.fewest(None) if known is None else known.shares.survivors
    outline = outline_of(protection.parts, fewest, length, bits)
    announced = announcement_size(len(outline.clients))
    if outline.key_life == "round":
        return round_sizes(outline, sender.down + announced), {}
    return round_sizes(outline, sender.down), enrolment_sizes(outline, announced)
