from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.bounds import epsilon_from_counts, epsilon_from_rates, rate_above, rate_below


def binomial_cdf(count: int, trials: int, rate: float) -> float:
    """Return P[Binomial <= count], in fractions."""
    p = Fraction(rate)
    return float(sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count + 1)))


@given(trials=st.integers(1, 40), data=st.data(), alpha=st.sampled_from([0.2, 0.05, 1e-3, 1e-6]))
def test_the_upper_bound_is_the_rate_at_which_so_few_have_probability_alpha(
    trials: int, data: st.DataObject, alpha: float
) -> None:
    count = data.draw(st.integers(0, trials))

    bound = rate_above(count, trials, alpha)

    if count == trials:
        assert bound == 1
    else:
        assert binomial_cdf(count, trials, bound) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize(
    ("count", "trials", "alpha", "low", "high"),
    # The 95 % intervals that are printed for 10 of 20, 0 of 10 and 1 of 10 in tables of Clopper and Pearson.
    [(10, 20, 0.025, 0.2720, 0.7280), (0, 10, 0.025, 0.0, 0.3085), (1, 10, 0.025, 0.0025, 0.4450)],
)
def test_intervals_are_those_of_the_tables(count: int, trials: int, alpha: float, low: float, high: float) -> None:
    assert rate_below(count, trials, alpha) == pytest.approx(low, abs=5e-5)
    assert rate_above(count, trials, alpha) == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.97])
def test_the_bound_fails_to_cover_no_more_often_than_alpha(rate: float) -> None:
    """Sum over all outcomes of 60 trials: exact coverage, no false alarm."""
    trials, alpha = 60, 0.05

    missed = sum(
        comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(trials + 1)
        if rate_above(k, trials, alpha) < rate
    )

    assert missed <= alpha


@given(epsilon=st.floats(0.01, 6), delta=st.floats(0, 0.05))
def test_randomised_response_is_given_its_own_epsilon(epsilon: float, delta: float) -> None:
    """Answer truly with probability e^eps / (1 + e^eps), and with probability delta give the secret away."""
    wrong = (1 - delta) / (1 + math.exp(epsilon))

    assert epsilon_from_rates(wrong, wrong, delta) == pytest.approx(epsilon, rel=1e-9)


def test_rates_that_any_mechanism_can_have_show_nothing() -> None:
    assert epsilon_from_rates(0.5, 0.5, 0.0) == 0
    assert epsilon_from_rates(0.0, 1.0, 0.0) == 0
    assert epsilon_from_rates(0.0, 1.0 - 1e-3, 1e-3) == 0
    assert epsilon_from_rates(0.0, 0.5, 1e-3) == math.inf


def test_perfect_guesses_saturate_at_the_logarithm_of_the_games() -> None:
    alpha = 0.05
    rate = 1 - (alpha / 2) ** (1 / 500)

    found = epsilon_from_counts(0, 500, 0, 500, delta=1e-5, alpha=alpha)

    assert found == pytest.approx(math.log((1 - 1e-5 - rate) / rate))
    assert found < math.log(500 / math.log(2 / alpha)) + 0.01


def test_the_bound_of_a_private_mechanism_exceeds_its_epsilon_no_more_often_than_alpha() -> None:
    """Exact: sum the probabilities of all pairs of counts of 40 + 40 games whose bound is above the truth."""
    epsilon, delta, alpha, games = 1.0, 0.01, 0.1, 40
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    chances = [comb(games, k) * wrong**k * (1 - wrong) ** (games - k) for k in range(games + 1)]

    above = sum(
        chances[fp] * chances[fn]
        for fp in range(games + 1)
        for fn in range(games + 1)
        if epsilon_from_counts(fp, games, fn, games, delta=delta, alpha=alpha) > epsilon
    )

    assert above <= alpha
    assert above > alpha / 50, "a bound that never errs would be useless"


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(InputError, match="3 of 2"):
        rate_above(3, 2, 0.05)
    with pytest.raises(InputError, match="alpha"):
        rate_above(1, 2, 0.0)


def test_the_game_of_a_gaussian_stays_below_its_epsilon() -> None:
    """At mu = 1 and delta = 0.01 epsilon is 2.4; the false-alarm rate of this test is 1e-6."""
    rng = np.random.default_rng(5)
    absent, present = rng.standard_normal(4000), 1 + rng.standard_normal(4000)

    found = epsilon_from_counts(
        int((absent > 1.5).sum()), 4000, int((present <= 1.5).sum()), 4000, delta=0.01, alpha=1e-6
    )

    assert 0.5 < found < 2.4
