"""Simulated time and energy of a run: the clock for its devices, and what may be told of them.

A private run publishes expected values, equal in every round. What a round really took follows from who was drawn,
and is for the operator alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.devices import (
    Clock,
    Exchange,
    Expected,
    Interval,
    Joules,
    Population,
    RoundTime,
    Rules,
    Work,
    expected_round,
    joules,
)
from sottovoce.devices.clock import Gflop
from sottovoce.devices.remarks import duration
from sottovoce.experiment.device_table import read_latency
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.records import Record
from sottovoce.federation.costs import Costs
from sottovoce.federation.engine import Engine
from sottovoce.federation.round import Server
from sottovoce.federation.timed import Timed
from sottovoce.models import training_gflop, training_memory_mb

__all__ = ["Timing", "check_memory", "describe_joules", "invite", "make_timing"]


@dataclass(frozen=True)
class Timing:
    """The clock of a run, and what a round is expected to take."""

    clock: Clock
    expected: Expected
    private: bool

    def around(self, engine: Engine) -> Timed:
        """Return the engine with this clock."""
        return Timed(engine, self.clock)

    def tell(self, taken: RoundTime) -> tuple[Record, Record]:
        """Return what a round adds to its public record, and to the operator's: the same if nothing is secret."""
        real: Record = {
            "seconds_simulated": _digits(taken.seconds),
            "joules_per_client": taken.joules and describe_joules(taken.joules),
            "dropouts": taken.causes(),
        }
        return (self.promised() if self.private else real), real

    def before(self, up: float, down: float) -> Joules:
        """Return what the set-up costs one client, in the mean over a mix of devices."""
        each = [joules(device, Work(up, down)) * share for device, share in self.clock.population.pairs]
        return sum(each[1:], each[0])

    def promised(self) -> Record:
        """Return what every round of a private run publishes."""
        return {
            "seconds_simulated": _digits(self.expected.seconds),
            "joules_per_client": describe_joules(self.expected.joules),
        }

    def summarise(self, records: list[Record], participations: float, once: tuple[float, float]) -> Record:
        """Return what the summary tells of a whole run; `once` are the bytes up and down before the first round.

        A client takes part as often as expected, `participations` times in all rounds. Rounds begin `round_every`
        seconds apart, or later.
        """
        spent = [_read_joules(found) for record in records if (found := record["joules_per_client"]) is not None]
        mean = sum(spent[1:], spent[0]) * (1 / len(spent)) if spent else None
        apart = self.clock.rules.round_every
        told: Record = {
            "devices": {device.name: share for device, share in self.clock.population.pairs},
            "seconds_simulated": _digits(sum(max(record["seconds_simulated"], apart) for record in records)),
            "joules_per_client": mean and describe_joules(mean),
            "joules_per_client_run": mean and describe_joules(mean * participations + self.before(*once)),
        }
        if not self.private:
            causes = [record["dropouts"] for record in records]
            names = sorted({name for each in causes for name in each})
            told["dropouts"] = {name: sum(each.get(name, 0) for each in causes) for name in names}
        return told


def make_timing(parts: Parts, costs: Costs) -> Timing | None:
    """Return the clock of a run and what to expect of it; None without a profile.

    A model that does not fit a device, and messages that cannot be sent before the deadline, are refused.
    """
    table = parts.experiment.devices
    if table.profile is None:
        return None
    check_memory(parts)
    population = Population.of(table.profile, parts.seeds.world, drawn=table.rates == "drawn")
    rules = Rules(
        deadline=table.deadline,
        target=round(parts.cohort.expected) if table.over_select > 1 else None,
        failures=table.failures,
        daily=table.availability == "daily",
        round_every=table.round_every,
        latency=read_latency(table),
    )
    private = parts.experiment.privacy is not None
    answers = {phase: sizes.up for phase, sizes in costs.phases.items()}
    public = Clock(population, _public_gflop(parts) if private else _gflop(parts), answers, rules)
    phases = {phase: Exchange(*sizes) for phase, sizes in costs.phases.items()}
    _check_deadline(public, phases)
    invited = parts.cohort.expected * table.over_select
    expected = expected_round(public, phases, clients=parts.cohort.clients, cohort=invited)
    period = max(table.round_every, expected.seconds)
    clock = replace(public, period=period, clients=parts.cohort.clients)
    return Timing(clock, expected, private)


def check_memory(parts: Parts) -> None:
    """Raise if the model cannot be trained in the memory of a device that a client may have."""
    profile = parts.experiment.devices.profile
    if profile is not None:
        needed = training_memory_mb(parts.network)
        for device in Population.of(profile, parts.seeds.world).devices:
            device.require_fit(needed)


def invite(server: Server, over_select: float) -> Server:
    """Return a server that draws more clients than it needs; sums are divided by those it needs."""
    if over_select == 1:
        return server
    cohort = server.cohort
    rate = cohort.sample_rate * Fraction(over_select).limit_denominator(10**6)
    return replace(server, invited=replace(cohort, sample_rate=rate))


def describe_joules(spent: Joules) -> Record:
    """Return joules as plain numbers: the total, and its parts."""
    parts = {name: getattr(spent, name) for name in ("radio_bytes", "radio_sessions", "training")}
    return {**_interval(spent.total), **{name: _interval(part) for name, part in parts.items()}}


def _read_joules(told: Record) -> Joules:
    return Joules(*(Interval(**told[name]) for name in ("radio_bytes", "radio_sessions", "training")))


def _interval(interval: Interval) -> dict[str, float]:
    return {name: _digits(getattr(interval, name)) for name in ("low", "default", "high")}


def _digits(value: float) -> float:
    return float(f"{value:.6g}")  # more would be noise of the arithmetic; two are meant


def _gflop(parts: Parts) -> Gflop:
    """Return the work of each client; its records count as far as a batch takes them."""
    owners, each = parts.partition, _record_gflop(parts)
    trained = parts.mean_size / owners.mean_size  # after balancing and keeping some out, on average
    most = parts.training().batch_size or np.inf

    def gflop(clients: NDArray[np.int64]) -> NDArray[np.float64]:
        sizes = np.array([owners.size(int(client)) for client in clients], np.float64) * trained
        return each * np.minimum(np.maximum(sizes, 1), most)

    return gflop


def _public_gflop(parts: Parts) -> Gflop:
    """Return the work of a client with a full batch; how many records each client has is not told by a private run.

    Where a batch is all that a client has, their mean number is taken as far as it is public.
    """
    work = _record_gflop(parts) * (parts.training().batch_size or parts.public_size)
    return lambda clients: np.full(len(clients), work)


def _record_gflop(parts: Parts) -> float:
    """Return the work of all local steps for each record of a batch."""
    return training_gflop(parts.network, replace(parts.training(), batch_size=1), 1)


def _check_deadline(clock: Clock, phases: dict[str, Exchange]) -> None:
    """Raise if a kind of device could never answer before the deadline."""
    deadline, population = clock.rules.deadline, clock.population
    if deadline is None:
        return
    for phase, (up, down) in phases.items():
        looked_at = population.fleet(np.arange(1000))
        gflop = np.full(len(looked_at), float(clock.gflop(np.arange(1))[0]))
        times = clock.times(looked_at, phase, np.full(1000, float(up)), np.full(1000, float(down)), gflop)
        for kind, device in enumerate(population.devices):
            mine = times[looked_at.kinds == kind]
            if not len(mine) or mine.min() <= deadline:
                continue
            frame = device.link.frame
            why = f" at the {frame.duty_cycle:.0%} duty cycle" if frame is not None else ""
            raise InputError(
                f"[devices] deadline is {deadline:g} s, but phase {phase} takes {device.name} at least "
                f"{duration(float(mine.min()))}{why} ({up:g} bytes up, {down:g} down); raise it, or send less"
            )
