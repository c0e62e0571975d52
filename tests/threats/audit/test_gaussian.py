from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.bounds import Spread, epsilon_of_mu, mu_below, mu_of_shift


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.6])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_epsilon_solves_the_formula_of_the_paper(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu, delta)

    found = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert found == pytest.approx(delta, rel=1e-6)


def test_no_shift_costs_nothing() -> None:
    assert epsilon_of_mu(0.0, 1e-5) == 0
    assert epsilon_of_mu(1e-9, 1e-5) == 0


def test_the_bound_of_mu_covers_in_all_but_alpha_of_the_cases() -> None:
    """At alpha = 0.1, 400 repetitions give 40 misses at most; more than 75 in one of 10^7 runs of this test."""
    rng = np.random.default_rng(1)
    mu, alpha, missed = 0.8, 0.1, 0
    for _ in range(400):
        noise = Spread(0.0, 0).plus(3 * rng.standard_normal(500))
        present, absent = 3 * (mu + rng.standard_normal(60)), 3 * rng.standard_normal(40)
        missed += mu_below(present, absent, noise, alpha) > mu

    assert 2 <= missed <= 75


def test_the_bound_comes_near_with_many_games() -> None:
    rng = np.random.default_rng(2)
    noise = Spread(0.0, 0).plus(rng.standard_normal(10**6))

    found = mu_below(1.2 + rng.standard_normal(20_000), rng.standard_normal(20_000), noise, 1e-3)

    assert 1.1 < found < 1.2


def test_spread_adds_up() -> None:
    spread = Spread(0.0, 0).plus(np.array([[3, 4]], np.int64)).plus(np.array([1.0]))

    assert spread == Spread(26.0, 3)


def test_games_on_one_side_only_are_refused() -> None:
    with pytest.raises(InputError, match="needs games"):
        mu_below(np.ones(3), np.ones(0), Spread(1.0, 1), 0.1)


def test_a_release_without_noise_has_a_large_mu_and_no_division_by_zero() -> None:
    none = Spread(0.0, 100)

    assert mu_below(np.ones(50), np.zeros(50), none, 0.05) > 9999
    assert mu_below(np.zeros(50), np.ones(50), none, 0.05) == 0
    assert math.isfinite(epsilon_of_mu(mu_below(np.ones(50), np.zeros(50), none, 0.05), 1e-5))


def test_a_shift_off_known_noise_is_bounded_by_the_noise_alone() -> None:
    noise, none = Spread(0.0, 0).plus(2 * np.random.default_rng(3).standard_normal(10**6)), Spread(0.0, 100)

    assert 0.99 * 3 / 2 < mu_of_shift(3.0, 0.1, none, noise, 1e-3) < 3 / 2
    assert mu_of_shift(3.0, 0.1, noise, noise, 1e-3) < 3 / 2 - 0.1 * norm.isf(1e-3 / 3) * 0.99
    assert mu_of_shift(-3.0, 0.1, none, noise, 1e-3) == mu_of_shift(0.1, 1.0, noise, noise, 1e-3) == 0
    assert mu_of_shift(3.0, 0.1, none, none, 1e-3) > 9999
