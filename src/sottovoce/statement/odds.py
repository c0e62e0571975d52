"""Say epsilon and delta in odds: what somebody who suspects a participant can come to know at most.

All numbers follow from (epsilon, delta) alone: an attack that wrongly accuses a share f of those who did not take part
rightly accuses at most min(1, e^epsilon f + delta, 1 - e^-epsilon (1 - delta - f)) of those who did (Wasserman and
Zhou 2010; Kairouz et al. 2015).
"""

from __future__ import annotations

import math
from typing import Any, Final

SUSPICIONS: Final = (0.01, 0.1, 0.5)
FALSE_POSITIVES: Final = (0.001, 0.01, 0.1)
LEAST_FALSE_POSITIVES: Final = 0.01


def attack_success(epsilon: float, delta: float, false_positives: float) -> float:
    """Bound the share of participants that an attack finds, at a share of others that it accuses wrongly.

    >>> round(attack_success(1.0, 0.0, 0.01), 4)
    0.0272
    """
    if math.isinf(epsilon):
        return 1.0
    grown = math.exp(min(epsilon, 700.0)) * false_positives + delta
    rest = 1 - math.exp(-epsilon) * (1 - delta - false_positives)
    return min(1.0, grown, max(rest, false_positives))


def suspicion_after(suspicion: float, epsilon: float, delta: float) -> float:
    """Bound what a suspicion becomes once an attack accuses, one that accuses at least 1 % of others wrongly.

    Among those that it accuses, the share of participants is at most this. An attack that accuses hardly anybody could
    use up delta, for which no such bound holds; hence the condition.

    >>> round(suspicion_after(0.5, 1.0, 0.0), 3)
    0.731
    """
    if math.isinf(epsilon):
        return 1.0
    odds = suspicion / (1 - suspicion) * (math.exp(min(epsilon, 700.0)) + delta / LEAST_FALSE_POSITIVES)
    return odds / (1 + odds)


def right_guesses(epsilon: float, delta: float) -> float:
    """Bound how often somebody is right who must decide between yes and no and held both for equally likely.

    >>> round(right_guesses(1.0, 0.0), 3)
    0.731
    """
    if math.isinf(epsilon):
        return 1.0
    grown = math.exp(-epsilon)
    return min(1.0, (1 + delta * grown) / (1 + grown))


def odds(epsilon: float | None, delta: float | None) -> dict[str, Any]:
    """Return all odds for an epsilon; None is no bound."""
    bound, slack = (math.inf, 0.0) if epsilon is None else (epsilon, delta or 0.0)
    return {
        "right_guesses_at_most": right_guesses(bound, slack),
        "suspicion_becomes_at_most": {f"{each:g}": suspicion_after(each, bound, slack) for each in SUSPICIONS},
        "attack_finds_at_most": {f"{each:g}": attack_success(bound, slack, each) for each in FALSE_POSITIVES},
    }
