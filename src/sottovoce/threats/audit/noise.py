"""Test released noise against its plan: how wide it is, its shape, whether it repeats, and what one client can add.

Every p value here is an upper bound, so that the false-alarm rate of a whole audit is at most what it says. The plan's
noise is a sum of discrete Gaussians, which is nearer to one discrete Gaussian than any sample could show
(`privacy.noise.lattice`), and its squares are chi-square just so. Values are kept as sums and histograms as they come:
no audit holds a million vectors. Tests cell by cell multiply the p value of the worst cell by the number of cells
(union bound), whatever the cells have to do with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.bounds import Spread
from sottovoce.threats.audit.finding import AuditFinding


def variance(name: str, spread: Spread, planned: float, *, what: str) -> AuditFinding:
    """Compare the sum of many squares with the planned variance, two-sided: sum / variance ~ chi-square(count)."""
    from scipy.stats import chi2

    statistic = spread.squares / planned
    tail = min(float(chi2.cdf(statistic, spread.values)), float(chi2.sf(statistic, spread.values)))
    ratio = math.sqrt(statistic / spread.values)
    return AuditFinding(
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


def shape(name: str, counts: NDArray[np.int64], probabilities: NDArray[np.float64], *, what: str) -> AuditFinding:
    """Compare a histogram with the law of its cells, by the largest distance of the two cumulated.

    D = sup |F_n - F| and P[D > d] <= 2 exp(-2 n d^2) for every n and every law, discrete ones too (Dvoretzky, Kiefer,
    Wolfowitz 1956, with the constant of Massart 1990).
    """
    if counts.shape != probabilities.shape or not counts.sum():
        raise InputError(f"a histogram needs a probability for each cell, got {counts.shape} and {probabilities.shape}")
    total = int(counts.sum())
    distance = float(np.max(np.abs(np.cumsum(counts) / total - np.cumsum(probabilities))))
    return AuditFinding(
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
) -> AuditFinding:
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
    return AuditFinding(
        name,
        largest,
        p_value,
        f"{what} repeats: {labels[one]} and {labels[other]} are {largest:.3g} standard deviations from independent",
    )


def echo(name: str, vector: NDArray[np.float64], stddev: float, *, what: str) -> AuditFinding:
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
    return AuditFinding(
        name,
        largest,
        min(1.0, 4 * count * math.exp(-largest * largest / 2)),
        f"{what} comes again after {at + 1} values of the same message",
    )


def shift(name: str, scores: NDArray[Any], most: float, stddev: float, *, what: str) -> AuditFinding:
    """Compare the mean of scores along a canary with the most that one client may move the sum, in either direction.

    With m games the mean is within N(0, stddev^2 / m) of the shift; P[|mean| - most > t stddev / sqrt(m)] <= 2 Phi(-t).
    """
    from scipy.stats import norm

    if scores.size == 0:
        raise InputError("to measure a shift needs a game with the canary")
    mean = float(np.mean(scores, dtype=np.float64))
    statistic = (abs(mean) - most) / (stddev / math.sqrt(scores.size))
    return AuditFinding(
        name,
        statistic,
        min(1.0, 2 * float(norm.sf(statistic))),
        f"{what} moves the sum by {mean / most:.4g} times the most that one client may",
    )


_REACH: Final = 14.0  # standard deviations of the histogram; what lies beyond falls into its last cells
_CELLS: Final = 50  # in a standard deviation, where the noise is continuous
_WIDE: Final = 1000.0  # integers in a standard deviation that need no cell each


class NoiseSample:
    """Values that should follow one Gaussian law: discrete, on the integers, or continuous."""

    def __init__(self, planned: float, *, centre: float = 0.0, discrete: bool = True) -> None:
        self.planned = planned  # the variance
        self.spread = Spread(0.0, 0)
        self._centre = centre
        self._discrete = discrete and math.sqrt(planned) <= _WIDE
        self._middle = round(centre) if self._discrete else 0
        width = math.sqrt(planned) if self._discrete else float(_CELLS)
        self._reach = math.ceil(_REACH * width) + 2
        self._counts = np.zeros(2 * self._reach + 1, np.int64)

    def add(self, values: NDArray[Any]) -> None:
        """Take in more values, as they are: around `centre`, and integers if the law is discrete."""
        exact = np.asarray(values, np.float64).reshape(-1)
        self.spread = self.spread.plus(exact - self._centre)
        scaled = exact if self._discrete else (exact - self._centre) / math.sqrt(self.planned) * _CELLS
        cells = np.rint(scaled).astype(np.int64) - self._middle + self._reach
        self._counts += np.bincount(np.clip(cells, 0, 2 * self._reach), minlength=self._counts.size)

    def findings(self, name: str, what: str) -> list[AuditFinding]:
        """Test the variance against the plan, and the shape against the law of the variance that was measured.

        So a wrong scale is one finding and not two. A law that is fitted to the values is nearer to them than the true
        one, if anything (Lilliefors 1967), and the p value stays an upper bound.
        """
        if not self.spread.values:
            return []
        return [
            variance(f"{name} variance", self.spread, self.planned, what=what),
            shape(f"{name} shape", self._counts, self._law(), what=what),
        ]

    def _law(self) -> NDArray[np.float64]:
        measured = max(self.spread.squares / self.spread.values, 1e-6 * self.planned)
        if self._discrete:
            return discrete_gaussian(measured, self._reach, self._centre - self._middle)
        from scipy.stats import norm

        ends = (np.arange(-self._reach, self._reach + 2) - 0.5) / _CELLS * math.sqrt(self.planned / measured)
        return np.diff(norm.cdf(ends))


Values = NDArray[np.float64]


class CellNoise:
    """Squares of noise around its known mean, in units of the planned variance, one sum for each cell.

    On the integers a value of 0 has a positive probability, and a sum of few squares is no chi-square. X + U, with U
    uniform in [-1/2, 1/2], has a density that hardly differs from the Gaussian's, and |X + U| is between |X| - 1/2 and
    |X| + 1/2. So the lower tail is taken of the larger squares and the upper tail of the smaller ones.
    """

    def __init__(self, cells: int, *, discrete: bool) -> None:
        self._half = 0.5 if discrete else 0.0
        self._larger = np.zeros(cells)
        self._smaller = np.zeros(cells)
        self._values = np.zeros(cells, np.int64)

    def add(self, values: NDArray[Any], planned: float) -> None:
        """Take in one value for each cell."""
        size = np.abs(np.asarray(values, np.float64))
        self._larger += (size + self._half) ** 2 / planned
        self._smaller += np.maximum(size - self._half, 0.0) ** 2 / planned
        self._values += 1

    def add_to(self, cell: int, values: NDArray[Any], planned: float) -> None:
        """Take in many values for one cell."""
        size = np.abs(np.asarray(values, np.float64))
        self._larger[cell] += float(np.sum((size + self._half) ** 2)) / planned
        self._smaller[cell] += float(np.sum(np.maximum(size - self._half, 0.0) ** 2)) / planned
        self._values[cell] += size.size

    def findings(self, name: str, what: str, cell: str) -> list[AuditFinding]:
        """Test the variance of the worst cell, two-sided; nothing if no cell has a value."""
        seen = np.flatnonzero(self._values)
        if not seen.size:
            return []
        from scipy.stats import chi2

        values = self._values[seen]
        tails = np.minimum(chi2.cdf(self._larger[seen], values), chi2.sf(self._smaller[seen], values))
        worst = int(np.argmin(tails))
        ratio = float((self._larger[seen] + self._smaller[seen])[worst]) / (2 * int(values[worst]))
        return [
            AuditFinding(
                name,
                ratio,
                min(1.0, 2 * seen.size * float(tails[worst])),
                f"{what} has {math.sqrt(ratio):.3g} times the standard deviation of the plan in {cell} {seen[worst]}, "
                f"over {values[worst]} values, of {seen.size} that were looked at",
            )
        ]


class CellShifts:
    """How far canaries move the sum, each in a cell of its own: by the mean of a cell, and not above a given most."""

    def __init__(self, cells: int) -> None:
        self._sums = np.zeros(cells)
        self._variances = np.zeros(cells)
        self._values = np.zeros(cells, np.int64)

    def add(self, cell: int, value: float, variance: float) -> None:
        """Take in one measurement, and its variance by the plan."""
        self._sums[cell] += value
        self._variances[cell] += variance
        self._values[cell] += 1

    def findings(self, name: str, most: float, what: str, cell: str) -> list[AuditFinding]:
        """Test the shift of the worst cell by the normal tail; nothing if no cell was measured."""
        seen = np.flatnonzero(self._values)
        if not seen.size:
            return []
        from scipy.stats import norm

        values = self._values[seen]
        excess = (np.abs(self._sums[seen]) - most * values) / np.sqrt(self._variances[seen])
        worst = int(np.argmax(excess))
        mean = float(self._sums[seen][worst]) / int(values[worst])
        return [
            AuditFinding(
                name,
                float(excess[worst]),
                min(1.0, 2 * seen.size * float(norm.sf(excess[worst]))),
                f"{what} moves the sum by {mean / most:.4g} times the most that one client may, in {cell} "
                f"{seen[worst]}, of {seen.size} that were looked at",
            )
        ]
