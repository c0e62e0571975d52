from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.studies.mechanisms.minimiser import gradient_norm, l1_sensitivity, l2_sensitivity, minimise

Values = NDArray[np.float64]


def problem(rng: np.random.Generator, records: int, features: int = 3, classes: int = 3) -> tuple[Values, Any]:
    x = rng.standard_normal((records, features))
    return x / np.linalg.norm(x, axis=1, keepdims=True), rng.integers(0, classes, records)


def gradient_descent(x: Values, y: NDArray[np.int64], regulariser: float) -> Values:
    """Find the minimiser slowly: plain steps of 1 / (1 + regulariser) until nothing moves."""
    weights = np.zeros((3, x.shape[1]))
    for _ in range(20_000):
        scores = np.exp(x @ weights.T)
        chances = scores / scores.sum(1, keepdims=True)
        gradient = (chances - np.eye(3)[y]).T @ x / len(x) + regulariser * weights
        weights = weights - gradient / (1 + regulariser)
        if np.abs(gradient).max() < 1e-13:
            break
    return weights


def test_the_minimiser_is_that_of_plain_gradient_descent() -> None:
    x, y = problem(np.random.default_rng(1), 30)

    found = minimise(x, y, 3, 0.05, 1e-9)

    assert np.abs(found - gradient_descent(x, y, 0.05)).max() < 1e-7
    assert gradient_norm(found, x, y, 0.05) <= 1e-9


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), regulariser=st.sampled_from([0.01, 0.3]), records=st.sampled_from([1, 2, 6]))
def test_one_record_moves_the_minimiser_by_no_more_than_the_sensitivity(
    seed: int, regulariser: float, records: int
) -> None:
    rng = np.random.default_rng(seed)
    x, y = problem(rng, records)
    other_x, other_y = x.copy(), y.copy()
    other_x[0], other_y[0] = problem(rng, 1)[0][0] * rng.choice([1.0, 0.0]), rng.integers(0, 3)

    moved = minimise(x, y, 3, regulariser, 1e-8) - minimise(other_x, other_y, 3, regulariser, 1e-8)

    assert np.linalg.norm(moved) <= l2_sensitivity(records, regulariser, 1e-8)
    assert np.abs(moved).sum() <= l1_sensitivity(records, regulariser, 1e-8, moved.size)


def test_the_sensitivity_is_nearly_reached() -> None:
    """Replace the only record by its opposite class: at a strong regulariser the bound is tight within a third."""
    x = np.array([[1.0, 0.0]])
    opposite = minimise(x, np.array([0]), 2, 50.0, 1e-10) - minimise(x, np.array([1]), 2, 50.0, 1e-10)

    assert 0.45 < np.linalg.norm(opposite) / l2_sensitivity(1, 50.0, 1e-10) <= 1


def test_what_is_released_lies_within_tolerance_over_regulariser_of_the_minimiser() -> None:
    x, y = problem(np.random.default_rng(3), 20)
    exact = minimise(x, y, 3, 0.05, 1e-8)

    for seed in range(5):
        start = np.random.default_rng(seed).standard_normal(exact.shape)
        assert np.linalg.norm(minimise(x, y, 3, 0.05, 1e-3, start) - exact) <= (1e-3 + 1e-8) / 0.05


def test_the_sensitivity_by_hand() -> None:
    assert l2_sensitivity(1000, 0.1, 1e-6) == pytest.approx((2 * math.sqrt(2) / 1000 + 2e-6) / 0.1)
    assert l1_sensitivity(1000, 0.1, 0.0, 7850) == pytest.approx(math.sqrt(7850) * 2 * math.sqrt(2) / 100)


def test_a_record_that_is_too_long_is_refused() -> None:
    with pytest.raises(RunError, match=r"length 1\.5, and the sensitivity holds for lengths of at most 1"):
        minimise(np.array([[1.5, 0.0]]), np.array([0]), 2, 1.0, 1e-6)


def test_a_tolerance_out_of_reach_is_refused_and_nothing_is_released() -> None:
    x, y = problem(np.random.default_rng(4), 20)

    with pytest.raises(RunError, match="was not found to a gradient of 1e-300"):
        minimise(x, y, 3, 1e-4, 1e-300)
