"""Each right case is checked at 1e-6: together they fail by chance in one of 100,000 seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.threats.audit.noise import NoiseSample, discrete_gaussian

ALARM = 1e-6
RNG = np.random.default_rng(6)


def discrete(variance: float, centre: float, count: int = 40_000) -> np.ndarray:
    middle, reach = round(centre), math.ceil(12 * math.sqrt(variance))
    chances = discrete_gaussian(variance, reach, centre - middle)
    return middle + RNG.choice(np.arange(-reach, reach + 1), size=count, p=chances)


def rejected(sample: NoiseSample) -> list[str]:
    return [finding.name for finding in sample.findings("noise", "the noise") if finding.p_value < ALARM]


@pytest.mark.parametrize("centre", [0.0, 0.31, -7.5, 1234.8])
def test_values_around_any_centre_are_accepted(centre: float) -> None:
    sample = NoiseSample(30.0, centre=centre)
    for _ in range(3):
        sample.add(discrete(30.0, centre))

    assert rejected(sample) == []
    assert sample.spread.values == 120_000


def test_a_wrong_width_is_a_matter_of_variance_and_not_of_shape() -> None:
    sample = NoiseSample(30.0)
    sample.add(discrete(15.0, 0.0))

    assert rejected(sample) == ["noise variance"]


def test_a_wrong_law_of_the_same_width_is_a_matter_of_shape() -> None:
    sample = NoiseSample(30.0)
    sample.add(np.rint(RNG.uniform(-1, 1, 40_000) * math.sqrt(90)))

    assert "noise shape" in rejected(sample)


@pytest.mark.parametrize(
    ("law", "wrong"), [(RNG.standard_normal, False), (lambda size: RNG.laplace(0, 2**-0.5, size), True)]
)
def test_continuous_noise_has_a_shape_too(law: object, wrong: bool) -> None:
    sample = NoiseSample(0.04, centre=3.0, discrete=False)
    sample.add(3 + 0.2 * law(40_000))  # type: ignore[operator]

    assert rejected(sample) == (["noise shape"] if wrong else [])


def test_wide_integers_share_cells() -> None:
    sample = NoiseSample(1e8, centre=0.4)
    sample.add(np.rint(0.4 + 1e4 * RNG.standard_normal(40_000)))

    assert rejected(sample) == []
    assert sample._counts.size < 2000


def test_values_far_outside_do_not_break_the_histogram() -> None:
    sample = NoiseSample(4.0)
    sample.add(np.array([1e9, -1e9, 0.0]))

    assert rejected(sample) == ["noise variance"]


def test_no_values_are_no_finding() -> None:
    assert NoiseSample(4.0).findings("noise", "the noise") == []


def test_no_noise_is_a_finding() -> None:
    sample = NoiseSample(4.0)
    sample.add(np.zeros(1000))

    assert "noise variance" in rejected(sample)
