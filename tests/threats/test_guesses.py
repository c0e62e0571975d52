from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sottovoce.core.errors import InputError
from sottovoce.threats.measures import judge


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=6, max_size=40))
def test_the_area_is_scikit_learns(cases: list[tuple[bool, int]]) -> None:
    truth = np.array([True, True, False, False, *(case for case, _ in cases)])
    scores = np.array([0, 3, 2, 5, *(score for _, score in cases)]) / 5

    assert judge(truth, scores).auc.value == pytest.approx(roc_auc_score(truth, scores))


def test_delongs_variance_is_that_of_pairs_written_out() -> None:
    truth, scores = np.array([1, 1, 1, 0, 0, 0, 0], bool), np.array([0.9, 0.4, 0.7, 0.4, 0.2, 0.8, 0.1])
    pairs = np.array([[(a > b) + 0.5 * (a == b) for b in scores[~truth]] for a in scores[truth]])
    variance = pairs.mean(1).var(ddof=1) / 3 + pairs.mean(0).var(ddof=1) / 4

    found = judge(truth, scores).auc

    assert found.value == pytest.approx(pairs.mean())
    assert found.low == pytest.approx(max(0, pairs.mean() - 1.96 * variance**0.5), abs=1e-4)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Normal scores a distance d apart have the area Phi(d / sqrt 2) = 0.76. False alarms: below 1 in 10^4 seeds."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        truth = np.arange(120) % 2 == 0
        auc = judge(truth, rng.standard_normal(120) + truth).auc
        inside += auc.low <= 0.76025 <= auc.high

    assert 360 <= inside <= 395


def test_accuracy_counts_guesses_above_a_half() -> None:
    truth = np.array([1, 1, 0, 0], bool)

    found = judge(truth, np.array([0.6, 0.5, 0.4, 0.9])).accuracy

    assert found.value == 0.5
    assert (found.low, found.high) == pytest.approx((0.0676, 0.9324), abs=1e-4)


def test_cases_of_one_kind_cannot_be_judged() -> None:
    with pytest.raises(InputError, match="two true and two false cases are needed to judge an attack, got 3 and 1"):
        judge(np.array([1, 1, 1, 0], bool), np.zeros(4))
