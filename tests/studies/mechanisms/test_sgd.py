from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.studies.mechanisms.sgd import LinearClassifier, fit_sgd


def one_class(
    x: NDArray[Any], y: NDArray[Any], weights: NDArray[Any], intercept: float, epochs: int
) -> tuple[NDArray[Any], float, int]:
    """Fit one class as scikit-learn 1.2 describes it: decay, step, and a stop after five epochs without progress."""
    alpha, time, best, waited = 1e-4, 0, math.inf, 0
    for epoch in range(epochs):
        loss = 0.0
        for record, label in zip(x, y, strict=True):
            eta = 1 / (alpha * (1 / (10 * alpha) + time))
            margin = label * (float(weights @ record) + intercept)
            loss += math.log1p(math.exp(-margin)) if margin > -500 else -margin
            step = eta * label / (1 + math.exp(min(margin, 700)))
            weights = weights * (1 - eta * alpha) + step * record
            intercept += step
            time += 1
        waited = waited + 1 if loss > best - 1e-3 * len(y) else 0
        best = min(best, loss)
        if waited >= 5:
            return weights, intercept, epoch + 1
    return weights, intercept, epochs


def digits(records: int, features: int = 4) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(5)
    y = np.arange(records) % 3
    x = rng.random((records, features)) + np.eye(3, features)[y]
    return x, y


def test_sgd_makes_the_steps_of_the_slow_twin() -> None:
    x, y = digits(40)

    found = fit_sgd(x, y, 3, None, np.random.default_rng(0), epochs=2, shuffle=False)

    for k in range(3):
        weights, intercept, _ = one_class(x, np.where(y == k, 1.0, -1.0), np.zeros(4), 0.0, 2)
        np.testing.assert_allclose(found.weights[k], weights, rtol=1e-6)
        np.testing.assert_allclose(found.intercepts[k], intercept, rtol=1e-6)


def test_sgd_stops_each_class_where_the_slow_twin_does_and_starts_where_it_is_told() -> None:
    x, y = digits(12)
    start = LinearClassifier(np.full((3, 4), 0.5), np.array([0.1, 0.2, 0.3]))

    found = fit_sgd(x, y, 3, start, np.random.default_rng(0), shuffle=False)

    stops = set()
    for k in range(3):
        label = np.where(y == k, 1.0, -1.0)
        weights, intercept, epochs = one_class(x, label, np.full(4, 0.5), start.intercepts[k], 1000)
        stops.add(epochs)
        np.testing.assert_allclose(found.weights[k], weights, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.intercepts[k], intercept, rtol=1e-4, atol=1e-4)
    assert max(stops) < 1000


def test_the_start_is_not_changed() -> None:
    x, y = digits(12)
    start = LinearClassifier(np.zeros((3, 4)), np.zeros(3))

    fit_sgd(x, y, 3, start, np.random.default_rng(0), epochs=1)

    assert not start.weights.any()
    assert not start.intercepts.any()


def test_accuracy_counts_the_records_whose_class_scores_highest() -> None:
    model = LinearClassifier(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 0.5]))

    assert model.accuracy(np.array([[2.0, 1.0], [1.0, 0.9], [0.0, 0.0]]), np.array([0, 0, 1])) == 2 / 3
