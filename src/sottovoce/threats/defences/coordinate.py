"""Defences that look at each coordinate by itself: its median, or its mean without the extremes."""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Defence, Matrix, Rows
from sottovoce.threats.defences.columns import middle_mean

_PAPER = (
    "Yin, Chen, Ramchandran, Bartlett 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates"
)


@dataclass(frozen=True)
class Median(Defence):
    """The median of each coordinate: out[c] = median of x_1[c] ... x_n[c]; of an even number, the mean of the two.

    Guarantee: with 2 f < n every coordinate lies between the smallest and the largest honest value.
    """

    name = "median"
    paper = _PAPER
    assumes = "n >= 2 f + 1"
    counts_malicious = False

    def fewest(self, malicious: int) -> int:
        """Return 2 f + 1."""
        return 2 * malicious + 1

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the median of each column."""
        return middle_mean(updates, rows, (len(rows) - 1) // 2, len(rows) // 2 + 1)


@dataclass(frozen=True)
class TrimmedMean(Defence):
    """The mean of each coordinate but its extremes: out[c] = mean of x_1[c] ... x_n[c] but the f lowest and highest.

    Guarantee: with 2 f < n every coordinate lies between the smallest and the largest honest value.
    """

    name = "trimmed-mean"
    paper = _PAPER
    assumes = "n >= 2 f + 1"
    counts_malicious = True

    def fewest(self, malicious: int) -> int:
        """Return 2 f + 1."""
        return 2 * malicious + 1

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the trimmed mean of each column."""
        return middle_mean(updates, rows, malicious, len(rows) - malicious)
