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
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range


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


MOST_MU: Final = 1e4  # what is said of a release without noise, whose mu is infinite; epsilon is 5e7 there


class Spread(NamedTuple):
    """The squares of noise values around their known mean: their sum and their number."""

    squares: float
    values: int

    def plus(self, values: NDArray[Any]) -> Spread:
        """Return the spread with more values."""
        flat = np.asarray(values, np.float64).reshape(-1)
        return Spread(self.squares + float(flat @ flat), self.values + flat.size)

    def stddev_above(self, alpha: float) -> float:
        """Return the upper bound of sigma at confidence 1 - alpha: sum / sigma^2 is chi-square if they are Gaussian."""
        from scipy.stats import chi2

        return math.sqrt(self.squares / float(chi2.ppf(alpha, self.values)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the epsilon of a mu-GDP release, by dp-accounting.

    >>> round(epsilon_of_mu(1 / 1.54, 1e-5), 3)
    2.673
    """
    in_range("delta", delta, low=0, high=1, open_low=True, open_high=True)
    if mu <= 0:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(divide="ignore"):  # it takes the logarithm of a zero where nothing is left to pay
        return max(0.0, float(get_epsilon_gaussian(1 / mu, delta)))


def mu_below(present: NDArray[Any], absent: NDArray[Any], noise: Spread, alpha: float) -> float:
    """Return a lower bound of mu at confidence 1 - alpha, from the scores of games with the canary and without.

    With sigma bounded from above by the noise at alpha / 2, the mean difference d of the scores, of which there are
    n and k, gives shift >= d - sigma z sqrt(1 / n + 1 / k), z the upper alpha / 2 quantile of the normal law.
    """
    if present.size == 0 or absent.size == 0:
        raise InputError("a lower bound of mu needs games with the canary and games without it")
    from scipy.stats import norm

    sigma = noise.stddev_above(alpha / 2)
    width = math.sqrt(1 / present.size + 1 / absent.size)
    difference = float(np.mean(present, dtype=np.float64) - np.mean(absent, dtype=np.float64))
    ratio = MOST_MU if abs(difference) >= MOST_MU * sigma else abs(difference) / sigma
    return max(0.0, math.copysign(ratio, difference) - float(norm.isf(alpha / 2)) * width)


def mu_of_shift(difference: float, width: float, rest: Spread, noise: Spread, alpha: float) -> float:
    """Return a lower bound of mu at confidence 1 - alpha, from scores off which the auditor took noise that it knows.

    An auditor that drew the noise itself need not measure the shift through it: what is left of it, `rest`, has a
    standard deviation sigma_r, which is 0 if the release holds what was drawn. The difference of the scores then has
    `width` sigma_r. What hides the canary is still all of `noise`. With both sigmas bounded from above at alpha / 3,
    mu >= (difference - sigma_r z width) / sigma, z the upper alpha / 3 quantile of the normal law.
    """
    from scipy.stats import norm

    sigma = noise.stddev_above(alpha / 3)
    shift = difference - float(norm.isf(alpha / 3)) * rest.stddev_above(alpha / 3) * width
    if shift <= 0:
        return 0.0
    return MOST_MU if shift >= MOST_MU * sigma else shift / sigma


MOST_EPSILON = 200.0


def guess_tail(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability that at least `correct` of `guesses` are right in an (epsilon, delta)-private run.

    The p value of a claim of (epsilon, delta).

    >>> round(guess_tail(10, 10, 10, 0.0, 0.0), 6) == round(2.0**-10, 6)
    True
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(f"of {canaries} canaries {guesses} were guessed and {correct} right: that cannot be")
    in_range("epsilon", epsilon, low=0)
    in_range("delta", delta, low=0, high=1)
    from scipy.stats import binom

    right = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, right))
    if delta == 0 or correct == 0:
        return min(1.0, tail)
    steps = np.arange(1, correct + 1)
    # P[v > W >= v - i] as a sum of single probabilities: a difference of tails would lose what is small.
    below = np.cumsum(binom.pmf(correct - steps, guesses, right))
    return min(1.0, tail + 2 * canaries * delta * float(np.max(below / steps)))


def epsilon_from_guesses(canaries: int, guesses: int, correct: int, *, delta: float, alpha: float) -> float:
    """Return the largest epsilon that the guesses refute at confidence 1 - alpha; 0 if they refute none.

    How many guesses are made, and by which rule, must not depend on the coins.
    """
    in_range("alpha", alpha, low=0, high=1, open_low=True, open_high=True)

    def refuted(epsilon: float) -> bool:
        return guess_tail(canaries, guesses, correct, epsilon, delta) < alpha

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if high > MOST_EPSILON:
            return low
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def correct_guesses(scores: NDArray[Any], present: NDArray[np.bool_], each: int) -> int:
    """Count the right guesses if the `each` highest scores are said to be in and the `each` lowest to be out.

    Of equal scores the first ones are taken, so that the guesses do not depend on the coins.
    """
    if not 0 <= 2 * each <= scores.size:
        raise InputError(f"{2 * each} guesses cannot be made on {scores.size} canaries")
    order = np.argsort(scores, kind="stable")
    lowest, highest = order[:each], order[scores.size - each :]
    return int(np.count_nonzero(present[highest])) + int(np.count_nonzero(~present[lowest]))
