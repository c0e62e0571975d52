"""The metrics: what is computed from a model's scores, and under which words; rounds, summary, reports read this table.

Whoever adds a metric adds a row to `METRICS`, or an entry point `sottovoce.metrics` of a package, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.registry import Registry
from sottovoce.models.task import TASKS, LearningTask, shape_of


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """A model's scores of some records, beside their labels, and what the model learns."""

    scores: NDArray[np.float64]  # (records, outputs), or (records,) where there is one
    labels: NDArray[Any]
    task: LearningTask

    @property
    def binary(self) -> bool:
        """Tell whether the score is that of class 1 against class 0."""
        return self.task.binary

    @cached_property
    def guesses(self) -> NDArray[Any]:
        """Return the answer to each record, as labels are."""
        return self.task.guesses(self.scores)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Tell of each record whether its class was found; a score that is not finite finds nothing."""
        return np.asarray(self.guesses == self.labels)

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """Return how far each answer lies above the label: a number's, or a number of classes in their order."""
        return np.asarray(self.guesses - np.asarray(self.labels, np.float64))

    @cached_property
    def finite(self) -> bool:
        """Tell whether every score is a number."""
        return bool(np.isfinite(self.scores).all())

    @cached_property
    def mixed(self) -> bool:
        """Tell whether there are records of both classes, of two."""
        return bool(0 < self.labels.sum() < len(self.labels))

    def drawn(self, records: NDArray[np.int64]) -> Answers:
        """Return the answers to some of the records."""
        return Answers(self.scores[records], self.labels[records], self.task)


@final
@dataclass(frozen=True)
class Metric:
    """One number about a model's answers; NaN where it is not defined."""

    words: str  # for titles and axes
    short: str  # heading of a column, on a terminal
    value: Callable[[Answers], float]
    higher: bool = True  # a higher value is better
    binary: bool = False  # for networks with one logit only
    summarised: bool = True  # summary.json has it of the final and of the best round
    tasks: tuple[str, ...] = ("classification",)  # for which it is defined

    def __call__(self, answers: Answers) -> float:
        """Return the metric of these answers."""
        return self.value(answers)

    def fits(self, task: LearningTask) -> bool:
        """Tell whether it is defined for a task."""
        return task.name in self.tasks and (task.binary or not self.binary)


def evaluate(scores: NDArray[np.floating], y: NDArray[Any], task: LearningTask) -> dict[str, float]:
    """Return every metric that fits the task, by name.

    A score that is not finite counts as a wrong answer, and makes the loss and the AUROC NaN; so does a test set of one
    class for the two binary metrics.

    >>> from sottovoce.models.task import ClassTask
    >>> evaluate(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([0, 1]), ClassTask(2))["accuracy"]
    0.5
    """
    answers = as_answers(scores, y, task)
    return {name: metric(answers) for name, metric in METRICS.items() if metric.fits(task)}


def answered(scores: NDArray[np.floating], y: NDArray[Any], task: LearningTask) -> NDArray[np.bool_]:
    """Tell of each record whether its class was found; a score that is not finite finds nothing."""
    return as_answers(scores, y, task).correct


def leading_metric(binary: bool) -> str:
    """Name the metric that chooses the best round of a classifier: two classes are seldom balanced."""
    return "balanced_accuracy" if binary else "accuracy"


def higher_is_better(metric: str) -> bool:
    """Tell whether a higher value of a metric is better, as of all but errors; so of one with an unknown name."""
    known = metric.removeprefix("held_out_")
    return known not in METRICS or METRICS[known].higher


def better(metric: str, value: float, other: float) -> bool:
    """Tell whether one value of a metric is better than another."""
    return value > other if higher_is_better(metric) else value < other


def as_answers(scores: NDArray[np.floating], y: NDArray[Any], task: LearningTask) -> Answers:
    """Return scores beside labels; raise if they do not fit each other."""
    wide = np.asarray(scores, np.float64)
    labels = np.asarray(y, np.float64 if task.target.kind == "number" else np.int64)
    if len(labels) == 0 or wide.shape != shape_of(task, len(labels)):
        raise InputError(f"scores of shape {wide.shape} do not fit {len(labels)} labels")
    return Answers(wide, labels, task)


def _accuracy(answers: Answers) -> float:
    return float(answers.correct.mean())


def _loss(answers: Answers) -> float:
    """Return the mean loss."""
    return float(answers.task.losses(answers.scores, answers.labels).mean()) if answers.finite else math.nan


def _balanced_accuracy(answers: Answers) -> float:
    """Return the mean of the accuracies on either class; NaN if one has no records."""
    if not answers.mixed:
        return math.nan
    return float(np.mean([answers.correct[answers.labels == each].mean() for each in (0, 1)]))


def _auroc(answers: Answers) -> float:
    """Return how often a record of class 1 has a higher score than one of class 0; a tie counts half.

    The ranks of class 1 tell it (Mann and Whitney): the area under the ROC curve is their sum less the least that it
    can be, over the number of pairs.
    """
    if not answers.mixed or not answers.finite:
        return math.nan
    _, places, counts = np.unique(answers.scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # equal scores share the mean of their ranks
    ones = int(answers.labels.sum())
    pairs = ones * (len(answers.labels) - ones)
    return float((ranks[answers.labels == 1].sum() - ones * (ones + 1) / 2) / pairs)


def _mae(answers: Answers) -> float:
    """Return the mean distance between answer and label."""
    return float(np.abs(answers.errors).mean()) if answers.finite else math.nan


def _rmse(answers: Answers) -> float:
    """Return the root of the mean square of the distances between answer and label."""
    return float(np.sqrt(np.square(answers.errors).mean())) if answers.finite else math.nan


def _r2(answers: Answers) -> float:
    """Return 1 less the squared errors over those of always answering the mean; NaN if all labels are the same."""
    spread = float(np.square(answers.labels - answers.labels.mean()).sum())
    return 1 - float(np.square(answers.errors).sum()) / spread if answers.finite and spread > 0 else math.nan


def _f1(answers: Answers) -> float:
    """Return 2 right yes / (yes answered + yes labelled), over all answers of all records; NaN without any yes."""
    yes, labelled = answers.guesses == 1, answers.labels == 1
    found = int(yes.sum() + labelled.sum())
    return float(2 * (yes & labelled).sum() / found) if found else math.nan


def _exact_match(answers: Answers) -> float:
    """Return the share of records of which all answers are right."""
    return float(answers.correct.all(1).mean())


_TOLD_APART: Final = ("classification", "ordinal", "multilabel")
ACCURACY: Final = Metric("accuracy", "accuracy", _accuracy, tasks=_TOLD_APART)
LOSS: Final = Metric("loss", "loss", _loss, higher=False, summarised=False, tasks=TASKS)
BALANCED_ACCURACY: Final = Metric("balanced accuracy", "balanced", _balanced_accuracy, binary=True)
AUROC: Final = Metric("AUROC", "AUROC", _auroc, binary=True)
MAE: Final = Metric("mean absolute error", "MAE", _mae, higher=False, tasks=("regression", "ordinal"))
RMSE: Final = Metric("root mean squared error", "RMSE", _rmse, higher=False, tasks=("regression",))
R2: Final = Metric("R²", "R²", _r2, tasks=("regression",))
F1: Final = Metric("F1 over all answers", "F1", _f1, tasks=("multilabel",))
EXACT_MATCH: Final = Metric("records with all answers right", "exact", _exact_match, tasks=("multilabel",))

METRICS: Final = Registry[Metric](
    "metric",
    "sottovoce.metrics",
    {
        "accuracy": "sottovoce.models.metrics:ACCURACY",
        "loss": "sottovoce.models.metrics:LOSS",
        "balanced_accuracy": "sottovoce.models.metrics:BALANCED_ACCURACY",
        "auroc": "sottovoce.models.metrics:AUROC",
        "mae": "sottovoce.models.metrics:MAE",
        "rmse": "sottovoce.models.metrics:RMSE",
        "r2": "sottovoce.models.metrics:R2",
        "f1": "sottovoce.models.metrics:F1",
        "exact_match": "sottovoce.models.metrics:EXACT_MATCH",
    },
    instance=Metric,
)
"""Every metric, under the key that it has in rounds, summary and reports."""
