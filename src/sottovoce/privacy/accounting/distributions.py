"""Build privacy loss distributions with dp-accounting, each once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any, Final

from sottovoce.privacy.accounting.events import Event

CURVE: Final = 20  # grid steps, as `steps` below, for one value a round
POINTS: Final = 5000  # of a grid at most, about, times `steps`: little noise spreads losses so wide that memory fills
TAIL: Final = 8.5  # standard deviations of a Gaussian, beyond which dp-accounting looks no further


@lru_cache(maxsize=16)
def composed(events: tuple[Event, ...], steps: int, exact: bool) -> Any:
    """Return the privacy loss distribution of all rounds of all events."""
    interval = interval_for(events, steps)
    parts = [_distribution(event, interval, exact).self_compose(event.rounds) for event in events]
    return reduce(lambda total, part: total.compose(part), parts)


def interval_for(events: Sequence[Event], steps: int) -> float:
    """Return a grid step for privacy losses, a fraction of the standard deviation of one average round's loss.

    Rounding to a grid of step h adds at most h^2 / 4 to the variance of each round, so what matters is h against that.
    dp-accounting rounds losses up, so that epsilon is an upper bound however coarse the grid.
    """
    deviation = math.sqrt(spread(events) / sum(event.rounds for event in events))
    return max(2e-6, min(1e-2, deviation / steps), _width(events) / (POINTS * steps))


def _width(events: Sequence[Event]) -> float:
    """Return about how far apart the privacy losses of all rounds together lie."""
    widest = mean = 0.0
    for event in events:
        inverse = event.distance / event.faced
        largest = inverse**2 / 2 + TAIL * inverse  # of a client that is there for certain; then log(1 + q (e^it - 1))
        widest = max(widest, math.log1p(event.sample_rate * math.expm1(largest)) if largest < 700 else largest)
        mean += event.rounds * event.sample_rate * inverse**2 / 2
    return widest + mean + TAIL * math.sqrt(spread(events))


def spread(events: Sequence[Event]) -> float:
    """Return about the variance of the privacy loss of all rounds together."""
    total = 0.0
    for event in events:
        precision = (event.distance / event.faced) ** 2
        total += event.rounds * min(event.sample_rate**2 * math.expm1(min(50.0, precision)), precision)
    return total


def _distribution(event: Event, interval: float, exact: bool) -> Any:
    return _one_round(replace(event, rounds=1), interval, exact)


@lru_cache(maxsize=16)
def _one_round(event: Event, interval: float, exact: bool) -> Any:
    """Return the privacy loss distribution of one round of an event."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if exact and event.cohort_cap is not None:
        return pld.from_truncated_subsampled_gaussian_mechanism(
            event.clients,
            event.sample_rate,
            event.cohort_cap,
            event.faced,
            value_discretization_interval=interval,
        )
    return pld.from_gaussian_mechanism(
        event.faced / event.distance,
        sampling_prob=event.sample_rate,
        value_discretization_interval=interval,
    )


def curve(before: tuple[Event, ...], each: Event, block: int, delta: float, exact: bool) -> list[float]:
    """Return epsilon after every `block` rounds of `each`, one composition at a time; the last may be past its end."""
    interval = interval_for([*before, each], CURVE)
    step = _distribution(each, interval, exact).self_compose(block)
    total = None
    for event in before:
        part = _distribution(event, interval, exact).self_compose(event.rounds)
        total = part if total is None else total.compose(part)
    curve = []
    for _ in range(0, each.rounds, block):
        total = step if total is None else total.compose(step)
        curve.append(float(total.get_epsilon_for_delta(delta)))
    return curve
