"""Say how many of a cohort must answer before a sum is opened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Fewest"]


@dataclass(frozen=True)
class Fewest:
    """The number of a cohort that must answer: floor(share * n) + 1, or all of them for a share of 1.

    But for a share of 0, where nothing is hidden, they are never fewer than 2: the sum of one vector is that vector.
    Of a cohort below `least` nothing is ever opened.
    """

    share: Fraction
    least: int = 0

    def __call__(self, cohort: int) -> int:
        """Return the number for one cohort."""
        if self.share == 0:
            return min(cohort, 1)
        if 0 < cohort < self.least:
            return self.least
        needed = cohort if self.share == 1 else min(cohort, math.floor(self.share * cohort) + 1)
        return max(needed, 2) if cohort else 0
