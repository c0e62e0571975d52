"""Test noise cell by cell, in every coordinate or of every client: a sum over all of them hides one that has none.

The p value of the worst cell is multiplied by the number of cells (union bound), so it is an upper bound whatever the
cells have to do with each other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.threats.audit.finding import Finding

__all__ = ["CellNoise", "CellShifts"]

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

    def findings(self, name: str, what: str, cell: str) -> list[Finding]:
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
            Finding(
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

    def findings(self, name: str, most: float, what: str, cell: str) -> list[Finding]:
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
            Finding(
                name,
                float(excess[worst]),
                min(1.0, 2 * seen.size * float(norm.sf(excess[worst]))),
                f"{what} moves the sum by {mean / most:.4g} times the most that one client may, in {cell} "
                f"{seen[worst]}, of {seen.size} that were looked at",
            )
        ]
