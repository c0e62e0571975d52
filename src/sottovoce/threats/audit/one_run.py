"""Bound epsilon from below by one run with many canaries (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846).

Each of m canaries is in the run or out of it by its own fair coin. A guesser sees what the run releases, and for at
most r of the canaries says whether it was in; v of these guesses are right. If the run is (epsilon, delta)-private for
each canary, then for every guesser (Theorem 5.2)

    P[correct >= v]  <=  P[W >= v] + 2 m delta max over i = 1 .. v of P[v > W >= v - i] / i
    W ~ Binomial(r, e^epsilon / (e^epsilon + 1))

The canaries need not be independent of each other given their coins. Several runs with coins of their own are one run
of all their canaries: a canary of one does not touch the others, so the product is as private for each of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

__all__ = ["correct_guesses", "epsilon_from_guesses", "guess_tail"]

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
