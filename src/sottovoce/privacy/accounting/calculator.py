"""Answer `sottovoce privacy`: noise to epsilon or epsilon to noise, no experiment needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range, one_of
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import ACCOUNTANTS, SAMPLINGS, Accountant, Event, Sampling
from sottovoce.privacy.accounting.participation import participation_cap

DEFAULT_THRESHOLD: Final = Fraction(2, 3)  # of a cohort must stay to the end, in runs and here, if nothing is said


def calculate(
    *,
    sample_rate: float,
    rounds: int,
    delta: float,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    sampling: Sampling = "poisson",
    accountant: Accountant = "pld",
    max_participations: int | None = None,
    threshold: float = float(DEFAULT_THRESHOLD),
) -> dict[str, Any]:
    """Return noise, both epsilons and the participation cap; give either the noise or the epsilon.

    Guarantee: `epsilon` holds against anyone who does not know who was sampled, `epsilon_server` against the server, if
    no client contributes more than `max_participations` times and at least a share of `threshold` of every cohort stays
    to the end, so that the server does not know its noise. Both are for all rounds.

    >>> calculate(sample_rate=1 / 60, rounds=200, delta=1e-5, epsilon=1.0, accountant="moments")["max_participations"]
    13
    """
    _check(sample_rate, rounds, delta, sampling, accountant)
    in_range("threshold", threshold, low=0.5, high=1)
    if (noise_multiplier is None) == (epsilon is None):
        raise InputError("give either noise_multiplier or epsilon, not both and not neither")
    for name, value in (("noise_multiplier", noise_multiplier), ("epsilon", epsilon)):
        if value is not None:
            in_range(name, value, low=0, open_low=True, high=math.inf, open_high=True)
    if noise_multiplier is not None:
        in_range("noise_multiplier", noise_multiplier, low=1e-3)  # there epsilon is in the millions already
        multiplier = noise_multiplier
    else:
        multiplier = accounts.noise_multiplier(
            epsilon or 0.0, lambda z: [_event(z, sample_rate, rounds, sampling)], delta=delta, accountant=accountant
        )
    event = _event(multiplier, sample_rate, rounds, sampling)
    spent = accounts.epsilon([event], delta=delta, accountant=accountant)
    cap = participation_cap(
        sample_rate=sample_rate,
        rounds=rounds,
        delta=delta,
        epsilon=spent,
        sampling=sampling,
        wanted=max_participations,
    )
    return {
        "accountant": accountant,
        "sampling": sampling,
        "sample_rate": sample_rate,
        "rounds": rounds,
        "delta": delta,
        "noise_multiplier": multiplier,
        "epsilon": spent,
        "epsilon_server": accounts.epsilon_server([(event.left(threshold), cap)], delta=delta, accountant=accountant),
        "max_participations": cap,
        "threshold": threshold,
    }


def curve(
    *,
    sample_rate: float,
    rounds: int,
    delta: float,
    noise_multiplier: float,
    sampling: Sampling = "poisson",
    accountant: Accountant = "pld",
) -> list[float]:
    """Return epsilon after each of the rounds, to plot."""
    _check(sample_rate, rounds, delta, sampling, accountant)
    event = _event(noise_multiplier, sample_rate, rounds, sampling)
    return accounts.epsilons_by_round([], event, delta=delta, accountant=accountant)


def server_curve(found: Mapping[str, Any], points: int = 60) -> list[tuple[int, float]]:
    """Return epsilon against the server after some of the rounds, from what `calculate` returned, to plot.

    The server sees every contribution, so that a client counts in each round until it may contribute no more.
    """
    rounds, cap = int(found["rounds"]), int(found["max_participations"])
    event = _event(found["noise_multiplier"], found["sample_rate"], rounds, found["sampling"])
    left = event.left(found["threshold"])
    counts = sorted({max(1, round(cap * place / points)) for place in range(1, points + 1)})
    reached = [
        (count, accounts.epsilon_server([(left, count)], delta=found["delta"], accountant=found["accountant"]))
        for count in counts
    ]
    return reached + ([(rounds, reached[-1][1])] if rounds > cap else [])


def _event(multiplier: float, sample_rate: float, rounds: int, sampling: Sampling) -> Event:
    return Event(noise_multiplier=multiplier, sample_rate=sample_rate, rounds=rounds, sampling=sampling)


def _check(sample_rate: float, rounds: int, delta: float, sampling: str, accountant: str) -> None:
    in_range("sample_rate", sample_rate, low=0, open_low=True, high=1)
    in_range("rounds", rounds, low=1, high=10**7)
    in_range("delta", delta, low=0, high=1, open_low=True, open_high=True)
    one_of("sampling", sampling, SAMPLINGS)
    one_of("accountant", accountant, ACCOUNTANTS)
