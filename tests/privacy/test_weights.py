"""Noise on a client's weights against its laws. Keys are fixed, so a pass stays a pass; false alarms: 1e-6 each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import gamma, kstest, laplace

from sottovoce.core.errors import InputError
from sottovoce.privacy.noise.mechanisms import CoordinateStaircase, GammaShare, Radial, Staircase

FALSE_ALARM = 1e-6


def fits(sample: NDArray[np.float64], law: str | object, **keys: object) -> bool:
    return float(kstest(sample, law, **keys).pvalue) > FALSE_ALARM


@pytest.mark.parametrize("shares", [1, 3, 8])
def test_gamma_shares_sum_to_laplace_noise(shares: int) -> None:
    rng = np.random.default_rng(1)
    share = GammaShare(0.5, 2.0, 20_000, shares)

    total = np.sum([share.sample(rng) for _ in range(shares)], axis=0)

    assert fits(total, laplace(scale=4.0).cdf)
    assert not fits(total, laplace(scale=4.0 * 2 / 3).cdf)
    assert not fits(total, laplace(scale=4.0 * 3 / 2).cdf)


def test_a_missing_share_leaves_less_than_laplace_noise() -> None:
    rng = np.random.default_rng(2)
    share = GammaShare(0.5, 2.0, 20_000, 3)

    assert not fits(np.sum([share.sample(rng) for _ in range(2)], axis=0), laplace(scale=4.0).cdf)


def test_the_length_of_radial_noise_is_a_gamma_number_and_its_direction_uniform() -> None:
    rng = np.random.default_rng(3)
    draws = np.array([Radial(0.5, 2.0, 3).sample(rng) for _ in range(20_000)])
    lengths = np.linalg.norm(draws, axis=1)

    assert fits(lengths, gamma(3, scale=4.0).cdf)
    assert not fits(lengths, gamma(3, scale=4.0 * 2 / 3).cdf)
    assert not fits(lengths, gamma(3, scale=4.0 * 3 / 2).cdf)
    for axis in range(3):  # on a sphere in three dimensions every coordinate is uniform (Archimedes)
        assert fits(draws[:, axis] / lengths, "uniform", args=(-1, 2))


@pytest.mark.parametrize("epsilon", [0.6, 4.0])
def test_each_coordinate_has_the_staircase_law(epsilon: float) -> None:
    rng = np.random.default_rng(4)
    noise = CoordinateStaircase(epsilon, 6.0, 3)
    ours = np.concatenate([noise.sample(rng) for _ in range(5_000)])
    single = noise.single
    slow = np.array([single.sample(rng)[0] for _ in range(15_000)])

    assert (single.epsilon, single.sensitivity) == (epsilon / 6, 2.0)
    assert fits(ours, slow)
    assert not fits(ours * 2 / 3, slow)
    assert not fits(ours * 3 / 2, slow)


@pytest.mark.parametrize("epsilon", [0.6, 4.0, 30.0])
def test_the_expected_norm_of_coordinate_noise_is_that_of_its_coordinates(epsilon: float) -> None:
    for given in (None, 0.2, 0.9):
        noise = CoordinateStaircase(epsilon, 6.0, 3, given)

        assert noise.mean_norm == pytest.approx(3 * noise.single.mean_norm)


def test_the_best_gamma_minimises_the_noise_of_coordinates() -> None:
    best = CoordinateStaircase(9.0, 1.0, 2)

    for other in np.linspace(0.02, 0.98, 25):
        assert best.mean_norm <= CoordinateStaircase(9.0, 1.0, 2, float(other)).mean_norm + 1e-12


def log_density(x: NDArray[np.float64], noise: Staircase) -> NDArray[np.float64]:
    """Return the log of a one-dimensional staircase up to a constant: -epsilon for every step that was gone down."""
    place = np.abs(x) / noise.sensitivity
    return -noise.epsilon * (np.floor(place) + (place - np.floor(place) >= noise.best_gamma))


def worst_loss(noise: Staircase, dim: int, l1: float) -> float:
    """Return the greatest privacy loss of `dim` independent coordinates over shifts with L1 norm `l1`, by search."""
    grid = np.linspace(-6, 6, 4801) * noise.sensitivity
    worst = {
        shift: float((log_density(grid, noise) - log_density(grid + shift, noise)).max())
        for shift in l1 * np.linspace(0, 1, 41)
    }
    return max(worst[a] + worst[b] if dim == 2 else worst[a] for a in worst for b in worst if a + b <= l1 + 1e-12)


def test_coordinate_noise_costs_at_most_epsilon_for_every_shift() -> None:
    noise = CoordinateStaircase(0.8, 1.0, 2)

    assert worst_loss(noise.single, 2, 1.0) <= 0.8 + 1e-9


def test_staircase_noise_of_the_whole_epsilon_on_each_coordinate_costs_more() -> None:
    # What the thesis does, were its sensitivity right: two half shifts cost epsilon each.
    assert worst_loss(Staircase(0.8, 1.0), 2, 1.0) == pytest.approx(1.6)


def test_gamma_hardly_matters_where_steps_are_small() -> None:
    for dim, epsilon in ((1, 1e-3), (10, 0.01), (650, 0.6)):
        norms = [Staircase(epsilon, 1.0, dim, gamma).mean_norm for gamma in (0.5, None)]

        assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_bad_parameters_are_refused() -> None:
    for make in (GammaShare, Radial, CoordinateStaircase):
        with pytest.raises(InputError, match="epsilon must be above 0"):
            make(0.0, 1.0)
        with pytest.raises(InputError, match="sensitivity must be above 0"):
            make(1.0, -math.inf)
    with pytest.raises(InputError, match="shares must be at least 1"):
        GammaShare(1.0, 1.0, 1, 0)
    with pytest.raises(InputError, match=r"gamma must be in \[0, 1\]"):
        CoordinateStaircase(1.0, 1.0, 1, 1.4)
