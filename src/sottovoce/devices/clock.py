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
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import in_range, one_of
from sottovoce.devices.energy import Joules, Meters, moving_seconds
from sottovoce.devices.population import Fleet, Population, uniforms

Floats = NDArray[np.float64]
Clients = NDArray[np.int64]
Gflop = Callable[[Clients], Floats]  # of each client's training

TRAINING: Final = ("train", "mask")  # phases whose answer is made from an update
_PHASES: Final = ("train", "enrol", "introduce", "advertise", "share", "mask", "consistency", "unmask")
_ONLINE, _LEAVES, _LINK = 10, 11, 12  # what chance decides, in the path of its key
_LOOKED_UP: Final = 100_000  # clients whose devices are kept in memory: 4 MB
_PEAK: Final = 2.0  # o'clock: phones are idle and charging at night


class Cause(StrEnum):
    """Why a client is lost to a round."""

    LINK = "link"  # a message never arrived
    DEADLINE = "deadline"  # its answer came too late
    AVAILABILITY = "availability"  # it was not there, or was needed by its owner
    SURPLUS = "surplus"  # the server had enough answers before


_CAUSES: Final = tuple(Cause)
_THERE: Final = -1
_LINK_LOST, _DEADLINE, _AWAY, _SURPLUS = range(len(_CAUSES))


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
    answers: Mapping[str, float]  # bytes that a client is expected to send in each phase of a round
    rules: Rules = field(default_factory=Rules)
    period: float = 0.0  # seconds from one round to the next, which tells the hour of the day
    clients: int = 0  # of the run, if they are to be looked up; 0: each round works out those that it asks

    def begin(self, round_: int, clients: list[int]) -> RoundClock:
        """Start a round with these clients, ascending."""
        return RoundClock(self, round_, np.array(clients, np.int64))

    def asked(self, clients: Clients) -> tuple[Fleet, Floats]:
        """Return the devices of some clients, and the work of each."""
        if self._everyone is None:
            return self.population.fleet(clients), self.gflop(clients)
        fleet, gflop = self._everyone
        return fleet[clients], gflop[clients]

    @cached_property
    def _everyone(self) -> tuple[Fleet, Floats] | None:
        if not 0 < self.clients <= _LOOKED_UP:
            return None
        everyone = np.arange(self.clients)
        return self.population.fleet(everyone), self.gflop(everyone)

    def times(self, fleet: Fleet, phase: str, up: Floats, down: Floats, gflop: Floats) -> Floats:
        """Return how long a phase takes each client: round trip, bytes, training."""
        return self.busy(fleet, phase, up, down, gflop) + self.latency(fleet)

    def busy(self, fleet: Fleet, phase: str, up: Floats, down: Floats, gflop: Floats) -> Floats:
        """Return how long a phase takes each client without the round trip."""
        taken = moving_seconds(self.population, fleet, up, down)
        return taken + gflop / fleet.gflops if phase in TRAINING else taken

    def link_loss(self, fleet: Fleet) -> Floats:
        """Return the chance that a phase loses a client: one of its two messages never arrives."""
        loss = self.population.column("link", "message_loss", fleet)
        return 1 - (1 - loss) ** 2

    def hour(self, round_: int) -> float:
        """Return the hour of the day at which a round begins; the first one begins at midnight."""
        return (round_ - 1) * self.period / 3600 % 24

    def latency(self, fleet: Fleet) -> Floats:
        """Return the round-trip time of each client."""
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
        self._fleet, self._gflop = clock.asked(clients)
        self._meters = Meters.empty(clock.population, self._fleet)
        self._now = 0.0
        self._quiet = np.full(len(clients), np.nan)  # when each client's last byte went out
        self._lost: dict[int, Cause] = {}
        self._begun = False
        self._trips = clock.latency(self._fleet)

    def lost(self, phase: str, asked: Mapping[int, int]) -> dict[int, Cause]:
        """Return which of the asked clients (with the bytes that each is sent) will not answer in time, and why."""
        rules = self._clock.rules
        at, fleet = self._asked(asked)
        codes = np.full(len(fleet), _THERE)  # places in `Cause`
        if rules.failures:
            self._fail(codes, phase, at, fleet)
        if rules.deadline is not None or rules.target is not None:
            times = self._times(phase, at, fleet, self._answers(phase, fleet), _sizes(asked))
            if rules.deadline is not None:
                codes[(codes == _THERE) & (times > rules.deadline)] = _DEADLINE
            if rules.target is not None and phase in TRAINING:
                there = np.flatnonzero(codes == _THERE)
                slowest_last = there[np.argsort(times[there], kind="stable")]
                codes[slowest_last[rules.target :]] = _SURPLUS
        found = {int(fleet.clients[i]): _CAUSES[codes[i]] for i in np.flatnonzero(codes != _THERE)}
        self._lost.update(found)
        return found

    def passed(self, phase: str, asked: Mapping[int, int], came: Mapping[int, int]) -> None:
        """Move the clock past a phase: `asked` are bytes down, `came` bytes up of those whose answers were taken."""
        if not asked:
            return
        at, fleet = self._asked(asked)
        deadline = self._clock.rules.deadline
        up = np.fromiter((came.get(client, -1) for client in asked), np.float64, len(asked))
        answered = up >= 0
        missing = [self._lost.get(client) for client in fleet.clients[~answered].tolist()]
        up = np.where(answered, up, self._answers(phase, fleet))
        down = _sizes(asked)
        times = self._times(phase, at, fleet, up, down)
        if missing and deadline is not None and Cause.SURPLUS not in missing:
            duration = deadline
        else:
            duration = float(times[answered].max(initial=0.0))
        busy = answered.copy()  # who was cut off or too slow worked all the same; who left by chance did not
        busy[~answered] = [cause not in (None, Cause.AVAILABILITY) for cause in missing]
        if busy.all():
            self._charge(phase, at, fleet, up, down)
        else:
            self._charge(phase, at[busy], fleet[busy], up[busy], down[busy])
        self._quiet[at] = self._now + np.minimum(times, duration)
        self._now += duration
        self._begun = True

    def end(self) -> RoundTime:
        """Return what the round took."""
        return RoundTime(self._now, self._meters.mean(), dict(self._lost))

    def _asked(self, asked: Mapping[int, int]) -> tuple[NDArray[np.intp], Fleet]:
        clients = np.fromiter(asked, np.int64, len(asked))
        if np.array_equal(clients, self._fleet.clients):  # nobody was lost yet
            return np.arange(len(clients)), self._fleet
        at = np.searchsorted(self._fleet.clients, clients)
        return at, self._fleet[at]

    def _answers(self, phase: str, fleet: Fleet) -> Floats:
        return np.full(len(fleet), float(self._clock.answers.get(phase, 0.0)))

    def _times(self, phase: str, at: NDArray[np.intp], fleet: Fleet, up: Floats, down: Floats) -> Floats:
        return self._clock.busy(fleet, phase, up, down, self._gflop[at]) + self._trips[at]

    @cached_property
    def _chances(self) -> dict[str, Floats]:
        """Return what chance has for each client in each phase, and in the round as a whole; drawn at once."""
        key, phases = self._clock.population.key, (*self._clock.answers, "leaves", "online")
        keys = [key(_LINK, self._round, _PHASES.index(phase)) for phase in self._clock.answers]
        keys += [key(_LEAVES, self._round), key(_ONLINE, self._round)]
        return dict(zip(phases, uniforms(keys, self._fleet.clients), strict=True))

    @cached_property
    def _loss(self) -> Floats:
        return self._clock.link_loss(self._fleet)

    def _fail(self, codes: NDArray[np.int64], phase: str, at: NDArray[np.intp], fleet: Fleet) -> None:
        clock, population, chances = self._clock, self._clock.population, self._chances
        codes[chances[phase][at] < self._loss[at]] = _LINK_LOST
        if phase in TRAINING:
            codes[chances["leaves"][at] < population.column("availability", "dropout", fleet)] = _AWAY
        if clock.rules.daily and not self._begun:
            share = population.column("availability", "p_online", fleet)
            ratio = population.column("availability", "day_ratio", fleet)
            codes[chances["online"][at] >= online(share, ratio, clock.hour(self._round))] = _AWAY

    def _charge(self, phase: str, at: NDArray[np.intp], fleet: Fleet, up: Floats, down: Floats) -> None:
        self._meters.talk(at, fleet, up, down, self._now - self._quiet[at])
        if phase in TRAINING:
            self._meters.train(at, fleet, self._gflop[at])


def _sizes(asked: Mapping[int, int]) -> Floats:
    return np.fromiter(asked.values(), np.float64, len(asked))


PHASES: Final = ("advertise", "share", "mask", "consistency", "unmask")
_TRAINED: Final = PHASES.index("mask")  # a round without these phases has one, "train", which is when vectors are sent


@dataclass(frozen=True)
class Dropout:
    """Rule by which clients leave a round: before each phase by chance, and some as listed.

    >>> Dropout(leave=((3, 7, "mask"),)).left(3, 7, "unmask", Streams(1))
    'mask'
    """

    chances: Mapping[str, float] = field(default_factory=dict)
    leave: tuple[tuple[int, int, str], ...] = ()  # (round, client, phase)

    def __post_init__(self) -> None:
        for phase, chance in self.chances.items():
            one_of("dropout", phase, PHASES)
            in_range(f"dropout before {phase}", chance, low=0, high=1, open_high=True)
        for _, _, phase in self.leave:
            one_of("leave", phase, PHASES)

    @property
    def possible(self) -> bool:
        """Tell whether anybody can ever leave."""
        return bool(self.leave) or any(self.chances.values())

    def left(self, round_: int, client: int, phase: str, streams: Streams) -> str | None:
        """Name the phase before which a client left, if that was at `phase` or earlier."""
        if not self.possible:
            return None
        now = _TRAINED if phase == "train" else PHASES.index(phase)
        draws = streams.get(Purpose.DROPOUT, round_, client).random(len(PHASES))
        for name, draw in zip(PHASES[: now + 1], draws, strict=False):
            if draw < self.chances.get(name, 0.0) or (round_, client, name) in self.leave:
                return name
        return None
