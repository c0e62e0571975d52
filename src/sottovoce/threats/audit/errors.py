"""Bound epsilon from below by the errors of a guesser in repeated games, with exact confidence.

A game flips a coin, runs the mechanism with the canary or without, and lets the guesser say which. If the mechanism is
(epsilon, delta)-private, no guesser's rates of false positives FP and false negatives FN escape

    FP + e^epsilon FN >= 1 - delta        e^epsilon FP + FN >= 1 - delta

(Kairouz, Oh, Viswanath 2015, "The composition theorem for differential privacy", Theorem 2.1). So

    epsilon >= max(ln((1 - delta - FN) / FP), ln((1 - delta - FP) / FN), 0)

and upper bounds of both rates at confidence 1 - alpha / 2 each give a lower bound of epsilon at confidence 1 - alpha
(Jagielski, Ullman, Oprea 2020; Nasr et al. 2021). With n games on each side the bound cannot exceed about
ln(n / ln(2 / alpha)), however bad the mechanism is.
"""

from __future__ import annotations

import math

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

__all__ = ["epsilon_from_counts", "epsilon_from_rates", "rate_above", "rate_below"]


def rate_above(count: int, trials: int, alpha: float) -> float:
    """Return the upper Clopper-Pearson bound on a rate: the p with P[Binomial(trials, p) <= count] = alpha.

    It is the 1 - alpha quantile of Beta(count + 1, trials - count) (Clopper, Pearson 1934). Exact: the true rate is
    above it with probability at most alpha, for every rate and every number of trials.

    >>> round(rate_above(0, 100, 0.05), 5) == round(1 - 0.05 ** (1 / 100), 5)
    True
    """
    _check(count, trials, alpha)
    if count == trials:
        return 1.0
    from scipy.stats import beta

    return float(beta.isf(alpha, count + 1, trials - count))


def rate_below(count: int, trials: int, alpha: float) -> float:
    """Return the lower Clopper-Pearson bound on a rate: the p with P[Binomial(trials, p) >= count] = alpha."""
    return 1.0 - rate_above(trials - count, trials, alpha)


def epsilon_from_rates(false_positive: float, false_negative: float, delta: float) -> float:
    """Return the least epsilon at which a guesser can have these rates; infinity if a rate is 0 and the other is low.

    >>> round(epsilon_from_rates(0.1, 0.1, 0.0), 4) == round(math.log(9), 4)
    True
    """
    one = _ratio(1 - delta - false_negative, false_positive)
    other = _ratio(1 - delta - false_positive, false_negative)
    return max(one, other, 0.0)


def epsilon_from_counts(
    false_positives: int, without: int, false_negatives: int, with_: int, *, delta: float, alpha: float
) -> float:
    """Return the lower bound of epsilon from games without the canary and games with it, at confidence 1 - alpha.

    The rule by which the guesser decides must not depend on these games.
    """
    return epsilon_from_rates(
        rate_above(false_positives, without, alpha / 2), rate_above(false_negatives, with_, alpha / 2), delta
    )


def _ratio(left: float, rate: float) -> float:
    if left <= 0:
        return 0.0
    return math.log(left / rate) if rate > 0 else math.inf


def _check(count: int, trials: int, alpha: float) -> None:
    in_range("alpha", alpha, low=0, high=1, open_low=True, open_high=True)
    if not 0 <= count <= trials or trials < 1:
        raise InputError(f"a count of games must be from 0 to their number, got {count} of {trials}")
