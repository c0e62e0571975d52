from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from scipy.stats import kstest

from sottovoce.core.errors import InputError
from sottovoce.privacy.accounting.accountant import epsilon_server
from sottovoce.studies.mechanisms.noise import (
    author_gamma,
    author_noise,
    author_sensitivity,
    author_staircase,
    right_noise,
)
from sottovoce.studies.mechanisms.settings import NOISELESS, Mechanism

FALSE_ALARM = 1e-6
NOISY = [name for name in get_args(Mechanism) if name not in NOISELESS]


def test_the_authors_formulas_by_hand() -> None:
    # Iteration 4 of 3 clients with 100 records each time: 2 / (3 * 400 * 1).
    assert author_sensitivity(3, 400) == pytest.approx(0.0016667, abs=1e-7)
    assert author_gamma(0.1) == pytest.approx(0.552585, abs=1e-6)
    assert author_gamma(1.0) == pytest.approx(1.359141, abs=1e-6)
    # Lap(s / eps): stddev sqrt(2) * 0.0016667 / 0.1; Gaussian: sqrt(2 ln 12500) = 4.343610 times s / eps.
    assert author_noise("laplace", 0.1, 3, 400, 5).stddev == pytest.approx(0.0235702, abs=1e-6)
    assert author_noise("gaussian", 0.1, 3, 400, 5).stddev == pytest.approx(0.0723935, abs=1e-6)
    assert author_noise("laplace", 0.1, 3, 400, 5, stated=1.0).stddev == pytest.approx(14.142136, abs=1e-6)


def test_half_of_the_authors_staircase_noise_has_no_sign_at_small_epsilon() -> None:
    """B is a fair coin and its branch is positive, so 3 of 4 draws are positive; 5 standard errors: 6e-7."""
    draws = author_staircase(0.1, 1.0, 100_000, np.random.default_rng(1))

    assert abs((draws > 0).mean() - 0.75) < 5 * math.sqrt(0.1875 / draws.size)
    assert draws.mean() > 4  # the right noise has mean 0 and E|x| = 10


def test_the_authors_staircase_never_takes_the_outer_branch_at_epsilon_one() -> None:
    """Gamma is 1.36 there, so the noise is S (G + 1.36 U): the twin, drawn plainly."""
    rng = np.random.default_rng(2)
    draws = author_staircase(1.0, 2.0, 50_000, rng)
    count = 50_000
    plain = rng.choice([-1, 1], count) * (rng.geometric(1 - math.exp(-1), count) - 1 + 1.359141 * rng.random(count)) * 2

    assert kstest(draws, plain).pvalue > FALSE_ALARM
    assert kstest(draws * 1.1, plain).pvalue < FALSE_ALARM


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "staircase", "gamma-shares"])
def test_the_stated_spread_of_the_authors_noise_is_that_of_its_draws(mechanism: Mechanism) -> None:
    noise = author_noise(mechanism, 0.1, 3, 400, 40_000)

    assert noise.sample(np.random.default_rng(3)).std() == pytest.approx(noise.stddev, rel=0.1)


@pytest.mark.parametrize("mechanism", NOISY)
def test_the_stated_spread_of_right_noise_is_about_that_of_its_draws(mechanism: Mechanism) -> None:
    noise = right_noise(mechanism, 1.0, 1e-4, 10, 0.02, 4000, 8)
    draws = np.concatenate([noise.sample(np.random.default_rng(seed)) for seed in range(8)])

    assert draws.std() == pytest.approx(noise.stddev, rel=0.1)
    assert draws.size == 8 * 4000


def test_right_noise_charges_every_release() -> None:
    one, ten = (right_noise("laplace", 1.0, 1e-4, releases, 0.02, 100, 8).stddev for releases in (1, 10))
    once, often = (right_noise("gaussian", 1.0, 1e-4, releases, 0.02, 100, 8).stddev for releases in (1, 10))

    assert ten == pytest.approx(10 * one)
    assert often == pytest.approx(math.sqrt(10) * once, rel=1e-4)
    assert epsilon_server([(often / 0.02, 10)], delta=1e-4) <= 1.0


def test_right_laplace_noise_by_hand() -> None:
    # L1 sensitivity sqrt(100) * 0.02 = 0.2, epsilon 1 / 10 a release: Laplace(2), stddev 2.828.
    noise = right_noise("laplace", 1.0, 1e-4, 10, 0.02, 100, 8)

    assert noise.sensitivity == pytest.approx(0.2)
    assert noise.stddev == pytest.approx(2 * math.sqrt(2))


def test_a_mechanism_that_a_mode_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="mode \"printed\" has no 'radial'"):
        author_noise("radial", 1.0, 3, 100, 10)
    with pytest.raises(InputError, match="'none' adds no noise"):
        right_noise("none", 1.0, 1e-4, 1, 0.1, 10, 3)
