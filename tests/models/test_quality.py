from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.models.metrics import as_answers, evaluate
from sottovoce.models.quality import (
    Baseline,
    accuracy_interval,
    confusion,
    intervals,
    judge,
    remedies,
    verdict,
)
from sottovoce.models.task import ClassTask

ONE = ClassTask(2, single=True)

NAMES = ("no", "yes")
LABELS = st.lists(st.integers(0, 1), min_size=1, max_size=40)


@given(LABELS)
def test_the_baseline_is_the_accuracy_of_the_best_constant_answer(labels: list[int]) -> None:
    y = np.array(labels)

    baseline = Baseline.of(y, NAMES)

    constant = {name: float((y == number).mean()) for number, name in enumerate(NAMES)}
    assert baseline.accuracy == pytest.approx(max(constant.values()))
    assert constant[baseline.answer] == baseline.accuracy


@given(LABELS)
def test_a_model_that_always_gives_one_answer_is_never_better_than_the_baseline(labels: list[int]) -> None:
    y = np.array(labels)
    for score in (-1.0, 1.0):
        assert judge(np.full(len(y), score), y, ONE, NAMES)["verdict"] is not None


def test_a_coin_on_a_rare_class_is_called_no_better_than_no() -> None:
    y = np.array([0] * 86 + [1] * 14)
    coin = np.random.default_rng(1).normal(size=100)

    told = judge(coin, y, ONE, NAMES)

    assert told["verdict"] == "no better than always answering 'no' (0.86)"
    assert told["baseline"] == {"answer": "no", "accuracy": 0.86}


def test_a_model_above_the_baseline_whose_interval_reaches_it_is_told_with_the_interval() -> None:
    told = verdict(0.9, 50, Baseline("no", 0.86))

    assert told == (
        "no better than always answering 'no' (0.86), as far as 50 test records can tell (accuracy 0.82 to 0.98)"
    )
    assert verdict(0.9, 5000, Baseline("no", 0.86)) is None


@given(st.integers(2, 60), st.data())
def test_the_interval_of_accuracy_is_that_of_resampling_the_records(records: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(1, records - 1))
    correct = np.arange(records) < right
    rng = np.random.default_rng(0)
    drawn = correct[rng.integers(0, records, (4000, records))].mean(1)  # the slow twin

    low, high = accuracy_interval(right / records, records)

    # Between two quantiles that 4,000 resamples place almost surely (more than 5 standard deviations apart).
    assert np.quantile(drawn, 0.012) - 1e-9 <= low <= np.quantile(drawn, 0.04) + 1e-9
    assert np.quantile(drawn, 0.96) - 1e-9 <= high <= np.quantile(drawn, 0.988) + 1e-9


def test_an_interval_of_all_right_answers_is_not_a_point() -> None:
    low, high = accuracy_interval(1.0, 20)

    assert high == 1.0
    assert low**20 == pytest.approx(1 - (1 - 0.025)) or low == pytest.approx(0.025 ** (1 / 20))
    assert accuracy_interval(0.0, 20) == pytest.approx((0.0, 1 - low))


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng, hits, tries = np.random.default_rng(3), 0, 300
    for _ in range(tries):
        measured = rng.binomial(200, 0.8) / 200
        low, high = accuracy_interval(measured, 200)
        hits += low <= 0.8 <= high

    # Binomial(300, 0.95) is below 270 with probability 2e-4; half as wide an interval would hit 200 times.
    assert hits >= 270


def test_intervals_of_other_metrics_lie_around_their_values() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 400)
    answers = as_answers(rng.normal(size=400) + y, y, ONE)

    told, values = intervals(answers), evaluate(answers.scores, y, ONE)

    for name in ("accuracy", "balanced_accuracy", "auroc"):
        bounds = told[name]
        assert bounds is not None and bounds[0] < values[name] < bounds[1] < bounds[0] + 0.15
    assert told == intervals(answers)  # the same answers have the same interval


def test_confusion_has_what_records_are_in_rows() -> None:
    scores, y = np.array([[2.0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 0, np.nan]]), np.array([0, 1, 2, 2])

    told = judge(scores, y, ClassTask(3), ("a", "b", "c"))

    assert told["confusion"] == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]  # a record without a finite score is in no column
    assert told["accuracy_by_class"] == [1.0, 1.0, 0.0]
    assert told["worst_class"] == {"name": "c", "accuracy": 0.0}
    assert told["calibration_error"] is None
    assert told["sensitivity"] is None


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 1)), min_size=1, max_size=40))
def test_sensitivity_and_specificity_follow_from_the_confusion_matrix(pairs: list[tuple[float, int]]) -> None:
    scores, y = np.array([score for score, _ in pairs]), np.array([label for _, label in pairs])

    told = judge(scores, y, ONE, NAMES)

    counts = confusion(as_answers(scores, y, ONE), 2)
    for name, row in (("specificity", 0), ("sensitivity", 1)):
        share = counts[row, row] / counts[row].sum() if counts[row].sum() else None
        assert told[name] == (None if share is None else pytest.approx(share))


def test_probabilities_that_come_true_have_no_calibration_error() -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=20_000) * 2
    y = (rng.random(20_000) < 1 / (1 + np.exp(-logits))).astype(int)

    honest = judge(logits, y, ONE, NAMES)["calibration_error"]
    boastful = judge(5 * logits, y, ONE, NAMES)["calibration_error"]

    assert honest < 0.02 < 0.1 < boastful


def test_a_class_without_records_has_no_accuracy() -> None:
    told = judge(np.zeros((3, 3)), np.array([0, 0, 1]), ClassTask(3), ("a", "b", "c"))

    assert told["accuracy_by_class"] == [1.0, 0.0, None]
    assert told["worst_class"]["name"] == "b"


def test_a_weak_model_that_ranks_well_is_given_a_threshold_to_try() -> None:
    rng = np.random.default_rng(9)
    y = np.array([0] * 430 + [1] * 70)
    told = judge(rng.normal(size=500) + y - 5, y, ONE, NAMES)

    assert told["verdict"] is not None
    assert "predict --threshold" in remedies(told, private=False)[0]
    assert "larger epsilon" in remedies(told, private=True)[1]


def test_scores_that_are_no_numbers_are_judged_too() -> None:
    told = judge(np.full((4, 2), math.nan), np.array([0, 1, 1, 1]), ClassTask(2), NAMES)

    assert told["accuracy"] == 0 and told["verdict"] is not None
