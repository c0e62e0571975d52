"""What a run costs one client in joules, and everybody in hours, device by device, before anybody trains.

A round lasts as long as the slowest of a random cohort, whose rates and speeds are log-normal around the profile's
(`devices.expected`). Set-up, enrolment and what else comes once are counted in joules and not in hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sottovoce.core.streams import Streams
from sottovoce.devices import (
    Clock,
    Device,
    Exchange,
    Expected,
    Interval,
    Joules,
    Population,
    Rules,
    Work,
    expected_round,
    joules,
    profile,
)

__all__ = ["DEFAULT_DEVICES", "JUDGED", "DeviceCost", "Load", "device_cost"]

DEFAULT_DEVICES: Final = (
    *("phone-lte", "phone-5g", "phone-wifi", "pi-wifi"),
    *("wearable-ble", "sensor-nbiot", "hospital-fixed"),
)
JUDGED: Final = "phone-lte"  # limits of joules and hours are for this one, where the file names no device


@dataclass(frozen=True)
class Load:
    """What a run asks of one client: bytes of each phase and GFLOP of a round, and how often."""

    phases: Mapping[str, Exchange]
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


def _interval(value: Interval) -> dict[str, float]:
    return {"low": value.low, "default": value.default, "high": value.high}
