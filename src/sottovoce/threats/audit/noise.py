"""Test released noise against its plan: how wide it is, its shape, whether it repeats, and what one client can add.

Every p value here is an upper bound, so that the false-alarm rate of a whole audit is at most what it says. The plan's
noise is a sum of discrete Gaussians, which is nearer to one discrete Gaussian than any sample could show
(`privacy.noise.lattice`), and its squares are chi-square just so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.finding import Finding
from sottovoce.threats.audit.gaussian import Spread

__all__ = ["discrete_gaussian", "distance_p_value", "echo", "repetition", "shape", "shift", "variance"]


def variance(name: str, spread: Spread, planned: float, *, what: str) -> Finding:
    """Compare the sum of many squares with the planned variance, two-sided: sum / variance ~ chi-square(count)."""
    from scipy.stats import chi2

    statistic = spread.squares / planned
    tail = min(float(chi2.cdf(statistic, spread.values)), float(chi2.sf(statistic, spread.values)))
    ratio = math.sqrt(statistic / spread.values)
    return Finding(
        name,
        ratio**2,
        min(1.0, 2 * tail),
        f"{what} has {ratio:.4g} times the standard deviation of the plan, over {spread.values} values",
    )


def discrete_gaussian(variance: float, reach: int, centre: float = 0.0) -> NDArray[np.float64]:
    """Return the probabilities of the integers -reach .. reach: in proportion to exp(-(j - centre)^2 / 2 variance)."""
    points = np.arange(-reach, reach + 1, dtype=np.float64) - centre
    weights = np.exp(-(points**2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def shape(name: str, counts: NDArray[np.int64], probabilities: NDArray[np.float64], *, what: str) -> Finding:
    """Compare a histogram with the law of its cells, by the largest distance of the two cumulated.

    D = sup |F_n - F| and P[D > d] <= 2 exp(-2 n d^2) for every n and every law, discrete ones too (Dvoretzky, Kiefer,
    Wolfowitz 1956, with the constant of Massart 1990).
    """
    if counts.shape != probabilities.shape or not counts.sum():
        raise InputError(f"a histogram needs a probability for each cell, got {counts.shape} and {probabilities.shape}")
    total = int(counts.sum())
    distance = float(np.max(np.abs(np.cumsum(counts) / total - np.cumsum(probabilities))))
    return Finding(
        name,
        distance,
        distance_p_value(distance, total),
        f"{what} does not have the law of the plan: its distribution function is off by {distance:.3g}, over {total} "
        "values",
    )


def distance_p_value(distance: float, count: int) -> float:
    """Bound the probability that `count` independent values are so far from their law."""
    return min(1.0, 2 * math.exp(-2 * count * distance * distance))


def repetition(
    name: str, vectors: NDArray[np.float64], stddevs: Sequence[float], labels: Sequence[str], *, what: str
) -> Finding:
    """Look for two vectors of noise that go together, as they do if a seed is used twice.

    Given y, <x, y> of a sub-Gaussian x is sub-Gaussian with variance sigma^2 |y|^2, and discrete Gaussians are
    sub-Gaussian (Canonne, Kamath, Steinke 2020), so P[|<x, y>| > t sigma |y|] <= 2 exp(-t^2 / 2); a union bound over
    all pairs.
    """
    count = len(vectors)
    if count < 2:
        raise InputError("to look for noise that repeats needs two vectors of it")
    products = vectors @ vectors.T
    norms = np.sqrt(np.diag(products))
    scaled = np.abs(products) / np.maximum(np.outer(np.asarray(stddevs), norms), 1e-300)
    scaled = np.minimum(scaled, scaled.T)  # either of a pair can be the one that is given
    np.fill_diagonal(scaled, 0.0)
    one, other = divmod(int(np.argmax(scaled)), count)
    largest = float(scaled[one, other])
    p_value = min(1.0, count * (count - 1) * math.exp(-largest * largest / 2))
    return Finding(
        name,
        largest,
        p_value,
        f"{what} repeats: {labels[one]} and {labels[other]} are {largest:.3g} standard deviations from independent",
    )


def echo(name: str, vector: NDArray[np.float64], stddev: float, *, what: str) -> Finding:
    """Look for a stretch of noise that comes again later in the same vector, at any distance.

    c_k = sum of x_i x_(i+k), for all k at once by an FFT. Cut the x_i into blocks of k: given the odd blocks the terms
    that begin in even ones are linear in independent sub-Gaussian values, and the other way round. So
    P[|c_k| > 2 t sigma |x|] <= 4 exp(-t^2 / 2); a union bound over all k.
    """
    count = vector.size
    size = 1 << (2 * count - 1).bit_length()
    products = np.abs(np.fft.irfft(np.abs(np.fft.rfft(vector, size)) ** 2, size)[1:count])
    norm = float(np.linalg.norm(vector))
    at = int(np.argmax(products)) if count > 1 else 0
    largest = float(products[at]) / max(2 * stddev * norm, 1e-300) if count > 1 else 0.0
    return Finding(
        name,
        largest,
        min(1.0, 4 * count * math.exp(-largest * largest / 2)),
        f"{what} comes again after {at + 1} values of the same message",
    )


def shift(name: str, scores: NDArray[Any], most: float, stddev: float, *, what: str) -> Finding:
    """Compare the mean of scores along a canary with the most that one client may move the sum, in either direction.

    With m games the mean is within N(0, stddev^2 / m) of the shift; P[|mean| - most > t stddev / sqrt(m)] <= 2 Phi(-t).
    """
    from scipy.stats import norm

    if scores.size == 0:
        raise InputError("to measure a shift needs a game with the canary")
    mean = float(np.mean(scores, dtype=np.float64))
    statistic = (abs(mean) - most) / (stddev / math.sqrt(scores.size))
    return Finding(
        name,
        statistic,
        min(1.0, 2 * float(norm.sf(statistic))),
        f"{what} moves the sum by {mean / most:.4g} times the most that one client may",
    )
