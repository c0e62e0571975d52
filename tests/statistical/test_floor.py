"""Cohorts below the floor are sent home: what that costs, by brute force; no sampling, no false alarms."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.plan.plan import PrivacyPlan

POINTS = np.linspace(-16, 20, 3601)
WIDTH = POINTS[1] - POINTS[0]


def release(others: int, *, clients: int, rate: float, floor: int, there: bool, noise: float) -> NDArray[np.float64]:
    """Return the density of one round's sum if everybody sends 1, which makes the client's presence matter most."""
    density = np.zeros_like(POINTS)
    for drawn, chance in ((True, rate), (False, 1 - rate)) if there else ((False, 1.0),):
        cohort = others + drawn
        centre = cohort if cohort >= floor else 0.0
        density += chance * norm.pdf(POINTS, centre, noise)
    return density


def exact_delta(epsilon: float, *, clients: int, rate: float, floor: int, noise: float, rounds: int) -> float:
    """Return delta of the mechanism as it runs, the larger of both directions, for one or two rounds."""
    chances = [float(binom.pmf(others, clients - 1, rate)) for others in range(clients)]

    def law(there: bool) -> NDArray[np.float64]:
        rows = [
            release(others, clients=clients, rate=rate, floor=floor, there=there, noise=noise)
            for others in range(clients)
        ]
        one = np.tensordot(chances, rows, 1) * WIDTH
        return one if rounds == 1 else np.outer(one, one).ravel()

    with_client, without = law(True), law(False)
    ways = [np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((with_client, without), (without, with_client))]
    return float(max(ways))


def gaussian_delta(epsilon: float, rate: float, noise: float, rounds: int) -> float:
    base = norm.pdf(POINTS, 0, noise) * WIDTH
    mixed = (1 - rate) * base + rate * norm.pdf(POINTS, 1, noise) * WIDTH
    if rounds == 2:
        base, mixed = np.outer(base, base).ravel(), np.outer(mixed, mixed).ravel()
    return float(max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((mixed, base), (base, mixed))))


@pytest.mark.parametrize(
    ("clients", "rate", "floor", "rounds"),
    list(product([3, 8], [0.3, 0.5], [2, 3], [1, 2])),
)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_a_floor_costs_at_most_the_chance_to_be_drawn_while_the_others_are_just_below_it(
    clients: int, rate: float, floor: int, rounds: int, epsilon: float
) -> None:
    exact = exact_delta(epsilon, clients=clients, rate=rate, floor=floor, noise=1.0, rounds=rounds)

    charged = rounds * rate * float(binom.pmf(floor - 1, clients - 1, rate))

    assert exact <= gaussian_delta(epsilon, rate, 1.0, rounds) + charged + 1e-9


def test_without_that_charge_the_claim_would_be_false() -> None:
    exact = exact_delta(2.272, clients=2, rate=0.5, floor=2, noise=1.0, rounds=1)

    assert exact > 2 * gaussian_delta(2.272, 0.5, 1.0, 1), "two clients at rate 1/2, floor 2: the attack that was found"


def test_a_floor_that_delta_cannot_pay_for_is_refused() -> None:
    with pytest.raises(PrivacyError, match="cohort_floor is too high: a cohort just below it has probability"):
        PrivacyPlan.solve(
            clients=2,
            sample_rate=0.5,
            rounds=1,
            delta=1e-3,
            noise_multiplier=1.0,
            clip_norm=1.0,
            length=4,
            cohort_floor=2,
        )


def test_a_high_floor_is_charged_and_the_default_one_costs_next_to_nothing() -> None:
    keys = {"clients": 6000, "sample_rate": 1 / 60, "rounds": 200, "delta": 1e-5, "clip_norm": 1.0, "length": 100}
    usual = PrivacyPlan.solve(**keys, noise_multiplier=1.2244)
    higher = PrivacyPlan.solve(**keys, noise_multiplier=1.2244, cohort_floor=52)
    [event], [dear] = usual.events(), higher.events()

    assert 30 < usual.shares.floor < 52
    assert 0 < event.floor_slack <= 1e-4 * 1e-5
    assert 200 * binom.cdf(usual.shares.floor, 5999, 1 / 60) > 1e-9, "cohorts below a higher one are likelier than that"
    assert dear.floor_slack == pytest.approx(200 / 60 * binom.pmf(51, 5999, 1 / 60), rel=0.01)
    assert higher.epsilon > usual.epsilon


def test_clients_that_sit_out_make_small_cohorts_likelier_and_that_is_counted() -> None:
    keys = {"clients": 600, "sample_rate": 1 / 12, "rounds": 40, "delta": 1e-4, "clip_norm": 1.0, "length": 100}
    free, capped = (PrivacyPlan.solve(**keys, noise_multiplier=2.3, max_participations=most) for most in (None, 2))

    assert capped.shares.floor < free.shares.floor
