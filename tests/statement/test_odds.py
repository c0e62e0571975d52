from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from sottovoce.statement.odds import FALSE_POSITIVES, attack_success, odds, right_guesses, suspicion_after

EPSILONS = st.floats(0.0, 30.0)


def delta_of_gaussian(epsilon: float, mu: float) -> float:
    """Return the exact delta of a Gaussian mechanism at distance mu (Balle and Wang 2018)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@given(epsilon=st.floats(0.1, 8.0), mu=st.floats(0.2, 3.0), rate=st.sampled_from(FALSE_POSITIVES))
def test_the_best_attack_on_a_real_gaussian_never_beats_the_bounds(epsilon: float, mu: float, rate: float) -> None:
    delta = max(0.0, delta_of_gaussian(epsilon, mu))
    best = float(norm.cdf(norm.ppf(rate) + mu))  # Neyman and Pearson

    assert best <= attack_success(epsilon, delta, rate) + 1e-9
    assert float(norm.cdf(mu / 2)) <= right_guesses(epsilon, delta) + 1e-9
    if rate >= 0.01:
        for suspicion in (0.01, 0.5):
            accused = suspicion * best / (suspicion * best + (1 - suspicion) * rate)
            assert accused <= suspicion_after(suspicion, epsilon, delta) + 1e-9


@given(epsilon=EPSILONS, more=st.floats(0.01, 5.0), rate=st.sampled_from(FALSE_POSITIVES))
def test_a_larger_epsilon_never_promises_more(epsilon: float, more: float, rate: float) -> None:
    assert attack_success(epsilon, 1e-5, rate) <= attack_success(epsilon + more, 1e-5, rate) + 1e-12
    assert right_guesses(epsilon, 1e-5) <= right_guesses(epsilon + more, 1e-5) + 1e-12


def test_epsilon_one_turns_even_odds_into_73_per_cent_and_no_bound_into_certainty() -> None:
    assert math.isclose(right_guesses(1.0, 0.0), 0.7310585786)
    assert math.isclose(suspicion_after(0.5, 1.0, 0.0), 0.7310585786)
    told = odds(None, None)
    assert told["right_guesses_at_most"] == 1.0
    assert set(told["suspicion_becomes_at_most"].values()) | set(told["attack_finds_at_most"].values()) == {1.0}


def test_epsilon_zero_leaves_a_suspicion_as_it_was() -> None:
    assert right_guesses(0.0, 0.0) == 0.5
    assert math.isclose(suspicion_after(0.1, 0.0, 0.0), 0.1)
    assert attack_success(0.0, 0.0, 0.01) == 0.01
