from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.core.errors import InputError
from sottovoce.federation.cohort import Cohort


@given(clients=st.integers(1, 500), percent=st.integers(1, 100), seed=st.integers(0, 99))
def test_a_cohort_has_no_client_twice_and_none_from_outside(clients: int, percent: int, seed: int) -> None:
    cohort = Cohort(clients=clients, sample_rate=Fraction(percent, 100))

    drawn = cohort.draw(np.random.default_rng(seed))

    assert len(set(drawn.tolist())) == len(drawn)
    assert all(0 <= client < clients for client in drawn)
    assert np.array_equal(drawn, np.sort(drawn))


def test_fixed_sampling_always_asks_the_same_number() -> None:
    cohort = Cohort(clients=6000, sample_rate=Fraction(1, 60), sampling="fixed")

    assert {len(cohort.draw(np.random.default_rng(seed))) for seed in range(50)} == {100}
    assert cohort.expected == 100


def test_poisson_sampling_asks_each_client_independently() -> None:
    """Cohort sizes are binomial and every client is as likely as any other (chi-square, false alarm 1e-4 each)."""
    cohort = Cohort(clients=40, sample_rate=Fraction(1, 4))
    draws = [cohort.draw(np.random.default_rng(seed)) for seed in range(4000)]

    sizes = np.bincount([len(drawn) for drawn in draws], minlength=41)
    expected = 4000 * stats.binom.pmf(np.arange(41), 40, 0.25)
    bulk = expected > 5
    observed = np.append(sizes[bulk], sizes[~bulk].sum())
    assert stats.chisquare(observed, np.append(expected[bulk], expected[~bulk].sum())).pvalue > 1e-4

    each = np.bincount(np.concatenate(draws), minlength=40)
    assert stats.chisquare(each, np.full(40, each.sum() / 40)).pvalue > 1e-4


def test_a_cap_cuts_large_draws_to_a_uniform_subset() -> None:
    cohort = Cohort(clients=100, sample_rate=Fraction(1, 2), cap=45)
    draws = [cohort.draw(np.random.default_rng(seed)) for seed in range(2000)]

    assert max(len(drawn) for drawn in draws) == 45
    each = np.bincount(np.concatenate(draws), minlength=100)
    assert stats.chisquare(each, np.full(100, each.sum() / 100)).pvalue > 1e-4


def test_a_million_clients_cost_no_more_than_their_cohort() -> None:
    drawn = Cohort(clients=10**6, sample_rate=Fraction(1, 10**4)).draw(np.random.default_rng(0))

    assert 50 < len(drawn) < 160


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)])
def test_a_rate_outside_its_range_is_refused(rate: Fraction) -> None:
    with pytest.raises(InputError, match=r"sample_rate must be in \(0, 1\]"):
        Cohort(clients=10, sample_rate=rate)


def test_a_fixed_cohort_of_nobody_is_refused() -> None:
    with pytest.raises(InputError, match="asks nobody"):
        Cohort(clients=10, sample_rate=Fraction(1, 100), sampling="fixed")
