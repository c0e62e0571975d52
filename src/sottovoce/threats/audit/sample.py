"""Noise values as they come, kept as sums and a histogram: no audit holds a million vectors."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.threats.audit.finding import Finding
from sottovoce.threats.audit.gaussian import Spread
from sottovoce.threats.audit.noise import discrete_gaussian, shape, variance

__all__ = ["NoiseSample"]

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

    def findings(self, name: str, what: str) -> list[Finding]:
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
