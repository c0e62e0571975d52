"""Noise of coins that two aggregators toss together, and the Gaussian that it is as good as."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.noise.coins import Coins, Losses, coin_sums, coins_of, solve_coins

EVERYONE = {
    "clients": 6000,
    "sample_rate": 1.0,
    "rounds": 20,
    "delta": 1e-5,
    "threshold": 2 / 3,
    "clip_norm": 0.3,
    "length": 4010,
    "noise_by": "jointly",
}


def exact_epsilon(coins: Coins, releases: int, delta: float, shift: int = 1) -> float:
    """Return epsilon of so many shifts under coins, by dp-accounting from the probabilities of all sums, to about 1e-3.

    It rounds each loss up to its grid, half a step on average, so what it says is linear in the step: drawn to step 0.
    """
    logs = np.log(coin_sums(coins.counts))
    here = {value: float(each) for value, each in enumerate(logs)}
    there = {value + shift: float(each) for value, each in enumerate(logs)}
    found = []
    for step in (2e-6, 4e-6):
        one = pld.from_two_probability_mass_functions(there, here, value_discretization_interval=step)
        found.append(float(one.self_compose(releases).get_epsilon_for_delta(delta)))
    return 2 * found[0] - found[1]


def test_the_sums_of_coins_are_those_of_all_their_faces() -> None:
    found = np.zeros(2 * 1 + 1 * 2 + 2 * 4 + 1)
    for faces in product((0, 1), repeat=5):
        found[np.dot(faces, (1, 1, 2, 4, 4))] += 2.0**-5

    assert coin_sums((2, 1, 2)) == pytest.approx(found, abs=1e-15)
    assert (
        Coins((2, 1, 2)).variance == pytest.approx(float(np.arange(13) ** 2 @ found) - 36)
        and Coins((2, 1, 2)).mean == 6
    )


@pytest.mark.parametrize("variance", [3.2, 100, 4321.5, 1e6, 3.3e7])
def test_coins_have_the_variance_asked_and_a_whole_mean(variance: float) -> None:
    coins = coins_of(variance)

    assert variance <= coins.variance <= variance + 0.5
    assert sum(count << place for place, count in enumerate(coins.counts)) % 2 == 0


def test_the_plan_is_confirmed_by_composing_every_coordinate_of_every_round() -> None:
    plan = PrivacyPlan.solve(**EVERYONE, epsilon_server=1.0)
    assert plan.grid is not None

    exact = exact_epsilon(Coins(plan.grid.coins), 20 * 4010, 1e-5)

    assert exact == pytest.approx(plan.epsilon_server, abs=2e-3) and plan.epsilon_server <= 1.0
    assert plan.epsilon == pytest.approx(plan.epsilon_server, abs=2e-3)
    assert plan.grid.variance < 1.003 * (plan.noise_multiplier**2 * 4010)
    assert exact_epsilon(Coins(plan.grid.coins), 20 * 4010, 1e-5, shift=2) == pytest.approx(2.15, abs=0.02)


def test_joint_noise_has_half_of_the_variance_for_the_same_epsilon_against_an_aggregator() -> None:
    joint = PrivacyPlan.solve(**EVERYONE, epsilon_server=1.0)
    each = PrivacyPlan.solve(**{**EVERYONE, "noise_by": "aggregators"}, epsilon_server=1.0)

    assert each.stddev() ** 2 / joint.stddev() ** 2 == pytest.approx(2, rel=0.01)
    assert joint.describe()["epsilon_both_aggregators"] is None


@pytest.mark.parametrize(("noise", "length"), [(16.7, 4010), (3.0, 300), (0.9, 2000)])
def test_coins_are_worth_the_noise_that_they_are_solved_for_and_fewer_are_not(noise: float, length: int) -> None:
    coins = solve_coins(noise, length, 1e-12)

    assert Losses.of(coins).dominated(noise, length, 1e-12)
    assert not Losses.of(coins_of(0.99 * noise**2 * length)).dominated(noise, length, 1e-12)


def test_few_coordinates_have_no_coins_and_a_sentence() -> None:
    with pytest.raises(PrivacyError, match="no number of coins is worth"):
        solve_coins(0.5, 3, 1e-12)
    with pytest.raises(PrivacyError, match="cannot be shown"):
        solve_coins(16.7, 4010, 1e-15)


def test_tossed_bits_of_one_side_leave_the_coins_fair() -> None:
    plan = PrivacyPlan.solve(**EVERYONE, epsilon_server=1.0)
    mine = plan.toss(Randomness.simulated(bytes(32)))

    votes = plan.coin_votes(mine ^ np.uint8(0))
    assert plan.grid is not None and mine.shape == (Coins(plan.grid.coins).number, 502)
    # Of 4010 draws mean and variance are off by more than 5 standard errors once in a million.
    assert abs(votes.mean()) < 5 * math.sqrt(plan.grid.variance / 4010)
    assert votes.var() == pytest.approx(plan.grid.variance, rel=5 * math.sqrt(2 / 4010))
    other = plan.toss(Randomness.simulated(bytes([1]) * 32))
    assert abs(np.corrcoef(plan.coin_votes(mine ^ other), votes)[0, 1]) < 5 / math.sqrt(4010)


def test_a_plan_of_one_kind_of_noise_draws_no_other() -> None:
    joint = PrivacyPlan.solve(**EVERYONE, epsilon_server=1.0)
    each = PrivacyPlan.solve(**{**EVERYONE, "noise_by": "aggregators"}, epsilon_server=1.0)

    with pytest.raises(PrivacyError, match="added by the jointly"):
        joint.aggregator_noise(Randomness.simulated(bytes(32)))
    with pytest.raises(PrivacyError, match="added by the aggregators"):
        each.toss(Randomness.simulated(bytes(32)))
