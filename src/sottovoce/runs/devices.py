"""Simulated time and energy of a run: the clock for its devices, and what may be told of them.

A private run publishes expected values, equal in every round. What a round really took follows from who was drawn,
and is for the operator alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.stages import ServerSide
from sottovoce.config.devices import read_latency
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.wire import Traffic
from sottovoce.devices import (
    Clock,
    Estimate,
    Expected,
    Joules,
    Population,
    RoundTime,
    Rules,
    Work,
    expected_round,
    joules,
)
from sottovoce.devices.clock import Gflop
from sottovoce.devices.cost import DEFAULT_DEVICES, JUDGED, DeviceCost, Load, device_cost
from sottovoce.devices.remarks import duration
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.engine import Engine
from sottovoce.federation.round import Server
from sottovoce.federation.wrappers.timed import Timed
from sottovoce.models import training_gflop, training_memory_mb
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.records import Record, RoundEntry


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


@dataclass(frozen=True)
class DeviceTimes:
    """Instrument that tells what a round took on the clients' devices."""

    timing: Timing
    engine: Timed

    def after(self, entry: RoundEntry) -> None:
        """Tell simulated seconds and joules, and who dropped out."""
        public, secret = self.timing.tell(self.engine.told(entry.round))
        entry.public |= public
        entry.secret |= secret


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
    phases = costs.phases
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
    return Joules(*(Estimate(**told[name]) for name in ("radio_bytes", "radio_sessions", "training")))


def _interval(interval: Estimate) -> dict[str, float]:
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


def _check_deadline(clock: Clock, phases: dict[str, Traffic]) -> None:
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


def load_of(ready: ServerSide, costs: Costs, before: Sequence[Costs | Mapping[str, Any] | None] = ()) -> Load:
    """Return what the run asks of one client; `before` are a vote and a warm start, if there are such."""
    parts = ready.protection.parts
    rounds = parts.experiment.experiment.rounds if ready.plan is None else ready.plan.rounds
    up, down = float(costs.once.up), float(costs.once.down + len(ready.setup))
    for cost in before:
        if isinstance(cost, Costs):  # a vote asks a cohort
            up += cost.client.up * float(parts.cohort.sample_rate)
            down += cost.client.down * float(parts.cohort.sample_rate)
        elif cost is not None:  # a warm start asks everyone
            up, down = up + cost["bytes_up_per_client"], down + cost["bytes_down_per_client"]
    return Load(
        phases=costs.phases,
        gflop=0.0 if parts.scheme.once else training_gflop(parts.network, parts.training(), parts.mean_size),
        memory_mb=training_memory_mb(parts.network),
        participations=participations(ready.plan, rounds * parts.cohort.expected / parts.cohort.clients),
        rounds=rounds,
        clients=parts.cohort.clients,
        cohort=parts.cohort.expected,
        once_up=up,
        once_down=down,
    )


def participations(plan: PrivacyPlan | None, draws: float) -> float:
    """Return the rounds that a client is expected to contribute to: its draws, less those that the cap turns away."""
    return draws if plan is None else draws * (1 - plan.draws_lost)


def asked_devices(experiment: Experiment) -> tuple[str, ...]:
    """Return the profiles that the file names."""
    asked = experiment.devices.profile
    return () if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)


def judged_devices(experiment: Experiment) -> tuple[str, ...]:
    """Return the profiles that limits are for: those of the file, else one usual phone."""
    return asked_devices(experiment) or (JUDGED,)


def device_costs(experiment: Experiment, load: Load) -> list[DeviceCost]:
    """Return the costs on the file's devices, or on some usual ones side by side.

    A device of the file that cannot hold the model is refused; a usual one is shown, and said not to fit.
    """
    asked = asked_devices(experiment)
    costs = [device_cost(name, load) for name in asked or DEFAULT_DEVICES]
    for cost in costs if asked else ():
        cost.device.require_fit(load.memory_mb)
    return costs


def judged_costs(parts: Parts, costs: Costs, load: Load) -> Judged:
    """Return joules and seconds of the file's devices, as a run of it would tell; else of one usual phone.

    A mix is judged as it is mixed: by the mean of its joules, and by the slowest of a cohort of all of them.
    """
    timing = make_timing(parts, costs)
    if timing is not None:
        run = timing.expected.joules * load.participations + timing.before(load.once_up, load.once_down)
        seconds = load.rounds * max(timing.expected.seconds, timing.clock.rules.round_every)
        told = {
            "joules_per_client": describe_joules(timing.expected.joules),
            "joules_per_client_run": describe_joules(run),
            "seconds_simulated": seconds,
        }
        return Judged(told, run.total.high, seconds / 3600)
    usual = device_cost(JUDGED, load)
    nothing: dict[str, Any] = dict.fromkeys(("joules_per_client", "joules_per_client_run", "seconds_simulated"))
    return Judged(nothing, usual.run.total.high, usual.hours)


class Judged(NamedTuple):
    """What limits are compared with: joules at the high end of their range; and what a plan tells of the devices."""

    told: dict[str, Any]
    joules: float
    hours: float


def limits_of(ready: ServerSide, load: Load, judged: Judged) -> dict[str, float | None]:
    """Return the number that each limit of `--solve` is compared with; null where there is no bound."""
    told: Mapping[str, Any] = {} if ready.plan is None else ready.plan.describe()
    return {
        "epsilon": told.get("epsilon"),
        "epsilon_server": told.get("epsilon_server"),
        "epsilon_member": told.get("epsilon_member"),
        **traffic_limits(load, judged.hours),
        "joules": judged.joules,
        "hours": judged.hours,
        "rounds": load.rounds,
    }


_MONTH: Final = 30 * 24.0  # hours


def traffic_limits(load: Load, hours: float) -> dict[str, float]:
    """Return the bytes of one client that limits are compared with: of a round, of the run, and of a month of it."""
    run = load.once_up + load.participations * load.up
    month = run * min(1.0, _MONTH / hours) if hours else run
    return {"up": load.up, "up_run": run, "up_month": month, "down": load.down, "bytes": load.bytes_total}
