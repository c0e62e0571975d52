"""One test of an audit, and what a run of many tests may say without crying wolf."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class AuditFinding:
    """The result of one test: its statistic, its p value, and the sentence that accuses if the p value is too small.

    A check that has no chance in it, such as a missing charge, has the p value 0 or 1.
    """

    name: str
    statistic: float | None
    p_value: float
    sentence: str

    @property
    def certain(self) -> bool:
        """Tell whether this is a check without chance, which needs no part of the false-alarm rate."""
        return self.statistic is None


def checked(name: str, sound: bool, sentence: str) -> AuditFinding:
    """Return the finding of a check without chance."""
    return AuditFinding(name, None, 1.0 if sound else 0.0, sentence)


def p_value_of_bound(bound: Callable[[float], float], claimed: float) -> float:
    """Return the least false-alarm rate at which a lower bound exceeds the claim; 1 if it never does.

    `bound(alpha)` holds with probability 1 - alpha and grows with alpha, so bisection finds it.
    """
    if math.isinf(claimed) or bound(0.5) <= claimed:
        return 1.0
    low, high = math.log(1e-300), math.log(0.5)
    if bound(1e-300) > claimed:
        return 1e-300
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bound(math.exp(middle)) > claimed else (middle, high)
    return math.exp(high)
