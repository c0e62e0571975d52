from __future__ import annotations

import itertools
import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.threats.audit.bounds import correct_guesses, epsilon_from_guesses, guess_tail


def theorem(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return Theorem 5.2 as it is printed, in fractions."""
    right = Fraction(1 / (1 + math.exp(-epsilon)))
    chance = [comb(guesses, w) * right**w * (1 - right) ** (guesses - w) for w in range(guesses + 1)]
    tail = sum(chance[correct:])
    alpha = max(
        (sum(chance[w] for w in range(guesses + 1) if correct > w >= correct - i) / i for i in range(1, correct + 1)),
        default=Fraction(0),
    )
    return min(1.0, float(tail + 2 * canaries * Fraction(delta) * alpha))


@given(
    guesses=st.integers(0, 12),
    spare=st.integers(0, 5),
    epsilon=st.floats(0, 5),
    delta=st.sampled_from([0.0, 1e-6, 1e-3, 0.1]),
    data=st.data(),
)
@settings(deadline=None)
def test_the_tail_is_the_theorem_by_brute_force(
    guesses: int, spare: int, epsilon: float, delta: float, data: st.DataObject
) -> None:
    correct = data.draw(st.integers(0, guesses))

    found = guess_tail(guesses + spare, guesses, correct, epsilon, delta)

    assert found == pytest.approx(theorem(guesses + spare, guesses, correct, epsilon, delta), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("correct", range(6))
def test_randomised_response_reaches_the_tail_exactly(epsilon: float, correct: int) -> None:
    """Enumerate all answers of a mechanism that tells each of five coins truly with probability q."""
    right = 1 / (1 + math.exp(-epsilon))
    reached = sum(
        math.prod(right if told else 1 - right for told in truths)
        for truths in itertools.product((True, False), repeat=5)
        if sum(truths) >= correct
    )

    assert guess_tail(5, 5, correct, epsilon, 0.0) == pytest.approx(reached)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("delta", [0.001, 0.05])
@pytest.mark.parametrize("together", [True, False], ids=["all at once", "one by one"])
@pytest.mark.parametrize("correct", range(7))
def test_mechanisms_that_leak_with_probability_delta_stay_within_the_tail(
    epsilon: float, delta: float, together: bool, correct: int
) -> None:
    """Randomised response of six coins that gives everything away with probability delta, or each coin so."""
    right = 1 / (1 + math.exp(-epsilon))
    if together:
        tail = sum(comb(6, w) * right**w * (1 - right) ** (6 - w) for w in range(correct, 7))
        reached = delta + (1 - delta) * tail
    else:
        leaky = delta + (1 - delta) * right
        reached = sum(comb(6, w) * leaky**w * (1 - leaky) ** (6 - w) for w in range(correct, 7))

    assert reached <= guess_tail(6, 6, correct, epsilon, delta) + 1e-12


@pytest.mark.parametrize(
    ("guesses", "correct", "alpha", "published"),
    # audit_results.json of codedp-ase26/codedp-cpt-models on huggingface.co, by an implementation that is not ours.
    [
        (100, 100, 0.05, 3.4791953936219215),
        (100, 100, 0.01, 3.023197554051876),
        (100, 60, 0.05, 0.05073561053723097),
        (95, 58, 0.05, 0.08366205),
        (35, 23, 0.05, 0.014548719860613346),
        (30, 23, 0.05, 0.42648759204894304),
        (30, 23, 0.01, 0.16005427204072475),
        (25, 18, 0.05, 0.14663786999881268),
    ],
)
def test_bounds_are_those_that_others_published(guesses: int, correct: int, alpha: float, published: float) -> None:
    assert epsilon_from_guesses(500, guesses, correct, delta=1e-5, alpha=alpha) == pytest.approx(published, abs=2e-8)


def test_guesses_at_random_refute_nothing() -> None:
    assert epsilon_from_guesses(100, 100, 50, delta=1e-5, alpha=0.05) == 0


def test_a_larger_delta_refutes_less() -> None:
    bounds = [epsilon_from_guesses(1000, 200, 180, delta=delta, alpha=0.05) for delta in (0, 1e-5, 1e-4, 1e-3)]

    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]


def test_the_highest_are_said_to_be_in_and_the_lowest_to_be_out() -> None:
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    present = np.array([True, False, False, True, True])

    assert correct_guesses(scores, present, 1) == 2
    assert correct_guesses(scores, present, 2) == 2
    assert correct_guesses(scores, present, 0) == 0


def test_equal_scores_give_no_hint() -> None:
    present = np.array([True, False, True, False])

    assert correct_guesses(np.zeros(4), present, 2) == 2


def test_impossible_guesses_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be"):
        guess_tail(10, 11, 3, 1.0, 0.0)
    with pytest.raises(InputError, match="6 guesses"):
        correct_guesses(np.zeros(5), np.zeros(5, bool), 3)
