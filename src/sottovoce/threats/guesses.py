"""Say how well an attack tells two cases apart: area under the curve and accuracy, each with a 95 % interval."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from sottovoce.core.errors import InputError

__all__ = ["Interval", "Judgement", "judge"]

_NORMAL_95: Final = 1.959963984540054


class Interval(NamedTuple):
    """An estimate, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Judgement(NamedTuple):
    """How well guesses tell what is so from what is not; 0.5 is guessing where both are equally frequent."""

    auc: Interval
    accuracy: Interval


def judge(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> Judgement:
    """Compare scores, the higher the likelier, with what was true; a guess is yes above 0.5.

    The area under the ROC curve is the probability that a true case scores above a false one. Its interval is DeLong's
    (DeLong, DeLong and Clarke-Pearson, Biometrics 44, 1988): with V_i the share of false cases that true case i scores
    above, and W_j the share of true cases that score above false case j, the variance is var(V) / m + var(W) / n. The
    interval of the accuracy is Clopper and Pearson's. Both take cases as independent and the guesser as given.
    """
    if truth.shape != scores.shape or truth.sum() < 2 or (~truth).sum() < 2:
        raise InputError(
            f"two true and two false cases are needed to judge an attack, got {int(truth.sum())} and "
            f"{int((~truth).sum())}; play more rounds"
        )
    above = _shares_above(scores[truth], scores[~truth])
    below = 1 - _shares_above(scores[~truth], scores[truth])
    auc = float(above.mean())
    spread = _NORMAL_95 * math.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    right = int(((scores > 0.5) == truth).sum())
    told = binomtest(right, len(truth)).proportion_ci(0.95, method="exact")
    return Judgement(
        Interval(auc, max(0.0, auc - spread), min(1.0, auc + spread)),
        Interval(right / len(truth), float(told.low), float(told.high)),
    )


def _shares_above(some: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each of some values, the share of the others that it lies above; equals count half."""
    ranks = rankdata(np.concatenate([some, others]))[: len(some)]
    return np.asarray((ranks - rankdata(some)) / len(others))
