"""How well an attack did: structural similarity of images, and how well two cases are told apart."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d
from scipy.stats import binomtest, rankdata

from sottovoce.core.errors import InputError

WINDOW: Final = 11
_STDDEV: Final = 1.5
_K1: Final = 0.01
_K2: Final = 0.03


def ssim(one: NDArray[Any], other: NDArray[Any], *, largest: float = 1.0) -> float:
    """Return the mean structural similarity of two images (height, width, channels): 1 if equal, about 0 if unrelated.

    In each 11 x 11 window, with Gaussian weights of standard deviation 1.5 that add up to 1,

        SSIM = (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2))

    with C1 = (0.01 L)^2 and C2 = (0.03 L)^2, L = `largest` (eq. 13); the mean is over all windows that lie inside
    the image (eq. 17), and over channels.
    """
    if one.shape != other.shape or one.ndim != 3:
        raise InputError(
            f"two images of one shape (height, width, channels) are compared, got {one.shape}, {other.shape}"
        )
    if min(one.shape[:2]) < WINDOW:
        raise InputError(f"structural similarity needs images of {WINDOW} x {WINDOW} or more, got {one.shape}")
    x, y = one.astype(np.float64), other.astype(np.float64)
    mean_x, mean_y = _local(x), _local(y)
    covariance = _local(x * y) - mean_x * mean_y
    variances = _local(x * x) - mean_x**2 + _local(y * y) - mean_y**2
    c1, c2 = (_K1 * largest) ** 2, (_K2 * largest) ** 2
    similar = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return float(np.mean(similar / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))))


def _local(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean of each window that lies inside the image."""
    place = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-(place**2) / (2 * _STDDEV**2))
    weights /= weights.sum()
    inside = slice(WINDOW // 2, -(WINDOW // 2))
    return np.asarray(correlate1d(correlate1d(image, weights, axis=0), weights, axis=1)[inside, inside])


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
