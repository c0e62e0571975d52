"""Each right case is checked at 1e-4, and there are three hundred: they fail by chance in one of 30 seeds at most.

The seed is fixed, and p values are upper bounds.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.threats.audit.noise import CellNoise, CellShifts, discrete_gaussian

RNG = np.random.default_rng(11)


def noise(variance: float, *shape: int) -> np.ndarray:
    reach = int(12 * variance**0.5) + 2
    return RNG.choice(np.arange(-reach, reach + 1), size=shape, p=discrete_gaussian(variance, reach))


def p_value(values: np.ndarray, planned: float, *, discrete: bool = True) -> float:
    cells = CellNoise(values.shape[1], discrete=discrete)
    for row in values:
        cells.add(row, planned)
    (found,) = cells.findings("noise", "the noise", "coordinate")
    return found.p_value


@pytest.mark.parametrize("count", [1, 3, 24, 128])
@pytest.mark.parametrize("variance", [2.0, 16.0, 1600.0])
def test_noise_as_planned_is_not_rejected(count: int, variance: float) -> None:
    found = np.array([p_value(noise(variance, count, 200), variance) for _ in range(25)])

    assert found.min() > 1e-4
    assert np.mean(found < 0.1) < 0.4, "an upper bound: below 0.1 in a tenth of all cases at most, give or take"


@pytest.mark.parametrize("variance", [16.0, 1600.0])
def test_one_cell_without_noise_is_found_among_a_hundred_thousand(variance: float) -> None:
    values = noise(variance, 24, 100_000)
    values[:, 777] = 0

    assert p_value(values, variance) < 1e-6


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_half_or_twice_the_noise_in_one_cell_is_found(factor: float) -> None:
    values = noise(400.0, 128, 5000)
    values[:, 3] = noise(400.0 * factor, 128)

    assert p_value(values, 400.0) < 1e-6


def test_continuous_noise_needs_no_half_steps() -> None:
    right = RNG.standard_normal((128, 1000)) * 0.01
    wrong = right.copy()
    wrong[:, 5] /= 2

    assert p_value(right, 1e-4, discrete=False) > 1e-4
    assert p_value(wrong, 1e-4, discrete=False) < 1e-6


def test_a_cell_may_have_many_values_and_another_one_none() -> None:
    cells = CellNoise(4, discrete=True)
    cells.add_to(1, noise(100.0, 650), 100.0)
    cells.add_to(3, np.zeros(650), 100.0)

    (found,) = cells.findings("noise", "the noise of a message", "client")

    assert found.p_value < 1e-100
    assert "in client 3," in found.sentence
    assert CellNoise(4, discrete=True).findings("noise", "the noise", "client") == []


def test_a_shift_above_what_is_allowed_is_found_in_one_cell_of_many() -> None:
    right, wrong = CellShifts(1000), CellShifts(1000)
    for cell in range(1000):
        measured = 10.0 + RNG.standard_normal()
        right.add(cell, measured, 1.0)
        wrong.add(cell, measured + (30 if cell == 9 else 0), 1.0)

    (sound,) = right.findings("clipping", 10.0, "a canary", "coordinate")
    (accused,) = wrong.findings("clipping", 10.0, "a canary", "coordinate")

    assert sound.p_value > 1e-4
    assert accused.p_value < 1e-50 and "in coordinate 9," in accused.sentence
    assert CellShifts(3).findings("clipping", 1.0, "a canary", "coordinate") == []
