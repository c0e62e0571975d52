"""Judge a model's answers: against always giving the most frequent answer, with intervals, class by class.

Everything here is computed from scores and labels of the same records. Whose records they are, and whether what is
computed may be published, is for the caller (`privacy/release.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.metrics import METRICS, Answers, as_answers
from sottovoce.models.task import LearningTask

LEVEL: Final = 0.95  # of every interval
_RESAMPLES: Final = 500
_DRAWS: Final = 5_000_000  # of all resamples together, so that a large test set does not take minutes
_BINS: Final = 10
_SEED: Final = 20_260  # resampling is part of the measurement: the same answers have the same interval
CHANCE: Final = {"balanced_accuracy": 0.5, "auroc": 0.5}  # of a model that does not look at the record


class Baseline(NamedTuple):
    """The best model that looks at no record: it always gives the most frequent answer."""

    answer: str
    accuracy: float

    @classmethod
    def of(cls, labels: NDArray[np.int64], names: Sequence[str]) -> Baseline:
        """Return the baseline on these records; of answers that are equally frequent, the first.

        >>> Baseline.of(np.array([0, 1, 0, 0]), ("no", "yes"))
        Baseline(answer='no', accuracy=0.75)
        """
        counts = np.bincount(labels, minlength=len(names))
        most = int(counts.argmax())
        return cls(names[most], float(counts[most] / len(labels)))


def accuracy_interval(accuracy: float, records: int, level: float = LEVEL) -> tuple[float, float]:
    """Return where the accuracy of other records of the same kind would lie: the bootstrap interval of a share.

    A resample of right and wrong answers has a binomial number of right ones, so nothing need be drawn. Where all
    answers are right, or all are wrong, resampling shows no spread; there the bound of Clopper and Pearson is taken.

    >>> [round(bound, 3) for bound in accuracy_interval(0.8, 100)]
    [0.72, 0.88]
    """
    from scipy.special import bdtr  # scipy.stats, which has the quantile, takes a second to import

    right, tail = round(accuracy * records), (1 - level) / 2
    if right in (0, records):
        gap = 1 - tail ** (1 / records)
        return (0.0, gap) if right == 0 else (1 - gap, 1.0)

    def quantile(share: float) -> float:
        return bisect_left(range(records), share, key=lambda count: float(bdtr(count, records, accuracy))) / records

    return quantile(tail), quantile(1 - tail)


def verdict(accuracy: float, records: int, baseline: Baseline) -> str | None:
    """Say that a model is no better than the baseline; None if the interval of its accuracy lies above it.

    >>> verdict(0.84, 500, Baseline("no", 0.86))
    "no better than always answering 'no' (0.86)"
    >>> verdict(0.95, 500, Baseline("no", 0.86)) is None
    True
    """
    low, high = accuracy_interval(accuracy, records)
    if low > baseline.accuracy:
        return None
    words = f"no better than always answering {baseline.answer!r} ({short_share(baseline.accuracy)})"
    if accuracy > baseline.accuracy:
        words += f", as far as {records} test records can tell (accuracy {short_share(low)} to {short_share(high)})"
    return words


def verdict_at_threshold(quality: dict[str, Any]) -> str | None:
    """Say that answers at a chosen threshold are no better than a coin; None if they are, or one class is absent.

    Such a threshold gives up accuracy for the rarer class, so the most frequent answer is no measure of it.
    """
    shares, records = quality["accuracy_by_class"], [sum(row) for row in quality["confusion"]]
    if len(shares) != 2 or None in shares:
        return None
    balanced = sum(shares) / 2
    spread = math.sqrt(sum(share * (1 - share) / count for share, count in zip(shares, records, strict=True))) / 2
    if balanced - 1.96 * spread > CHANCE["balanced_accuracy"]:
        return None
    return f"no better than a coin at this threshold (balanced accuracy {short_share(balanced)})"


def remedies(quality: dict[str, Any], *, private: bool) -> list[str]:
    """Return what to try with a model that is no better than its baseline."""
    tries = []
    ranks = (quality.get("intervals") or {}).get("auroc")
    if ranks is not None and ranks[0] > CHANCE["auroc"]:
        tries.append(
            "it ranks records better than chance (AUROC): choose a decision threshold "
            "(sottovoce predict --threshold chosen)"
        )
    if private:
        tries.append(
            "more clients, a larger epsilon, or fewer numbers to protect: a logistic model, a front, fl-once for tables"
        )
        tries.append("see what the noise leaves: sottovoce plan FILE")
    else:
        tries.append("more rounds or another learning rate (sottovoce tune)")
    tries.append("check that the label column and the features are what they should be")
    return tries


def judge(
    scores: NDArray[np.floating], labels: NDArray[Any], task: LearningTask, names: Sequence[str]
) -> dict[str, Any]:
    """Return everything that is told of a model beside its metrics, as plain JSON.

    >>> from sottovoce.models.task import ClassTask
    >>> judge(np.array([2.0, -1.0, 1.0]), np.array([1, 0, 0]), ClassTask(2, single=True), ("no", "yes"))["sensitivity"]
    1.0
    """
    answers, binary = as_answers(scores, labels, task), task.binary
    records, baseline = len(answers.labels), Baseline.of(answers.labels, names)
    accuracy = float(answers.correct.mean())
    by_class = [_share(answers.correct[answers.labels == each]) for each in range(len(names))]
    measured = [(share, name) for share, name in zip(by_class, names, strict=True) if share is not None]
    worst = min(measured, key=lambda pair: pair[0])
    told: dict[str, Any] = {
        "records": records,
        "accuracy": accuracy,
        "baseline": baseline._asdict(),
        "verdict": verdict(accuracy, records, baseline),
        "level": LEVEL,
        "intervals": intervals(answers),
        "classes": list(names),
        "accuracy_by_class": by_class,
        "worst_class": {"name": worst[1], "accuracy": worst[0]},
        "confusion": confusion(answers, len(names)).tolist(),
        "sensitivity": by_class[1] if binary else None,
        "specificity": by_class[0] if binary else None,
    }
    return told | calibration(answers)


def confusion(answers: Answers, classes: int) -> NDArray[np.int64]:
    """Count records by what they are (row) and what they are taken for (column); a score of no number is in none."""
    guesses = answers.guesses
    known = guesses >= 0
    places = answers.labels[known] * classes + guesses[known]
    return np.bincount(places, minlength=classes * classes).reshape(classes, classes)


def by_group(answers: Answers, column: str, names: Sequence[str], places: NDArray[np.int64]) -> dict[str, Any]:
    """Judge a model group by group, with the worst one and the mean of the worst tenth of groups.

    Of classes and answers by accuracy, of numbers by the mean error. A group without test records is left out.
    """
    number = answers.task.target.kind == "number"
    each = (
        np.abs(answers.errors) if number else np.asarray(answers.correct, np.float64).reshape(len(places), -1).mean(1)
    )
    measure = "mae" if number else "accuracy"
    groups = []
    for place, name in enumerate(names):
        inside = places == place
        if records := int(inside.sum()):
            value = float(each[inside].mean())
            told: dict[str, Any] = {"name": name, "records": records, measure: value if math.isfinite(value) else None}
            whole = answers.task.target.kind == "class"
            groups.append(told | ({"interval": list(accuracy_interval(value, records, LEVEL))} if whole else {}))
    known = [group for group in groups if group[measure] is not None]
    worst = sorted(known, key=lambda group: -group[measure] if number else group[measure])
    tenth = [group[measure] for group in worst[: math.ceil(len(worst) / 10)]]
    return {
        "column": column,
        "groups": groups,
        "worst": worst[0]["name"] if worst else None,
        f"worst_tenth_{measure}": sum(tenth) / len(tenth) if tenth else None,
    }


def calibration(answers: Answers) -> dict[str, Any]:
    """Return how far the stated probabilities are from how often they come true.

    Of each record the probability of the answer that was given, in ten bins of equal width; `calibration_error` is the
    mean distance between the mean probability and the share of right answers of a bin, weighted by its records.
    """
    if not answers.finite:
        return {"calibration_error": None, "calibration": None}
    stated = answers.task.probabilities(answers.scores).max(1)
    places = np.minimum((stated * _BINS).astype(int), _BINS - 1)
    bins = []
    for place in range(_BINS):
        inside = places == place
        if inside.any():
            mean, right = float(stated[inside].mean()), float(answers.correct[inside].mean())
            bins.append({"records": int(inside.sum()), "probability": mean, "accuracy": right})
    error = sum(each["records"] * abs(each["probability"] - each["accuracy"]) for each in bins) / len(stated)
    return {"calibration_error": error, "calibration": bins}


def probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each class, one row a record, from logits."""
    logits = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def intervals(answers: Answers) -> dict[str, list[float] | None]:
    """Return the bootstrap interval of every metric that is summarised; null where the metric is not defined."""
    found: dict[str, list[float] | None] = {}
    records = len(answers.labels)
    for name, metric in METRICS.items():
        if not metric.summarised or not metric.fits(answers.task):
            continue
        value = metric(answers)
        if not math.isfinite(value):
            found[name] = None
        elif name == "accuracy":
            found[name] = list(accuracy_interval(value, records))
        else:
            found[name] = _resampled(answers, name)
    return found


def _resampled(answers: Answers, name: str) -> list[float] | None:
    """Return the percentile interval of a metric over records drawn with replacement."""
    rng, records = np.random.default_rng(_SEED), len(answers.labels)
    count = int(np.clip(_DRAWS // records, 100, _RESAMPLES))
    values = []
    for _ in range(count):
        drawn = rng.integers(0, records, records)
        values.append(METRICS[name](answers.drawn(drawn)))
    finite = [value for value in values if math.isfinite(value)]  # a resample may lack a class
    tail = (1 - LEVEL) / 2
    return [float(bound) for bound in np.quantile(finite, [tail, 1 - tail])] if finite else None


def _share(right: NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if len(right) else None


def short_share(share: float) -> str:
    """Return a share in two digits, or as many as tell it from 0 and 1.

    >>> short_share(0.8612), short_share(0.9986)
    ('0.86', '0.9986')
    """
    return f"{share:.2f}" if 0.01 <= share <= 0.99 else f"{share:.4f}"
