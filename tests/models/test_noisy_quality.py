"""What is judged by noisy sums, and thresholds."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from sottovoce.federation.stages.unit_evaluation import MeasureUnits
from sottovoce.models.noisy_quality import NoisySums, choose_threshold
from sottovoce.models.quality import judge
from sottovoce.models.task import ClassTask

NAMES = ("no", "yes")
SCHEME = MeasureUnits(binary=True, classes=2, loss_bound=5.0).bind(4, seed=0)


def records(count: int = 4000, share: float = 0.13, shift: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = (rng.random(count) < share).astype(np.int64)
    return rng.normal(-2 + shift * labels, 1.0).astype(np.float32), labels


def summed(scores: np.ndarray, labels: np.ndarray, stddev: float = 0.0) -> dict[str, object]:
    sums = SCHEME.of_records(scores, labels).sum(0, dtype=np.float64)
    sums += np.random.default_rng(1).normal(0, stddev, len(sums))
    return SCHEME.metrics((sums / len(labels)).astype(np.float32), len(labels), stddev)


def judged(measured: dict[str, object]) -> dict[str, object]:
    return NoisySums.of(measured["sums"]).judge(NAMES, measured["accuracy"], measured["intervals"])  # type: ignore[arg-type]


def test_without_noise_the_sums_tell_what_the_records_tell() -> None:
    scores, labels = records()

    found, plain = judged(summed(scores, labels)), judge(scores, labels, ClassTask(2, single=True), NAMES)

    for name in ("records", "classes", "confusion", "worst_class"):
        assert found[name] == plain[name], name
    for name in ("accuracy", "sensitivity", "specificity"):
        assert found[name] == pytest.approx(plain[name], abs=1e-4), name
    assert found["baseline"]["accuracy"] == pytest.approx(plain["baseline"]["accuracy"], abs=1e-5)  # type: ignore[index]
    assert (found["verdict"] is None) == (plain["verdict"] is None)
    assert found["calibration_error"] == pytest.approx(plain["calibration_error"], abs=0.03)


def test_the_threshold_of_histograms_is_near_that_of_the_records() -> None:
    scores, labels = records()

    noisy, plain = NoisySums.of(summed(scores, labels, 5.0)["sums"]).threshold(), choose_threshold(scores, labels)

    assert noisy is not None and plain is not None
    balanced = [(told["sensitivity"] + told["specificity"]) / 2 for told in (noisy, plain)]
    assert balanced[0] == pytest.approx(balanced[1], abs=0.05)
    assert noisy["probability"] == pytest.approx(plain["probability"], abs=0.1)


def test_a_model_at_the_baseline_is_called_no_better_and_a_good_one_is_not() -> None:
    scores, labels = records()
    weak = judged(summed(np.full_like(scores, -1), labels, 5.0))
    good = judged(summed(np.where(labels == 1, 3, -3).astype(np.float32), labels, 5.0))

    assert str(weak["verdict"]).startswith("no better than always answering 'no' (0.8")
    assert good["verdict"] is None


def test_what_the_noise_hides_is_null_and_said() -> None:
    scores, labels = records(60)

    told = judged(summed(scores, labels, 8.0))

    assert told["accuracy_by_class"][1] is None  # type: ignore[index]
    assert told["threshold"] is None and told["confusion"] is None and told["sensitivity"] is None
    assert "it hides the class yes" in str(told["noise"])


def test_no_threshold_where_there_is_one_class_or_a_score_that_is_no_number() -> None:
    assert choose_threshold(np.array([1.0, 2.0]), np.array([1, 1])) is None
    assert choose_threshold(np.array([1.0, np.nan]), np.array([1, 0])) is None
    assert choose_threshold(np.array([1.0, 1.0]), np.array([1, 0])) is None


def test_the_chosen_threshold_is_the_best_of_all() -> None:
    scores, labels = records(300)

    told = choose_threshold(scores, labels)

    assert told is not None
    cut = np.log(told["probability"] / (1 - told["probability"]))
    best = max(
        (scores[labels == 1] > value).mean() + (scores[labels == 0] <= value).mean() for value in np.unique(scores)
    )
    assert (scores[labels == 1] > cut).mean() == pytest.approx(told["sensitivity"])
    assert told["sensitivity"] + told["specificity"] == pytest.approx(best)


def test_few_records_of_a_class_under_much_noise_still_give_a_useful_threshold() -> None:
    """Of 6,105 records 105, noise of 8 a bin: the worst of 40 draws keeps 0.6. The largest noisy sum does not."""
    rng, edges = np.random.default_rng(3), np.linspace(-6, 6, 33)
    worst, law = 1.0, statistics.NormalDist()
    for _ in range(40):
        scores = [np.clip(rng.normal(centre, 1.0, count), -5.9, 5.9) for centre, count in ((-5, 6000), (-3.5, 105))]
        bins = np.array([np.histogram(each, edges)[0] for each in scores]) + rng.normal(0, 8.3, (2, 32))
        sums = NoisySums(np.array([6000.0, 105.0]), np.array([6000.0, 50.0]), bins, edges, 8.3)
        told = sums.threshold()
        assert told is not None
        logit = math.log(told["probability"] / (1 - told["probability"]))
        worst = min(worst, (law.cdf(logit + 5) + 1 - law.cdf(logit + 3.5)) / 2)

    assert worst > 0.6
