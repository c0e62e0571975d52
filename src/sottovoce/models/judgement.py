"""Judge a model of any task against the best answer that looks at no record: the most frequent one, or the mean.

Classes are judged by `quality.judge`. What is told of numbers and of several answers has the same keys where they have
a meaning, and the others are absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.metrics import METRICS, Answers, as_answers
from sottovoce.models.quality import LEVEL, intervals, judge
from sottovoce.models.task import LearningTask


def judged(
    scores: NDArray[np.floating], labels: NDArray[Any], task: LearningTask, names: Sequence[str]
) -> dict[str, Any]:
    """Return everything that is told of a model beside its metrics, as plain JSON."""
    if task.target.kind == "class":
        return judge(scores, labels, task, names)
    answers = as_answers(scores, labels, task)
    return _values(answers) if task.target.kind == "number" else _answers(answers, names)


def _values(answers: Answers) -> dict[str, Any]:
    """Judge a model of numbers: is R² above 0, by its interval?"""
    mean = float(answers.labels.mean())
    baseline = {"answer": f"{mean:.4g}", "rmse": float(answers.labels.std()), "mae": _distance(answers.labels, mean)}
    found, finite = intervals(answers), answers.finite
    low = _lower(found.get("r2"))
    verdict = None
    if low is None or low <= 0:
        verdict = f"no better than always answering {mean:.4g}, the mean (RMSE {baseline['rmse']:.4g})"
        if low is not None and METRICS["r2"](answers) > 0:
            verdict += f", as far as {len(answers.labels)} test records can tell"
    spread = np.quantile(answers.errors, [0.05, 0.5, 0.95]).tolist() if finite else None
    return {
        "records": len(answers.labels),
        "baseline": baseline,
        "verdict": verdict,
        "level": LEVEL,
        "intervals": found,
        "error_quantiles": spread,  # of answer less label: 5 %, median, 95 %
    }


def _answers(answers: Answers, names: Sequence[str]) -> dict[str, Any]:
    """Judge a model of several answers: are more of them right than the most frequent ones would be?"""
    often = answers.labels.mean(0) > 0.5
    usual = float((answers.labels == often).mean())
    found = intervals(answers)
    low = _lower(found.get("accuracy"))
    verdict = None
    if low is None or low <= usual:
        verdict = f"no better than always giving the most frequent answer to each question ({usual:.2f})"
    return {
        "records": len(answers.labels),
        "baseline": {
            "answer": ", ".join(f"{name} {int(yes)}" for name, yes in zip(names, often, strict=True)),
            "accuracy": usual,
        },
        "verdict": verdict,
        "level": LEVEL,
        "intervals": found,
        "accuracy_by_answer": dict(zip(names, answers.correct.mean(0).tolist(), strict=True)),
    }


def _lower(interval: list[float] | None) -> float | None:
    return None if interval is None else interval[0]


def _distance(labels: NDArray[Any], value: float) -> float:
    return float(np.abs(labels - value).mean())
