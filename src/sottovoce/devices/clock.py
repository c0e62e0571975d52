"""The simulated clock: how long the phases of a round take on the clients' devices, who is lost on the way, and why.

A phase takes each client one round trip, its bytes both ways and, where a message is made of an update, its training.
The server goes on when all have answered. With a deadline it waits no longer than that, and it waits that long for
clients that fall silent, as it cannot tell them from slow ones; without one it knows at once who is gone. All times are
computed: the machine that simulates has no part in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.devices.energy import Joules
from sottovoce.devices.meters import Meters, moving_seconds
from sottovoce.devices.population import Fleet, Population, uniforms

__all__ = ["TRAINING", "Cause", "Clock", "Gflop", "RoundClock", "RoundTime", "Rules", "online"]

Floats = NDArray[np.float64]
Clients = NDArray[np.int64]
Gflop = Callable[[Clients], Floats]  # of each client's training

TRAINING: Final = ("train", "mask")  # phases whose answer is made from an update
_PHASES: Final = ("train", "enrol", "introduce", "advertise", "share", "mask", "consistency", "unmask")
_ONLINE, _LEAVES, _LINK = 10, 11, 12  # what chance decides, in the path of its key
_PEAK: Final = 2.0  # o'clock: phones are idle and charging at night


class Cause(StrEnum):
    """Why a client is lost to a round."""

    LINK = "link"  # a message never arrived
    DEADLINE = "deadline"  # its answer came too late
    AVAILABILITY = "availability"  # it was not there, or was needed by its owner
    SURPLUS = "surplus"  # the server had enough answers before


@dataclass(frozen=True)
class Rules:
    """What the server waits for, and what can go wrong."""

    deadline: float | None = None  # seconds of a phase
    target: int | None = None  # answers that are enough, where more clients are invited than needed
    failures: bool = True  # links and devices fail as often as their profiles say
    daily: bool = False  # devices are asked whether they are online or not
    round_every: float = 0.0  # seconds from one round's beginning to the next one's, at least
    latency: Mapping[int, tuple[float | None, float | None]] = field(default_factory=dict)  # to and from the server


@dataclass(frozen=True)
class RoundTime:
    """What a round took: seconds, the joules of one client that took part, and who was lost for which cause."""

    seconds: float
    joules: Joules | None
    lost: dict[int, Cause]

    def causes(self) -> dict[str, int]:
        """Count the lost clients by cause."""
        found = [cause.value for cause in self.lost.values()]
        return {cause.value: found.count(cause.value) for cause in Cause if cause.value in found}


def online(p_online: Floats, day_ratio: Floats, hour: float) -> Floats:
    """Return the chance that a device is online at an hour of the day: a wave with the profile's mean and ratio."""
    swing = (day_ratio - 1) / (day_ratio + 1)
    wave: Floats = p_online * (1 + swing * math.cos(2 * math.pi * (hour - _PEAK) / 24))
    return np.clip(wave, 0, 1)


@dataclass(frozen=True)
class Clock:
    """The clock of a run."""

    population: Population
    gflop: Gflop
    answers: Mapping[str, float]  # bytes that a client is expected to send in each phase
    rules: Rules = field(default_factory=Rules)
    period: float = 0.0  # seconds from one round to the next, which tells the hour of the day

    def begin(self, round_: int, clients: list[int]) -> RoundClock:
        """Start a round with these clients, ascending."""
        return RoundClock(self, round_, np.array(clients, np.int64))

    def times(self, fleet: Fleet, phase: str, up: Floats, down: Floats, gflop: Floats) -> Floats:
        """Return how long a phase takes each client: round trip, bytes, training."""
        taken = self._latency(fleet) + moving_seconds(self.population, fleet, up, down)
        return taken + gflop / fleet.gflops if phase in TRAINING else taken

    def link_loss(self, fleet: Fleet) -> Floats:
        """Return the chance that a phase loses a client: one of its two messages never arrives."""
        loss = self.population.column("link", "message_loss", fleet)
        return 1 - (1 - loss) ** 2

    def hour(self, round_: int) -> float:
        """Return the hour of the day at which a round begins; the first one begins at midnight."""
        return (round_ - 1) * self.period / 3600 % 24

    def _latency(self, fleet: Fleet) -> Floats:
        trips = self.population.column("link", "rtt_s", fleet)
        for client, ways in self.rules.latency.items():
            at = fleet.clients == client
            if at.any():
                trips[at] = sum((trips[at] / 2 if way is None else way for way in ways), np.zeros(int(at.sum())))
        return trips


class RoundClock:
    """The clock of one round: `lost` before each phase, `passed` after it, `end` at last."""

    def __init__(self, clock: Clock, round_: int, clients: Clients) -> None:
        self._clock, self._round = clock, round_
        self._fleet = clock.population.fleet(clients)
        self._gflop = clock.gflop(clients)
        self._meters = Meters.empty(clock.population, self._fleet)
        self._now = 0.0
        self._quiet = np.full(len(clients), np.nan)  # when each client's last byte went out
        self._lost: dict[int, Cause] = {}
        self._begun = False

    def lost(self, phase: str, asked: Mapping[int, int]) -> dict[int, Cause]:
        """Return which of the asked clients (with the bytes that each is sent) will not answer in time, and why."""
        clock, rules = self._clock, self._clock.rules
        at, fleet = self._asked(asked)
        if not len(fleet):
            return {}
        causes = np.full(len(fleet), "", dtype="U16")
        if rules.failures:
            self._fail(causes, phase, fleet)
        times = clock.times(fleet, phase, self._answers(phase, fleet), _sizes(asked), self._gflop[at])
        if rules.deadline is not None:
            causes[(causes == "") & (times > rules.deadline)] = Cause.DEADLINE
        if rules.target is not None and phase in TRAINING:
            there = np.flatnonzero(causes == "")
            slowest_last = there[np.argsort(times[there], kind="stable")]
            causes[slowest_last[rules.target :]] = Cause.SURPLUS
        found = {int(fleet.clients[i]): Cause(str(causes[i])) for i in np.flatnonzero(causes)}
        self._lost.update(found)
        return found

    def passed(self, phase: str, asked: Mapping[int, int], came: Mapping[int, int]) -> None:
        """Move the clock past a phase: `asked` are bytes down, `came` bytes up of those whose answers were taken."""
        at, fleet = self._asked(asked)
        if not len(fleet):
            return
        clock, deadline = self._clock, self._clock.rules.deadline
        down = _sizes(asked)
        expected = self._answers(phase, fleet)
        up = np.array([came.get(int(client), size) for client, size in zip(fleet.clients, expected, strict=True)])
        times = clock.times(fleet, phase, up, down, self._gflop[at])
        answered = np.array([int(client) in came for client in fleet.clients])
        away = np.array([self._is_away(int(client), int(client) in came) for client in fleet.clients])
        self._charge(at, phase, up, down, ~away)
        enough = any(self._lost.get(int(client)) is Cause.SURPLUS for client in fleet.clients[~answered])
        if deadline is not None and not answered.all() and not enough:
            duration = deadline
        else:
            duration = float(times[answered].max(initial=0.0))
        self._quiet[at] = self._now + np.minimum(times, duration)
        self._now += duration
        self._begun = True

    def end(self) -> RoundTime:
        """Return what the round took."""
        return RoundTime(self._now, self._meters.mean(), dict(self._lost))

    def _asked(self, asked: Mapping[int, int]) -> tuple[NDArray[np.intp], Fleet]:
        at = np.searchsorted(self._fleet.clients, np.fromiter(asked, np.int64, len(asked)))
        return at, self._fleet[at]

    def _answers(self, phase: str, fleet: Fleet) -> Floats:
        return np.full(len(fleet), float(self._clock.answers.get(phase, 0.0)))

    def _is_away(self, client: int, came: bool) -> bool:
        """Tell whether a client did nothing in a phase: it was not there, or left by the table's own chance."""
        return not came and self._lost.get(client, Cause.AVAILABILITY) is Cause.AVAILABILITY

    def _fail(self, causes: NDArray[np.str_], phase: str, fleet: Fleet) -> None:
        clock, population = self._clock, self._clock.population
        link = population.key(_LINK, self._round, _PHASES.index(phase))
        causes[uniforms(link, fleet.clients) < clock.link_loss(fleet)] = Cause.LINK
        if phase in TRAINING:
            leaves = uniforms(population.key(_LEAVES, self._round), fleet.clients)
            causes[leaves < population.column("availability", "dropout", fleet)] = Cause.AVAILABILITY
        if clock.rules.daily and not self._begun:
            share = population.column("availability", "p_online", fleet)
            ratio = population.column("availability", "day_ratio", fleet)
            there = online(share, ratio, clock.hour(self._round))
            causes[uniforms(population.key(_ONLINE, self._round), fleet.clients) >= there] = Cause.AVAILABILITY

    def _charge(self, at: NDArray[np.intp], phase: str, up: Floats, down: Floats, busy: NDArray[np.bool_]) -> None:
        at, up, down = at[busy], up[busy], down[busy]
        self._meters.talk(at, up, down, self._now - self._quiet[at])
        if phase in TRAINING:
            self._meters.train(at, self._gflop[at])


def _sizes(asked: Mapping[int, int]) -> Floats:
    return np.fromiter(asked.values(), np.float64, len(asked))
