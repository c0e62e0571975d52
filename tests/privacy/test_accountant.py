from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.calculator import calculate, curve
from sottovoce.privacy.accounting.events import ACCOUNTANTS, Event
from sottovoce.privacy.accounting.participation import participation_cap

PAPERS = {"sample_rate": 1 / 60, "rounds": 200, "delta": 1e-5}


@pytest.mark.parametrize(("accountant", "value"), [("moments", 1.0006), ("rdp", 0.7734), ("pld", 0.6806)])
def test_the_papers_setting_costs_what_was_computed_by_hand(accountant: str, value: float) -> None:
    assert calculate(**PAPERS, noise_multiplier=1.54, accountant=accountant)["epsilon"] == pytest.approx(
        value, abs=5e-5
    )


@pytest.mark.parametrize(("accountant", "value"), [("moments", 1.5406), ("rdp", 1.3419), ("pld", 1.2244)])
def test_epsilon_one_needs_the_known_noise_and_never_costs_more(accountant: str, value: float) -> None:
    answer = calculate(**PAPERS, epsilon=1.0, accountant=accountant)

    assert answer["noise_multiplier"] == pytest.approx(value, abs=6e-5)
    assert 0.9999 < answer["epsilon"] <= 1.0


def test_a_fixed_cohort_is_charged_for_the_client_it_displaces() -> None:
    answer = calculate(**PAPERS, noise_multiplier=1.54, sampling="fixed")

    assert answer["epsilon"] == pytest.approx(3.097, abs=5e-4)


def test_one_participation_against_the_server_has_no_amplification() -> None:
    answer = calculate(**PAPERS, noise_multiplier=1.54, max_participations=1, threshold=1.0)

    assert answer["epsilon_server"] == pytest.approx(2.673, abs=5e-4)


def test_participations_compose_like_one_gaussian_of_less_noise() -> None:
    many = accounts.epsilon_server([(1.54, 9)], delta=1e-5)
    one = accounts.epsilon_server([(1.54 / 3, 1)], delta=1e-5)

    assert many == pytest.approx(one)


def test_the_calculator_answers_with_the_promised_keys() -> None:
    answer = calculate(**PAPERS, noise_multiplier=1.54, accountant="moments")

    assert list(answer) == [
        "accountant",
        "sampling",
        "sample_rate",
        "rounds",
        "delta",
        "noise_multiplier",
        "epsilon",
        "epsilon_server",
        "max_participations",
        "threshold",
    ]


def test_a_server_that_may_know_a_third_of_the_noise_pays_for_less_of_it() -> None:
    everyone = calculate(**PAPERS, noise_multiplier=1.2244, threshold=1.0)
    two_thirds = calculate(**PAPERS, noise_multiplier=1.2244)  # the default, as of a run

    assert everyone["epsilon_server"] == pytest.approx(16.28, abs=0.01)
    assert two_thirds["epsilon_server"] == pytest.approx(21.23, abs=0.01)
    assert two_thirds["epsilon"] == everyone["epsilon"]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_full_participation_is_the_plain_gaussian(accountant: str) -> None:
    keys = {"sample_rate": 1.0, "rounds": 4, "delta": 1e-6, "noise_multiplier": 3.0}
    answer = calculate(**keys, accountant=accountant, threshold=1.0)

    assert answer["max_participations"] == 4
    assert answer["epsilon"] == pytest.approx(answer["epsilon_server"])


def test_moments_orders_match_the_renyi_divergences_of_dp_accounting() -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    account = RdpAccountant(orders=[float(order + 1) for order in accounts.MOMENT_ORDERS])
    account.compose(PoissonSampledDpEvent(1 / 60, GaussianDpEvent(1.54)))

    ours = accounts._moments(1.54, 1 / 60) / np.asarray(accounts.MOMENT_ORDERS)

    assert np.allclose(ours, account._rdp, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(target=st.floats(0.6, 20), rate=st.floats(0.005, 1.0), rounds=st.integers(1, 500))
def test_solving_for_noise_inverts_epsilon(target: float, rate: float, rounds: int) -> None:
    answer = calculate(sample_rate=rate, rounds=rounds, delta=1e-6, epsilon=target, accountant="moments")

    assert answer["epsilon"] <= target
    assert answer["epsilon"] == pytest.approx(target, rel=1e-4) or answer["noise_multiplier"] <= 0.011


def test_the_curve_rises_and_ends_at_the_total() -> None:
    values = curve(sample_rate=0.1, rounds=20, delta=1e-5, noise_multiplier=1.5)
    total = calculate(sample_rate=0.1, rounds=20, delta=1e-5, noise_multiplier=1.5)["epsilon"]
    middle = calculate(sample_rate=0.1, rounds=10, delta=1e-5, noise_multiplier=1.5)["epsilon"]

    assert all(a <= b for a, b in itertools.pairwise(values))
    assert values[-1] == pytest.approx(total)
    assert middle <= values[9] <= middle * 1.01


def test_a_cut_that_hardly_ever_happens_costs_hardly_anything() -> None:
    plain = Event(noise_multiplier=1.2244, sample_rate=1 / 60, rounds=200)
    capped = Event(noise_multiplier=1.2244, sample_rate=1 / 60, rounds=200, cohort_cap=180, clients=6000)

    base = accounts.epsilon([plain], delta=1e-5)

    assert base < accounts.epsilon([capped], delta=1e-5) < base + 1e-5


def test_a_low_cohort_cap_is_charged_as_truncated_poisson() -> None:
    event = Event(noise_multiplier=2.0, sample_rate=0.1, rounds=3, cohort_cap=12, clients=100)
    plain = Event(noise_multiplier=2.0, sample_rate=0.1, rounds=3)

    assert accounts.epsilon([event], delta=1e-5) > 1.3 * accounts.epsilon([plain], delta=1e-5)
    with pytest.raises(PrivacyError, match="raise cohort_cap or use the pld accountant"):
        accounts.epsilon([event], delta=1e-5, accountant="rdp")


def test_events_of_different_noise_compose() -> None:
    first = Event(noise_multiplier=3.0, sample_rate=0.1, rounds=1)
    rest = Event(noise_multiplier=1.5, sample_rate=0.1, rounds=10)

    for kind in ACCOUNTANTS:
        both = accounts.epsilon([first, rest], delta=1e-5, accountant=kind)
        assert accounts.epsilon([rest], delta=1e-5, accountant=kind) < both
        assert both < accounts.epsilon([first], delta=1e-5, accountant=kind) + both


def test_the_default_participation_cap_is_the_smallest_that_few_reach() -> None:
    from scipy.stats import binom

    cap = participation_cap(sample_rate=1 / 60, rounds=200, delta=1e-5, epsilon=1.0)

    assert binom.sf(cap, 200, 1 / 60) <= 1e-5 < binom.sf(cap - 1, 200, 1 / 60)


def test_fixed_cohorts_refuse_a_participation_cap_that_binds() -> None:
    with pytest.raises(PrivacyError, match="use poisson sampling"):
        participation_cap(sample_rate=1 / 60, rounds=200, delta=1e-5, epsilon=3.1, sampling="fixed", wanted=5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epsilon": -1.0}, "epsilon must be finite and above 0, got -1"),
        ({"epsilon": 0.0}, "epsilon must be finite and above 0, got 0"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be finite and above 0"),
        ({"noise_multiplier": 1.0, "delta": 1.0}, r"delta must be in \(0, 1\), got 1"),
        ({"noise_multiplier": 1.0, "sample_rate": 1.5}, r"sample_rate must be in \(0, 1\], got 1.5"),
        ({"noise_multiplier": 1.0, "rounds": 0}, "rounds must be in"),
        ({"noise_multiplier": 1.0, "accountant": "pdl"}, "did you mean 'pld'"),
        ({"noise_multiplier": 1.0, "sampling": "possion"}, "did you mean 'poisson'"),
        ({"noise_multiplier": 1.0, "epsilon": 1.0}, "give either"),
        ({}, "give either"),
    ],
)
def test_bad_input_is_one_clear_sentence(keys: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        calculate(**{**PAPERS, **keys})


def test_of_very_many_rounds_a_curve_is_reckoned_in_blocks_and_never_too_small() -> None:
    keys = {"sample_rate": 1 / 60, "delta": 1e-5, "noise_multiplier": 4.0}

    long, single = curve(rounds=1200, **keys), [calculate(rounds=count, **keys)["epsilon"] for count in (1, 700, 1200)]

    assert len(long) == 1200 and long == sorted(long)
    assert [low <= value <= 1.05 * low for low, value in zip(single[1:], (long[699], long[-1]), strict=True)] == [
        True
    ] * 2
    assert long[0] >= single[0]


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments"])
def test_an_epsilon_that_no_noise_reaches_is_refused_at_once(accountant: str) -> None:
    with pytest.raises(PrivacyError, match="epsilon 1e-09 is out of reach"):
        calculate(sample_rate=0.5, rounds=1000, delta=1e-8, epsilon=1e-9, accountant=accountant)


@pytest.mark.parametrize("sample_rate", [1 / 60, 1e-6])
def test_next_to_no_noise_costs_a_fortune_and_not_the_memory(sample_rate: float) -> None:
    found = calculate(sample_rate=sample_rate, rounds=20, delta=1e-5, noise_multiplier=0.01)

    assert found["epsilon"] > 4000


def test_a_single_round_may_cost_nothing_when_delta_covers_the_chance_to_be_drawn() -> None:
    assert calculate(sample_rate=1e-6, rounds=1, delta=1e-5, epsilon=0.01)["epsilon"] == 0


@pytest.mark.parametrize(
    ("accountant", "noise", "cap"), [("moments", 0.8, 167), ("rdp", 0.8, 165), ("rdp", 1.2244, 161)]
)
def test_what_a_cut_takes_from_delta_is_reckoned_until_it_settles(accountant: str, noise: float, cap: int) -> None:
    """The epsilon that is quoted was priced at no more of delta than the cut, at that epsilon, leaves."""
    event = Event(noise_multiplier=noise, sample_rate=1 / 60, rounds=200, cohort_cap=cap, clients=6000)

    value = accounts.epsilon([event], delta=1e-5, accountant=accountant)

    left = 1e-5 - (1 + math.exp(value)) * accounts.truncation_slack(event)
    assert left > 0
    uncut = Event(noise_multiplier=noise, sample_rate=1 / 60, rounds=200)
    assert accounts.epsilon([uncut], delta=left, accountant=accountant) <= value * (1 + 1e-12)


def test_a_cut_that_leaves_nothing_of_delta_at_its_own_epsilon_is_refused() -> None:
    """What is taken grows with epsilon, and epsilon with what is taken: here they chase each other beyond delta."""
    event = Event(noise_multiplier=0.8, sample_rate=1 / 60, rounds=200, cohort_cap=166, clients=6000)

    with pytest.raises(PrivacyError, match="cohort_cap is too low for the moments accountant"):
        accounts.epsilon([event], delta=1e-5, accountant="moments")
