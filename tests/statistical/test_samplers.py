"""Samplers against their exact laws. Every test states its false-alarm rate; keys are fixed, so a pass stays a pass."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, chi2_contingency, kstest

from sottovoce.privacy.noise.mechanisms import Laplace, Staircase
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.noise.sampler import draw
from sottovoce.privacy.noise.table import centred_tables, fraction_tables

FALSE_ALARM = 1e-6
KEY = bytes(range(32))


def discrete_gaussian(stddev: float, centre: float, outcomes: NDArray[np.int64]) -> NDArray[np.float64]:
    weights = np.exp(-((outcomes - centre) ** 2) / (2 * stddev**2))
    return np.asarray(weights / weights.sum())


def chi_square(draws: NDArray[np.int32], stddev: float, centre: float) -> float:
    """Return the probability of a worse fit than this one, cells of at least ten expected draws."""
    reach = int(12 * stddev) + 2
    outcomes = np.arange(-reach, reach + 1)
    expected = discrete_gaussian(stddev, centre, outcomes) * draws.size
    observed = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    kept = expected >= 10
    seen = np.append(observed[kept], observed[~kept].sum())
    awaited = np.append(expected[kept], max(expected[~kept].sum(), 1e-9))
    if awaited[-1] < 5:
        seen, awaited = seen[:-1], awaited[:-1]
    return float(chi2.sf(((seen - awaited) ** 2 / awaited).sum(), seen.size - 1))


def draws(stddev: float, row: int, count: int = 400_000) -> NDArray[np.int32]:
    tables = fraction_tables(Fraction(stddev) ** 2, 4)
    return draw(tables, np.full(count, row, np.int32), Randomness.simulated(KEY).bits()).view(np.int32)


@pytest.mark.parametrize("stddev", [2.0, 4.0, 4.5])
@pytest.mark.parametrize("row", [0, 5, 8, 15])
def test_draws_follow_the_discrete_gaussian(stddev: float, row: int) -> None:
    sample = draws(stddev, row)

    assert chi_square(sample, stddev, row / 16) > FALSE_ALARM
    assert chi_square(sample, stddev * 2 / 3, row / 16) < FALSE_ALARM
    assert chi_square(sample, stddev * 3 / 2, row / 16) < FALSE_ALARM
    assert chi_square(sample, stddev, row / 16 + 1 / 16) < FALSE_ALARM  # one step of the centre is seen, too


def test_wide_draws_follow_the_discrete_gaussian() -> None:
    tables = centred_tables(Fraction(199**2), (Fraction(1), Fraction(-1)))
    sample = draw(tables, np.ones(400_000, np.int32), Randomness.simulated(KEY).bits()).view(np.int32)

    assert chi_square(sample, 199, -1.0) > FALSE_ALARM
    assert chi_square(sample, 199 * 2 / 3, -1.0) < FALSE_ALARM
    assert chi_square(sample, 199 * 3 / 2, -1.0) < FALSE_ALARM


def test_draws_agree_with_opendp() -> None:
    """Compare two samples by contingency; opendp's is fresh each time, so this one alarms once in a million runs."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=4.0)([0] * 20_000))

    def agreement(ours: NDArray[np.int32]) -> float:
        cells = [np.bincount(np.clip(values, -9, 9) + 9, minlength=19) for values in (ours, theirs)]
        return float(chi2_contingency(np.stack(cells)).pvalue)

    assert agreement(draws(4.0, 0, 20_000)) > FALSE_ALARM
    assert agreement(draws(4.0 * 2 / 3, 0, 20_000)) < FALSE_ALARM
    assert agreement(draws(4.0 * 3 / 2, 0, 20_000)) < FALSE_ALARM


def test_a_sum_of_a_hundred_shares_is_the_discrete_gaussian_of_their_variances() -> None:
    tables = fraction_tables(Fraction(16), 4)
    bits = Randomness.simulated(KEY).bits()
    rows = np.random.default_rng(1).integers(-100, 100, 100)
    total = np.zeros(100_000, np.int32)
    for row in rows:
        total += draw(tables, np.full(total.size, row, np.int32), bits).view(np.int32)
    centre = rows.sum() / 16

    shifted = (total - int(np.floor(centre))).astype(np.int32)
    assert chi_square(shifted, 40, centre - np.floor(centre)) > FALSE_ALARM
    assert chi_square(shifted, 40 * 2 / 3, centre - np.floor(centre)) < FALSE_ALARM
    assert chi_square(shifted, 40 * 3 / 2, centre - np.floor(centre)) < FALSE_ALARM


def algorithm_one(epsilon: float, gamma: float, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw by the thesis' Algorithm 1, corrected: the slow and obvious twin in one dimension."""
    b = np.exp(-epsilon)
    sign = rng.choice([-1.0, 1.0], count)
    step = rng.geometric(1 - b, count) - 1
    uniform = rng.random(count)
    inner = rng.random(count) < gamma / (gamma + (1 - gamma) * b)
    return np.asarray(sign * np.where(inner, step + gamma * uniform, step + gamma + (1 - gamma) * uniform))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_staircase_agrees_with_algorithm_one(epsilon: float) -> None:
    rng = np.random.default_rng(2)
    mechanism = Staircase(epsilon, 1.0)
    ours = np.array([mechanism.sample(rng)[0] for _ in range(20_000)])
    theirs = algorithm_one(epsilon, mechanism.best_gamma, rng, 20_000)

    assert kstest(ours, theirs).pvalue > FALSE_ALARM
    assert kstest(ours * 2 / 3, theirs).pvalue < FALSE_ALARM
    assert kstest(ours * 3 / 2, theirs).pvalue < FALSE_ALARM


@pytest.mark.parametrize(("dim", "kind"), [(1, Laplace), (3, Staircase), (3, Laplace), (40, Staircase)])
def test_the_size_of_the_noise_is_as_computed(dim: int, kind: type[Laplace] | type[Staircase]) -> None:
    """Compare the mean L1 norm with its formula, within 5 standard errors: false-alarm rate below 1e-6."""
    rng = np.random.default_rng(3)
    mechanism = kind(1.0, 2.0, dim)
    norms = np.array([np.abs(mechanism.sample(rng)).sum() for _ in range(8000)])
    error = 5 * norms.std() / np.sqrt(norms.size)

    assert abs(norms.mean() - mechanism.mean_norm) < error
    assert abs(norms.mean() - mechanism.mean_norm * 2 / 3) > error
    assert abs(norms.mean() - mechanism.mean_norm * 3 / 2) > error
