"""Metrics of the user's own: any function of answers and labels that returns one number."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.registry import Registry
from sottovoce.models.metrics import METRICS, as_answers
from sottovoce.models.task import LearningTask, blank_labels, shape_of

FUNCTIONS: Final = Registry[Callable[..., Any]]("metric", "sottovoce.metric_functions", {}, key="[model] metrics")
"""Functions of installed packages, and any `module:function`."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@final
@dataclass(frozen=True)
class OwnMetric:
    """A function of what a model answers and of the labels, under its name in rounds and summary.

    It gets numpy arrays: the probability of each class or answer (records, classes), or of a regression the values, in
    the units of the label; and the labels: class numbers, answers of 0 and 1, or numbers.
    """

    name: str
    function: Callable[..., Any]

    def __call__(self, scores: NDArray[Any], y: NDArray[Any], task: LearningTask) -> float:
        """Return the metric of these scores; NaN where it is not defined, an error in one sentence if it fails."""
        known = as_answers(scores, y, task)
        number = task.target.kind == "number"
        answers = known.guesses if number else task.probabilities(known.scores)
        try:
            value = self.function(answers, known.labels)
        except Exception as error:  # whatever a user's function raises
            told = (str(error).strip().splitlines() or [""])[0]
            raise RunError(f"metric {self.name!r} fails on {len(y)} records: {type(error).__name__}: {told}") from error
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise RunError(f"metric {self.name!r} must return one number, got {type(value).__name__}")
        return float(value)

    def check(self, task: LearningTask) -> None:
        """Raise unless the function gives a number for made-up records."""
        records = 4 * max(2, task.classes)
        scores = np.sin(np.arange(records * task.outputs)).reshape(shape_of(task, records))
        try:
            self(scores, _labels(task, records), task)
        except RunError as error:
            raise InputError(f"{error} (on made-up records, before the run)") from error


def _labels(task: LearningTask, records: int) -> NDArray[Any]:
    """Return made-up labels of which no two neighbours are the same: many metrics need some of every kind."""
    if task.target.kind == "number":
        return task.target.centre + task.target.scale * np.linspace(-1, 1, records)
    if task.target.kind == "answers":
        return (np.arange(records)[:, None] + np.arange(task.classes)) % 2
    return blank_labels(task, records)


def read_metrics(given: Iterable[str | Callable[..., Any]], taken: Collection[str]) -> tuple[OwnMetric, ...]:
    """Return the metrics of functions and of names `module:function`; raise if a name is none or `taken`."""
    found: dict[str, OwnMetric] = {}
    for each in given:
        if not isinstance(each, str) and not callable(each):
            raise InputError(f"metrics must be functions or module:function, got {type(each).__name__}")
        function = FUNCTIONS[each] if isinstance(each, str) else each
        name = each.rpartition(":")[2] if isinstance(each, str) else getattr(each, "__name__", type(each).__name__)
        if not _NAME.fullmatch(name):
            raise InputError(f"a metric is shown by the name of its function, got {name!r}; define it with def")
        if name in METRICS or name in taken or f"{name}_final" in taken or name in found:
            raise InputError(f"metric {name!r} has a name that is taken already; name the function otherwise")
        found[name] = OwnMetric(name, function)
    return tuple(found.values())


def measure_own(
    metrics: Iterable[OwnMetric], scores: NDArray[Any], y: NDArray[Any], task: LearningTask
) -> dict[str, float]:
    """Return every metric of the user's own by name."""
    return {metric.name: metric(scores, y, task) for metric in metrics}
