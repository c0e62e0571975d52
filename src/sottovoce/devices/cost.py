"""What a round and a run cost before anybody is drawn: joules of one client, and hours of everybody, device by device.

This is what a plan tells, and what a private run may publish: it follows from the profiles, the configuration and the
world's draws of rates for *all* clients, not from a cohort. A round lasts as long as the slowest of a random cohort,
whose rates and speeds are log-normal around the profile's. A population of more than 20,000 is represented by as many
clients, each of which stands for its share of them. Set-up, enrolment and what else comes once are counted in joules
and not in hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Streams
from sottovoce.core.wire import Traffic
from sottovoce.devices.catalogue import profile
from sottovoce.devices.clock import TRAINING, Clock, Rules
from sottovoce.devices.device import Device
from sottovoce.devices.energy import Estimate, Joules, Meters, Work, joules
from sottovoce.devices.population import Fleet, Population

Floats = NDArray[np.float64]
DEFAULT_DEVICES: Final = (
    *("phone-lte", "phone-5g", "phone-wifi", "pi-wifi"),
    *("wearable-ble", "sensor-nbiot", "hospital-fixed"),
)
JUDGED: Final = "phone-lte"  # limits of joules and hours are for this one, where the file names no device
_MOST: Final = 20_000  # clients that are looked at


class Expected(NamedTuple):
    """What a round takes: seconds until its slowest client, and the joules of a client that takes part."""

    seconds: float
    joules: Joules
    lost: float  # share of a cohort that is lost on the way


def expected_round(clock: Clock, phases: Mapping[str, Traffic], *, clients: int, cohort: float) -> Expected:
    """Return what a round takes if each of the clients is drawn with the same chance, `cohort` of them on average.

    Chances are multiplied as if phases were independent, and as if nobody had been lost in an earlier one. Under
    sampling of a fixed size this is an approximation, too.
    """
    looked_at = np.unique(np.linspace(0, clients - 1, min(clients, _MOST)).astype(np.int64))
    fleet, rate, each = clock.population.fleet(looked_at), min(cohort / clients, 1.0), clients / len(looked_at)
    gflop = clock.gflop(looked_at)
    meters = Meters.empty(clock.population, fleet)
    everyone = np.arange(len(fleet))
    quiet, now, kept = np.full(len(fleet), np.nan), 0.0, np.ones(len(fleet))
    for number, (phase, (up, down)) in enumerate(phases.items()):
        ups, downs = np.full(len(fleet), float(up)), np.full(len(fleet), float(down))
        times = clock.times(fleet, phase, ups, downs, gflop)
        missing = _missing(clock, fleet, phase, times, first=number == 0)
        meters.talk(everyone, fleet, ups, downs, now - quiet)
        if phase in TRAINING:
            meters.train(everyone, fleet, gflop)
        duration = _duration(clock, phase, times, missing, rate, each)
        quiet, now, kept = now + np.minimum(times, duration), now + duration, kept * (1 - missing)
    spent = meters.mean()
    if spent is None:
        raise ValueError("a round without phases costs nothing")
    return Expected(now, spent, float(1 - kept.mean()))


def expected_slowest(times: Floats, missing: Floats, rate: float, each: float, deadline: float | None) -> float:
    """Return the expected duration of a phase: the slowest answer of a random cohort, or the deadline.

    Client i is drawn with chance q, and then missing with chance m_i. Without a deadline the duration is at most t with
    chance prod over t_i > t of (1 - q (1 - m_i)). With one, the server waits to its end as soon as anybody is missing:
    nobody is, and the slowest takes at most t, with chance prod over t_i <= t of (1 - q m_i) times prod over t_i > t of
    (1 - q). Each client looked at stands for `each` of them.
    """
    order = np.argsort(times, kind="stable")
    ascending, lacking = times[order], missing[order]
    if deadline is None:
        slower, faster = (1 - rate * (1 - lacking)) ** each, np.ones(len(order))
    else:
        slower, faster = np.full(len(order), (1 - rate) ** each), (1 - rate * lacking) ** each
    before = np.concatenate([[1.0], np.cumprod(faster)])  # of the i fastest
    after = np.concatenate([np.cumprod(slower[::-1])[::-1], [1.0]])  # of all others
    chance = before * after  # that nobody beyond the i fastest is there
    slowest = float(np.sum(ascending * np.diff(chance)))
    return slowest if deadline is None else slowest + deadline * float(1 - chance[-1])


def _duration(clock: Clock, phase: str, times: Floats, missing: Floats, rate: float, each: float) -> float:
    rules = clock.rules
    there = float(np.sum(1 - missing)) * rate * each
    if rules.target is not None and phase in TRAINING and there > rules.target:
        order = np.argsort(times, kind="stable")
        came = np.cumsum((1 - missing[order]) * rate * each)
        return float(times[order][np.searchsorted(came, rules.target)])
    return expected_slowest(times, missing, rate, each, rules.deadline)


def _missing(clock: Clock, fleet: Fleet, phase: str, times: Floats, *, first: bool) -> Floats:
    """Return the chance that a drawn client does not answer a phase in time."""
    rules, column = clock.rules, clock.population.column
    stays = np.ones(len(fleet))
    if rules.failures:
        stays *= 1 - clock.link_loss(fleet)
        if phase in TRAINING:
            stays *= 1 - column("availability", "dropout", fleet)
        if rules.daily and first:
            stays *= column("availability", "p_online", fleet)
    if rules.deadline is not None:
        stays[times > rules.deadline] = 0
    return 1 - stays


@dataclass(frozen=True)
class Load:
    """What a run asks of one client: bytes of each phase and GFLOP of a round, and how often."""

    phases: Mapping[str, Traffic]
    gflop: float
    memory_mb: float
    participations: float  # expected, over the run
    rounds: int
    clients: int
    cohort: float
    once_up: float = 0.0  # bytes: enrolment, a vote, a warm start
    once_down: float = 0.0  # bytes: those, and the set-up

    @property
    def up(self) -> float:
        """Return the bytes that a client sends in a round."""
        return sum(exchange.up for exchange in self.phases.values())

    @property
    def down(self) -> float:
        """Return the bytes that a client receives in a round."""
        return sum(exchange.down for exchange in self.phases.values())

    @property
    def bytes_total(self) -> float:
        """Return the bytes of one client over the run, both ways."""
        return self.once_up + self.once_down + self.participations * (self.up + self.down)


@dataclass(frozen=True)
class DeviceCost:
    """What a run costs on one device."""

    device: Device
    expected: Expected  # of a round
    run: Joules  # of one client, over the run, as often as it takes part
    rounds: int
    memory_mb: float

    @property
    def fits(self) -> bool:
        """Tell whether the device can hold model and gradient."""
        return self.device.fits(self.memory_mb)

    @property
    def hours(self) -> float:
        """Return the simulated hours of the run."""
        return self.rounds * self.expected.seconds / 3600

    def describe(self) -> dict[str, Any]:
        """Return what `sottovoce plan` prints."""
        each = self.expected.joules
        return {
            "name": self.device.name,
            "year": self.device.year,
            "fits": self.fits,
            "memory_mb": self.memory_mb,
            "memory_there_mb": self.device.compute.memory_mb,
            "joules_per_client_run": _interval(self.run.total),
            "joules_per_client": {
                **_interval(each.total),
                "radio_bytes": _interval(each.radio_bytes),
                "radio_sessions": _interval(each.radio_sessions),
                "training": _interval(each.training),
            },
            "seconds_simulated_per_round": self.expected.seconds,
            "hours": self.hours,
        }


def device_cost(name: str, load: Load) -> DeviceCost:
    """Return what a load costs on the device of a profile, with rates as they are drawn, and nobody lost."""
    device = profile(name)
    population = Population.of(name, _world())
    clock = Clock(population, lambda clients: np.full(len(clients), load.gflop), {}, Rules(failures=False))
    expected = expected_round(clock, load.phases, clients=load.clients, cohort=load.cohort)
    once = joules(device, Work(load.once_up, load.once_down))
    return DeviceCost(device, expected, expected.joules * load.participations + once, load.rounds, load.memory_mb)


@lru_cache(maxsize=1)
def _world() -> Streams:
    """Return the streams of clients that nobody has: rates of a plan do not depend on the file's seed."""
    return Streams(0)


def _interval(value: Estimate) -> dict[str, float]:
    return {"low": value.low, "default": value.default, "high": value.high}
