"""Measure the model on records or persons that sites keep out: counts and histograms, through the same secure sum.

It is a round like any other, a sum over units: each unit that was set aside sends one short message, clipped and noised
as an update is. Of a record with class y, which the model answers rightly or not with loss l (cut off at a public L),
the message is

    1 at y            of `classes` values: how many there are of each class
    +1 or -1 at y     of `classes` values: right or wrong
    2 l / L - 1       the loss
    1 at (y, bin)     two classes only, of 2 * BINS values: the histogram of scores of each class, for the AUROC

A person with several rows sends the mean of their messages, so that each person counts once. All four parts have norm
at most 1, so the clip norm is sqrt(3), or 2 with histograms. Whoever reads the noisy sums computes from them

    accuracy, balanced accuracy, AUROC, loss

and an interval of 95 % for each: the noise (by its known deviation, to first order) and the chance of who was set
aside. A number that the noise hides is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.models import Shard, Trainer, answered
from sottovoce.models.noisy_quality import NoisySums
from sottovoce.models.task import ClassTask
from sottovoce.models.units import Units
from sottovoce.schemes import Message, Scheme, State

BINS: Final = 32
WIDEST: Final = 24.0  # logits beyond it are in the outermost bins
_FINE: Final = 3.0  # bins grow from this logit on, in proportion: a rare class has its scores far from zero
EDGES: Final = _FINE * np.sinh(np.linspace(-1, 1, BINS + 1) * math.asinh(WIDEST / _FINE))
_AT_ONCE: Final = 512  # records whose scores are computed together
_HIDDEN: Final = 4.0  # a count of fewer deviations of its noise is hidden
_NORMAL: Final = 1.96  # deviations of an interval of 95 %

Sums = NDArray[np.float64]
Matrix = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class MeasureUnits(Scheme):
    """The scheme of a measurement on units: sites score the model, and nobody trains.

    Guarantee: the message of a unit has norm at most `public_norm`, whatever its rows.
    """

    name: ClassVar[str] = "measure-units"
    paper: ClassVar[str] = "ours"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    linear: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    binary: bool
    classes: int
    loss_bound: float

    @property
    def length(self) -> int:
        """Return the number of values in a message."""
        return 2 * self.classes + 1 + (2 * BINS if self.binary else 0)

    @property
    def update_length(self) -> int:
        """Return the number of values that a site's measurer yields."""
        return self.length

    @property
    def public_norm(self) -> float:
        """Return the norm of the longest message."""
        return 2.0 if self.binary else math.sqrt(3)

    def measurer(self, trainer: Trainer) -> Trainer:
        """Return the trainer whose "updates" are measurements."""
        return _UnitMeasurer(trainer, self)

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the measurement."""
        return np.asarray(update, np.float32)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return the noisy sums, divided by the expected number of units; the model stays as it is."""
        return {"params": state["params"], "measured": np.asarray(mean, np.float32)}

    def of_records(self, scores: NDArray[np.float32], y: NDArray[Any]) -> Matrix:
        """Return the message of each record by itself; a score that is no number is wrong, at the worst loss."""
        count = len(y)
        rows, labels = np.arange(count), np.asarray(y, np.int64)
        message = np.zeros((count, self.length), np.float32)
        right = answered(scores, labels, ClassTask(self.classes, self.binary)) if count else np.zeros(0, np.bool_)
        message[rows, labels] = 1
        message[rows, self.classes + labels] = np.where(right, 1, -1)
        message[:, 2 * self.classes] = 2 * self._losses(scores, labels) / self.loss_bound - 1
        if self.binary:
            numbers = np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
            bins = np.searchsorted(EDGES[1:-1], numbers, side="left")  # answers of class 0 in the lower half
            message[rows, 2 * self.classes + 1 + labels * BINS + bins] = 1
        return message

    def _losses(self, scores: NDArray[np.float32], labels: NDArray[np.int64]) -> Sums:
        logits = np.asarray(scores, np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            if self.binary:
                losses = np.logaddexp(0, logits) - labels * logits
            else:
                shifted = logits - logits.max(axis=1, keepdims=True)
                losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
        return np.minimum(np.nan_to_num(losses, nan=self.loss_bound, posinf=self.loss_bound), self.loss_bound)

    def metrics(self, measured: Vector, expected: float, stddev: float) -> dict[str, Any]:
        """Return the metrics and their intervals, from sums that were divided by the expected number of units.

        `stddev` is that of the noise on each sum.
        """
        sums = np.asarray(measured, np.float64) * expected
        found: dict[str, Any] = {}
        intervals: dict[str, list[float] | None] = {}
        for name, formula in self._formulas().items():
            judged = self._judged(formula, sums, stddev)
            high = self.loss_bound if name == "loss" else 1.0
            found[name] = None if judged is None else min(high, max(0.0, judged.value))
            intervals[name] = None if judged is None else [max(0.0, judged.low), min(high, judged.high)]
        return {**found, "intervals": intervals, "sums": self.told(sums, stddev).describe()}

    def told(self, sums: Sums, stddev: float) -> NoisySums:
        """Return the sums by their names."""
        return NoisySums(
            counts=sums[: self.classes],
            right=self._right(sums),
            histograms=self.histograms(sums) if self.binary else None,
            edges=EDGES,
            stddev=stddev,
        )

    def _formulas(self) -> dict[str, _Formula]:
        each = {
            "accuracy": _Formula(self._accuracy, self._chance_of_accuracy),
            "loss": _Formula(self._loss, self._chance_of_loss),
        }
        if self.binary:
            each["balanced_accuracy"] = _Formula(self._balanced, self._chance_of_balanced, each_class=True)
            each["auroc"] = _Formula(self._auroc, self._chance_of_auroc, each_class=True, unseen=self._beyond)
        return each

    def _judged(self, formula: _Formula, sums: Sums, stddev: float) -> _Judged | None:
        """Return a metric with its interval; None if the noise hides a count that it divides by."""
        counts = sums[: self.classes]
        if counts.sum() < max(1.0, _HIDDEN * stddev * math.sqrt(self.classes)):
            return None
        if formula.each_class and counts.min() < max(1.0, _HIDDEN * stddev):
            return None
        value = formula.value(sums)
        slopes = np.empty(len(sums))
        for place in range(len(sums)):
            moved = np.zeros(len(sums))
            moved[place] = max(stddev / 8, 1e-6)
            slopes[place] = (formula.value(sums + moved) - formula.value(sums - moved)) / (2 * moved[place])
        spread = _NORMAL * math.sqrt(stddev**2 * float(slopes @ slopes) + max(0.0, formula.chance(sums, value)))
        spread += formula.unseen(sums)
        return _Judged(value, value - spread, value + spread)

    def _right(self, sums: Sums) -> Sums:
        return np.asarray((sums[: self.classes] + sums[self.classes : 2 * self.classes]) / 2)

    def _accuracy(self, sums: Sums) -> float:
        return float(self._right(sums).sum() / sums[: self.classes].sum())

    def _chance_of_accuracy(self, sums: Sums, value: float) -> float:
        return value * (1 - value) / float(sums[: self.classes].sum())

    def _loss(self, sums: Sums) -> float:
        return float(self.loss_bound * (sums[2 * self.classes] / sums[: self.classes].sum() + 1) / 2)

    def _chance_of_loss(self, sums: Sums, value: float) -> float:
        """Bound the variance of a mean of losses in [0, L]: none varies more than a coin between both ends."""
        return value * (self.loss_bound - value) / float(sums[: self.classes].sum())

    def _balanced(self, sums: Sums) -> float:
        return float((self._right(sums) / sums[: self.classes]).mean())

    def _chance_of_balanced(self, sums: Sums, value: float) -> float:
        shares = np.clip(self._right(sums) / sums[: self.classes], 0, 1)
        return float((shares * (1 - shares) / sums[: self.classes]).sum()) / self.classes**2

    def _auroc(self, sums: Sums) -> float:
        """Return how often class 1 scores higher. About 1/2, so that noise cancels.

        Within a bin both classes change linearly, by half of what their neighbours differ: with densities 1 + a x and
        1 + b x on [-1/2, 1/2] class 1 scores higher with a chance of 1/2 + (b - a) / 12.
        """
        zeros, ones = self.histograms(sums)
        below = np.cumsum(zeros) - zeros / 2
        known = float(ones @ (below - zeros.sum() / 2)) + _within(zeros, ones)
        return 0.5 + known / float(sums[0] * sums[1])

    def _beyond(self, sums: Sums) -> float:
        """Return how far an AUROC may be off: all of the outermost bins, and half of what lines explain inside."""
        zeros, ones = np.clip(self.histograms(sums), 0, None)
        beyond = float(zeros[0] * ones[0] + zeros[-1] * ones[-1])
        return (beyond + abs(_within(zeros, ones))) / 2 / float(sums[0] * sums[1])

    def histograms(self, sums: Sums) -> Sums:
        """Return the noisy histogram of scores of each class: (2, BINS).

        The bins of a half are moved together so that they add up to the right or wrong answers, whose noise is that of
        two values and not of all these bins.
        """
        histograms = sums[2 * self.classes + 1 : 2 * self.classes + 1 + 2 * BINS].reshape(2, BINS).copy()
        right = self._right(sums)
        wrong, half = sums[:2] - right[:2], BINS // 2
        for label, below, above in ((0, right[0], wrong[0]), (1, wrong[1], right[1])):
            for part, known in ((slice(0, half), below), (slice(half, BINS), above)):
                histograms[label, part] += (known - histograms[label, part].sum()) / half
        return histograms

    def _chance_of_auroc(self, sums: Sums, value: float) -> float:
        """Return the variance of an AUROC over samples (Hanley and McNeil 1982)."""
        area, (zeros, ones) = min(1.0, max(0.0, value)), sums[:2]
        first, second = area / (2 - area), 2 * area**2 / (1 + area)
        spread = area * (1 - area) + (ones - 1) * (first - area**2) + (zeros - 1) * (second - area**2)
        return float(spread / (zeros * ones))


def _within(zeros: Sums, ones: Sums) -> float:
    """Return how many more pairs of one bin class 1 wins than it loses, by lines through the neighbouring bins."""
    steps = [np.convolve(bins, [1.0, 0.0, -1.0], "same") for bins in (zeros, ones)]  # beyond the ends there is nobody
    return float(zeros @ steps[1] - ones @ steps[0]) / 24


def _nothing(sums: Sums) -> float:
    """Return that all is seen."""
    return 0.0


class _Formula(NamedTuple):
    """A metric of noisy sums, its variance by who was set aside, and whether it divides by the count of each class.

    `unseen` is how far it may be off beside.
    """

    value: Callable[[Sums], float]
    chance: Callable[[Sums, float], float]
    each_class: bool = False
    unseen: Callable[[Sums], float] = _nothing


class _Judged(NamedTuple):
    """A metric and its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _UnitMeasurer:
    """A trainer that scores the model on the units that a site set aside."""

    trainer: Trainer
    scheme: MeasureUnits

    def unit_messages(self, params: Vector, shard: Shard, units: Units) -> Iterator[Matrix]:
        """Yield the messages of some units at a time, a row each."""
        starts = units.starts
        for first in range(0, len(units.sizes), _AT_ONCE):
            last = min(first + _AT_ONCE, len(units.sizes))
            rows, sizes = units.rows[starts[first] : starts[last]], units.sizes[first:last]
            scores = self.trainer.scores(params, shard.x[rows])
            each = self.scheme.of_records(scores, shard.y[rows])
            yield (np.add.reduceat(each, starts[first:last] - starts[first]) / sizes[:, None]).astype(np.float32)

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the measurement of each shard as of one unit, in order."""
        for shard in shards:
            whole = Units(np.arange(len(shard.y)), np.array([len(shard.y)])) if len(shard.y) else None
            if whole is None:
                yield np.zeros(self.scheme.length, np.float32)
            else:
                yield next(self.unit_messages(params, shard, whole))[0]

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient on a shard."""
        return self.trainer.gradient(params, shard)

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the network's scores."""
        return self.trainer.scores(params, x)
