"""The discrete sum against the Gaussian accountant, by brute force in low dimension: no sampling, no false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from sottovoce.privacy.noise.grid import solve_grid
from sottovoce.privacy.noise.lattice import ROUNDING, rounding_ratio, sum_slack
from sottovoce.privacy.plan.cohort import Shares

REACH = 600


def share(centre: float, variance: float) -> NDArray[np.float64]:
    outcomes = np.arange(-REACH, REACH + 1)
    weights = np.exp(-((outcomes - centre) ** 2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def total(centres: list[float], variance: float) -> NDArray[np.float64]:
    """Convolve the shares, exactly but for rounding; index REACH is zero."""
    whole = share(centres[0], variance)
    for centre in centres[1:]:
        whole = np.convolve(whole, share(centre, variance))
        middle = whole.size // 2
        whole = whole[middle - REACH : middle + REACH + 1]
    return whole


def hockey_stick(first: NDArray[np.float64], second: NDArray[np.float64], epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """Return delta of the Gaussian mechanism (Balle and Wang 2018)."""
    half, slope = 1 / (2 * noise_multiplier), epsilon * noise_multiplier
    return float(norm.cdf(half - slope) - math.exp(epsilon) * norm.cdf(-half - slope))


def gaussian_delta_sampled(epsilon: float, noise_multiplier: float, rate: float) -> float:
    """Return delta of (1 - q) N(0) + q N(1) against N(0), both ways."""
    grid = np.linspace(-14 * noise_multiplier, 14 * noise_multiplier + 1, 400_001)
    width = grid[1] - grid[0]
    without = norm.pdf(grid, 0, noise_multiplier)
    mixed = (1 - rate) * without + rate * norm.pdf(grid, 1, noise_multiplier)
    ways = [np.maximum(a - math.exp(epsilon) * b, 0).sum() * width for a, b in ((mixed, without), (without, mixed))]
    return float(max(ways))


CASES = [(10, 4.0), (3, 3.0), (1, 9.0)]


@pytest.mark.parametrize(("clients", "stddev"), CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_the_release_is_as_private_as_the_gaussian_it_is_charged_as(
    clients: int, stddev: float, epsilon: float
) -> None:
    """Compare delta(epsilon) of the very pair: the largest client there, and zeroed out; others anywhere."""
    variance = stddev**2
    noise_multiplier = 1.3
    radius = math.sqrt(clients * variance - ROUNDING**2) / noise_multiplier
    others = [3.3 * math.sin(k) for k in range(1, clients)]
    with_client, without = total([radius, *others], variance), total([0.0, *others], variance)

    charged = gaussian_delta(epsilon, noise_multiplier)
    slack = (1 + math.exp(epsilon)) * float(sum_slack(clients, variance))
    for pair in ((with_client, without), (without, with_client)):
        assert hockey_stick(*pair, epsilon) <= charged + slack + 1e-13
    # The rounding width is the only thing given away, and it is small.
    assert hockey_stick(with_client, without, epsilon) > 0.9 * gaussian_delta(
        epsilon, math.sqrt(clients) * stddev / radius
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_so_is_the_release_of_a_sampled_client(epsilon: float) -> None:
    rate, clients, variance, noise_multiplier = 0.1, 8, 16.0, 1.3
    radius = math.sqrt(clients * variance - ROUNDING**2) / noise_multiplier
    # The cohort's noise does not depend on its size, so sampled or not the variance is the same.
    there = total([radius, *[0.4] * (clients - 1)], variance)
    gone = total([0.0, *[0.4] * (clients - 1)], variance)
    mixed = (1 - rate) * gone + rate * there

    charged = gaussian_delta_sampled(epsilon, noise_multiplier, rate)
    for pair in ((mixed, gone), (gone, mixed)):
        assert hockey_stick(*pair, epsilon) <= charged * (1 + 1e-6) + 1e-12


def test_noise_at_two_thirds_of_the_scale_breaks_the_charge() -> None:
    clients, variance, noise_multiplier = 10, 16.0, 1.3
    radius = math.sqrt(clients * variance - ROUNDING**2) / noise_multiplier
    thin = variance * (2 / 3) ** 2

    delta = hockey_stick(total([radius] + [0.0] * 9, thin), total([0.0] * 10, thin), 1.0)

    assert delta > 1.5 * gaussian_delta(1.0, noise_multiplier)


@pytest.mark.parametrize("clients", [2, 3, 8, 30])
@pytest.mark.parametrize("stddev", [0.6, 0.8, 1.0])
def test_the_bound_on_the_sum_holds_where_the_distance_can_be_seen(clients: int, stddev: float) -> None:
    centres = [0.37 * k for k in range(clients)]
    whole = total(centres, stddev**2)
    alike = share(sum(centres), clients * stddev**2)

    distance = np.abs(whole - alike).sum() / 2

    assert distance <= sum_slack(clients, stddev**2) + 1e-14
    assert stddev > 0.7 or distance > 1e-12  # it is really seen


@pytest.mark.parametrize("width", [0.3, 0.4, 0.5])
def test_the_bound_on_the_ratio_of_the_rounding_holds_where_it_can_be_seen(width: float) -> None:
    variance, centre = 9.0, 0.37
    wide = math.sqrt(variance - width**2)
    points = np.linspace(centre - 12 * wide, centre + 12 * wide, 20_001)
    mass = norm.pdf(points, centre, wide) * (points[1] - points[0])
    outcomes = np.arange(-60, 61)
    kernel = np.exp(-((outcomes[None, :] - points[:, None]) ** 2) / (2 * width**2))
    rounded = (mass[:, None] * kernel / kernel.sum(axis=1, keepdims=True)).sum(axis=0)
    weights = np.exp(-((outcomes - centre) ** 2) / (2 * variance))

    seen = weights > 1e-14  # eight standard deviations: the ratio is what counts, not the difference
    ratio = np.abs(np.log(rounded[seen] / (weights / weights.sum())[seen])).max()

    assert np.count_nonzero(seen) > 40
    assert 1e-9 < ratio <= rounding_ratio(width)


def test_one_wider_share_that_the_server_makes_up_keeps_the_bound() -> None:
    clients, survivors, variance = 8, 5, 0.6**2
    centres = [0.37 * k for k in range(survivors)]
    made_up = share(0.0, (clients - survivors) * variance)
    whole = np.convolve(total(centres, variance), made_up)[REACH : 3 * REACH + 1]

    distance = np.abs(whole - share(sum(centres), clients * variance)).sum() / 2

    assert 1e-12 < distance <= float(sum_slack(clients, variance))


def test_the_papers_setting_has_a_negligible_slack() -> None:
    grid = solve_grid(noise_multiplier=1.54, shares=Shares(1.0, 0, 1, 100), length=1_663_370, max_slack=1e-24, bits=13)

    assert math.sqrt(grid.variance / 100) == pytest.approx(4.0, abs=0.1)
    assert grid.slack < 1e-24
