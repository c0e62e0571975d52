"""What a round takes before anybody is drawn: expected seconds, and the joules of a client that takes part.

This is what a plan tells, and what a private run may publish: it follows from the profiles, the configuration and the
world's draws of rates for *all* clients, not from a cohort. A population of more than 20,000 is represented by as many
clients, each of which stands for its share of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.devices.clock import TRAINING, Clock
from sottovoce.devices.energy import Joules
from sottovoce.devices.meters import Meters
from sottovoce.devices.population import Fleet

__all__ = ["Exchange", "Expected", "expected_round", "expected_slowest"]

Floats = NDArray[np.float64]
_MOST: Final = 20_000  # clients that are looked at


class Exchange(NamedTuple):
    """Bytes that one client sends and receives in one phase."""

    up: float
    down: float


class Expected(NamedTuple):
    """What a round takes: seconds until its slowest client, and the joules of a client that takes part."""

    seconds: float
    joules: Joules
    lost: float  # share of a cohort that is lost on the way


def expected_round(clock: Clock, phases: Mapping[str, Exchange], *, clients: int, cohort: float) -> Expected:
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
