"""Each right case is checked at 1e-6: together they fail by chance in one of 250,000 seeds."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.threats.audit.sampling import cohort_sizes, rates

ALARM = 1e-6
RNG = np.random.default_rng(3)
CLIENTS, RATE, ROUNDS = 100, 0.2, 2000
COINS = RNG.random((ROUNDS, CLIENTS)) < RATE


def test_coins_of_the_charged_rate_are_accepted() -> None:
    sizes, draws = COINS.sum(1), COINS.sum(0)

    assert cohort_sizes("c", sizes, CLIENTS, RATE, fixed=None).p_value > ALARM
    assert rates("r", draws, ROUNDS, RATE).p_value > ALARM


@pytest.mark.parametrize(
    "sizes",
    [
        np.full(ROUNDS, 20),
        RNG.binomial(CLIENTS, 0.25, ROUNDS),
        10 * RNG.binomial(10, RATE, ROUNDS),
    ],
    ids=["always twenty", "a higher rate", "ten clients a coin"],
)
def test_other_ways_to_draw_are_not(sizes: np.ndarray) -> None:
    assert cohort_sizes("c", sizes, CLIENTS, RATE, fixed=None).p_value < ALARM


def test_a_client_that_is_asked_too_often_or_never_is_found() -> None:
    draws = COINS.sum(0)
    draws[7] = 0.3 * ROUNDS
    often = rates("r", draws, ROUNDS, RATE)
    draws[7] = 0

    assert often.p_value < ALARM
    assert "600 of 2000" in often.sentence
    assert rates("r", draws, ROUNDS, RATE).p_value < ALARM


def test_a_fixed_cohort_has_one_size() -> None:
    assert cohort_sizes("c", np.full(50, 20), CLIENTS, RATE, fixed=20).p_value == 1
    assert cohort_sizes("c", np.array([20, 21]), CLIENTS, RATE, fixed=20).p_value == 0


def test_everybody_in_every_round_is_a_rate_too() -> None:
    assert cohort_sizes("c", np.full(30, 9), 9, 1.0, fixed=None).p_value == 1
    assert rates("r", np.full(9, 30), 30, 1.0).p_value == 1
