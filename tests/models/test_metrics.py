import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.models import METRICS, Metric, evaluate
from sottovoce.models.task import ClassTask

ONE = ClassTask(2, single=True)


def test_uniform_logits_lose_the_logarithm_of_the_classes() -> None:
    metrics = evaluate(np.zeros((4, 10)), np.array([0, 1, 2, 3]), ClassTask(10))

    assert metrics == {"accuracy": 0.25, "loss": pytest.approx(math.log(10))}


def test_binary_tasks_add_balanced_accuracy_and_auroc() -> None:
    metrics = evaluate(np.array([-2.0, -1.0, 1.0, -0.5]), np.array([0, 0, 0, 1]), ONE)

    assert metrics["accuracy"] == 0.5
    assert metrics["balanced_accuracy"] == pytest.approx((2 / 3 + 0) / 2)
    assert metrics["auroc"] == pytest.approx(2 / 3)
    assert metrics["loss"] == pytest.approx(np.mean(np.log1p(np.exp([-2.0, -1.0, 1.0, 0.5]))))


@given(st.lists(st.tuples(st.floats(-50, 50), st.booleans()), min_size=1, max_size=30))
def test_one_logit_means_the_same_as_two_with_a_zero(pairs: list[tuple[float, bool]]) -> None:
    scores = np.array([score for score, _ in pairs])
    y = np.array([label for _, label in pairs], np.uint8)

    one = evaluate(scores, y, ONE)
    two = evaluate(np.stack([np.zeros_like(scores), scores], axis=1), y, ClassTask(2))

    assert one["accuracy"] == two["accuracy"]
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-9)


def test_large_logits_do_not_overflow() -> None:
    assert evaluate(np.array([[3e38, -3e38]], np.float32), np.array([1]), ClassTask(2))["loss"] == pytest.approx(6e38)
    assert evaluate(np.array([-1e30, 1e30]), np.array([0, 1]), ONE)["loss"] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_a_wrong_answer(bad: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = evaluate(np.array([[1.0, 0.0], [bad, -bad]]), np.array([0, 1]), ClassTask(2))
        binary = evaluate(np.array([-1.0, 1.0, bad]), np.array([0, 1, 1]), ONE)

    assert many["accuracy"] == 0.5
    assert math.isnan(many["loss"])
    assert binary["accuracy"] == pytest.approx(2 / 3)
    assert binary["balanced_accuracy"] == pytest.approx(0.75)
    assert math.isnan(binary["loss"])
    assert math.isnan(binary["auroc"])


def test_one_class_alone_has_no_balance() -> None:
    metrics = evaluate(np.array([1.0, 2.0]), np.array([1, 1]), ONE)

    assert metrics["accuracy"] == 1
    assert math.isnan(metrics["balanced_accuracy"])
    assert math.isnan(metrics["auroc"])


@pytest.mark.parametrize("scores", [np.zeros((3, 2)), np.zeros((0, 2)), np.zeros(2)])
def test_scores_that_do_not_fit_the_labels_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(InputError, match="do not fit"):
        evaluate(scores, np.zeros(min(len(scores), 2), np.int64), ClassTask(2))


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_balanced_accuracy_and_auroc_are_those_of_scikit_learn_also_with_ties(pairs: list[tuple[int, bool]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores = np.array([score for score, _ in pairs]) / 3
    labels = np.array([label for _, label in pairs], np.int64)
    ours = evaluate(scores, labels, ONE)

    if len(set(labels)) == 1:
        assert math.isnan(ours["balanced_accuracy"]) and math.isnan(ours["auroc"])
        return
    assert ours["auroc"] == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)
    assert ours["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(labels, scores > 0), abs=1e-12)


def test_auroc_of_a_large_skewed_set_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    labels = (rng.random(50_000) < 0.01).astype(np.int64)
    scores = np.round(rng.normal(labels, 2), 2)  # many ties

    ours = evaluate(scores, labels, ONE)["auroc"]

    assert ours == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)


def test_every_metric_of_the_table_is_computed_where_it_fits() -> None:
    binary = evaluate(np.array([-1.0, 1.0]), np.array([0, 1]), ONE)
    many = evaluate(np.zeros((2, 3)), np.array([0, 1]), ClassTask(3))

    assert list(binary) == [name for name, metric in METRICS.items() if metric.fits(ONE)]
    assert list(many) == [name for name, metric in METRICS.items() if metric.fits(ClassTask(3))]
    assert all(isinstance(metric, Metric) and metric.words and metric.short for _, metric in METRICS.items())


def test_a_metric_from_outside_is_measured_and_described_like_ours() -> None:
    from sottovoce.runs.keys import record_keys

    METRICS.add("worst_class", Metric("worst class", "worst", lambda answers: float(answers.correct.min())))
    try:
        measured = evaluate(np.zeros((2, 3)), np.array([0, 1]), ClassTask(3))
        described = record_keys("rounds")["worst_class"].meaning
    finally:
        del METRICS._added["worst_class"]

    assert measured["worst_class"] == 0
    assert described == "worst class on the test records"
