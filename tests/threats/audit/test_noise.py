"""Tests of the tests of noise: they pass on the right law, and fail on a wrong one.

Each right case is checked at 1e-6, so that one of the nine fails by chance in one of 100,000 seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.bounds import Spread
from sottovoce.threats.audit.noise import discrete_gaussian, echo, repetition, shape, shift, variance

ALARM = 1e-6
VARIANCE = 16.0
COUNT = 60_000


def draw(variance: float = VARIANCE, count: int = COUNT, seed: int = 3) -> NDArray[np.int64]:
    """Return discrete Gaussians by inversion, as in a textbook."""
    reach = math.ceil(12 * math.sqrt(variance))
    return np.random.default_rng(seed).choice(
        np.arange(-reach, reach + 1), size=count, p=discrete_gaussian(variance, reach)
    )


def histogram(values: NDArray[np.int64], reach: int = 48) -> NDArray[np.int64]:
    return np.bincount(values + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize(("scale", "accused"), [(1.0, False), (0.95, True), (1.05, True), (0.5, True)])
def test_variance_is_accepted_at_its_plan_and_nowhere_else(scale: float, accused: bool) -> None:
    found = variance("v", Spread(0.0, 0).plus(scale * draw()), VARIANCE, what="noise")

    assert (found.p_value < ALARM) == accused
    assert found.statistic == pytest.approx(scale**2, rel=0.03)


def rounded(raw: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(raw).astype(np.int64)


RNG = np.random.default_rng(4)
SHAPES = {
    "discrete Gaussian": (draw(seed=8), False),
    "uniform": (rounded(RNG.uniform(-1, 1, COUNT) * math.sqrt(3 * VARIANCE)), True),
    "Laplace": (rounded(RNG.laplace(0, math.sqrt(VARIANCE / 2), COUNT)), True),
    "even numbers only": (2 * rounded(RNG.normal(0, math.sqrt(VARIANCE) / 2, COUNT)), True),
    "shifted by one": (draw() + 1, True),
}


@pytest.mark.parametrize("law", SHAPES)
def test_shape_is_accepted_for_the_discrete_gaussian_alone(law: str) -> None:
    values, accused = SHAPES[law]

    found = shape("s", histogram(values), discrete_gaussian(VARIANCE, 48), what="noise")

    assert (found.p_value < ALARM) == accused


def test_noise_that_repeats_is_found_among_much_that_does_not() -> None:
    vectors = np.stack([draw(count=2000, seed=seed) for seed in range(30)]).astype(float)
    labels = [f"vector {index}" for index in range(30)]

    honest = repetition("r", vectors, [4.0] * 30, labels, what="noise")
    vectors[17] = vectors[4]
    same = repetition("r", vectors, [4.0] * 30, labels, what="noise")
    vectors[17] = -vectors[5] / 3
    opposite = repetition("r", vectors, [4.0] * 17 + [4 / 3] + [4.0] * 12, labels, what="noise")

    assert honest.p_value > ALARM
    assert same.p_value < ALARM
    assert "vector 4 and vector 17" in same.sentence
    assert opposite.p_value < ALARM


@pytest.mark.parametrize(("after", "length"), [(1, 1999), (700, 1300), (1000, 1000), (0, 0)])
def test_a_stretch_that_comes_again_is_found_at_any_distance(after: int, length: int) -> None:
    vector = draw(count=2000, seed=12).astype(float)
    for start in range(0, length, max(after, 1)):  # as a buffer does that is not filled again
        stop = min(start + after, length)
        vector[start + after : stop + after] = vector[start:stop]

    found = echo("e", vector, 4.0, what="noise")

    assert (found.p_value < ALARM) == (length > 0)
    if length:
        assert f"after {after} " in found.sentence or after == 1


def test_a_message_of_one_value_has_no_echo() -> None:
    assert echo("e", np.ones(1), 4.0, what="noise").p_value == 1


def test_constant_noise_is_no_division_by_zero() -> None:
    found = repetition("r", np.zeros((3, 10)), [1.0] * 3, ["a", "b", "c"], what="noise")

    assert found.p_value == 1


@pytest.mark.parametrize(
    ("move", "accused"), [(0.0, False), (0.9, False), (1.0, False), (1.5, True), (-1.5, True), (100.0, True)]
)
def test_a_shift_is_accepted_up_to_one_clip_norm(move: float, accused: bool) -> None:
    scores = 10 * move + draw(count=2000)

    assert (shift("c", scores, 10.0, 4.0, what="a canary").p_value < ALARM) == accused


def test_nothing_to_test_is_refused() -> None:
    with pytest.raises(InputError):
        shift("c", np.zeros(0), 1.0, 1.0, what="a canary")
    with pytest.raises(InputError):
        shape("s", np.zeros(3, np.int64), np.ones(3) / 3, what="noise")
    with pytest.raises(InputError):
        repetition("r", np.zeros((1, 3)), [1.0], ["a"], what="noise")
