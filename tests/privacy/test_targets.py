"""Both epsilons as targets: which noise, which cap on participations, and what decided them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sottovoce.core.errors import InputError, PrivacyError, SottovoceError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.privacy.plan.server import expected_contributions

FASHION: dict[str, Any] = {"clients": 6000, "delta": 1e-5, "length": 4010, "clip_norm": 0.6}
TWO_THIRDS = 2 / 3


def solve(**keys: Any) -> PrivacyPlan:
    return PrivacyPlan.solve(**{**FASHION, **keys})


@pytest.mark.parametrize(("target", "noise"), [(8.0, 0.600), (4.0, 1.081), (2.0, 1.994), (1.0, 3.731)])
def test_one_participation_needs_the_published_noise(target: float, noise: float) -> None:
    plan = solve(sample_rate=1, rounds=1, epsilon_server=target)

    assert plan.noise_multiplier == pytest.approx(noise, rel=2e-3)
    assert plan.epsilon_server <= target


@pytest.mark.parametrize(
    ("rate", "rounds", "cap", "everyone", "two_thirds"),
    [
        (1 / 60, 200, 13, 16.28, 21.2),
        (1 / 60, 200, 4, 7.81, 10.0),
        (1 / 12, 40, 6, 4.69, 5.94),
        (1 / 12, 40, 4, 3.71, 4.69),
        (1 / 12, 40, 3, 3.147, 3.97),
        (1 / 6, 20, 5, 2.95, 3.72),
        (1, 20, 20, 1.00, 1.25),
    ],
)
def test_a_cap_costs_the_server_what_the_table_of_the_science_says(
    rate: float, rounds: int, cap: int, everyone: float, two_thirds: float
) -> None:
    found = [
        solve(sample_rate=rate, rounds=rounds, epsilon=1.0, max_participations=cap, threshold=share).epsilon_server
        for share in (1.0, TWO_THIRDS)
    ]

    assert found == pytest.approx([everyone, two_thirds], rel=2e-3)


def test_everyone_in_every_round_keeps_both_targets_and_the_server_decides() -> None:
    plan = solve(sample_rate=1, rounds=20, epsilon=1.0, epsilon_server=1.0, threshold=TWO_THIRDS)
    told = plan.describe()

    assert plan.noise_multiplier == pytest.approx(20.4, rel=2e-3)
    assert 0.999 < plan.epsilon_server <= 1.0 and plan.epsilon < 1.0
    assert (told["epsilon_target"], told["epsilon_server_target"]) == (1.0, 1.0)
    assert told["noise_decided_by"] == "epsilon_server"
    assert told["noise_for_epsilon"] == pytest.approx(16.68, rel=1e-3)
    assert told["noise_for_epsilon_server"] == plan.noise_multiplier
    assert (plan.max_participations, told["draws_lost"]) == (20, 0.0)
    assert plan.bits is not None and plan.bits <= 17 and plan.cohort_cap == 6000


def test_a_target_that_the_noise_keeps_anyway_decides_nothing() -> None:
    plan = solve(sample_rate=1 / 12, rounds=40, epsilon=1.0, epsilon_server=12.0)
    told = plan.describe()

    assert told["noise_decided_by"] == "epsilon"
    assert told["max_participations_is"] == "turns hardly anybody away"
    assert plan.noise_multiplier == solve(sample_rate=1 / 12, rounds=40, epsilon=1.0).noise_multiplier


@pytest.mark.parametrize(
    ("rate", "rounds", "target", "colluders"),
    [(1 / 12, 40, 1.0, 0), (1 / 12, 40, 5.0, 0), (1 / 60, 200, 4.0, 0), (1 / 60, 200, 1.0, 5)],
)
def test_the_chosen_cap_needs_the_least_noise_for_each_draw_of_all_caps(
    rate: float, rounds: int, target: float, colluders: int
) -> None:
    keys: dict[str, Any] = {
        "sample_rate": rate,
        "rounds": rounds,
        "epsilon": 1.0,
        "epsilon_server": target,
        "threshold": TWO_THIRDS,
        "colluders": colluders,
        "accountant": "rdp",  # the quickest
    }
    plan = solve(**keys)
    caps = range(1, plan.max_participations + 4)

    assert plan.targets.cap == "chosen"
    # A cap of the search is priced on the coarsest grid, a plan on its own: they differ by less than two thousandths.
    assert plan.noise_per_draw <= min(_noise_per_draw(keys, cap) for cap in caps) * 1.002


def _noise_per_draw(keys: dict[str, Any], cap: int) -> float:
    """Return the criterion of one cap; infinite where its last cohorts are too small for the colluders."""
    try:
        return solve(**keys, max_participations=cap).noise_per_draw
    except PrivacyError as error:
        assert "honest survivor" in str(error)
        return math.inf


def test_the_noise_for_each_draw_is_that_of_the_published_plans() -> None:
    found = [solve(sample_rate=q, rounds=t, epsilon=1.0).noise_per_draw for q, t in ((1 / 60, 200), (1 / 12, 40))]
    everyone = solve(sample_rate=1, rounds=20, epsilon=1.0).noise_per_draw

    assert [*found, everyone] == pytest.approx([0.866e-3, 0.730e-3, 0.622e-3], rel=2e-3)


@pytest.mark.parametrize(
    ("rate", "rounds", "cap", "lost"), [(1 / 60, 200, 4, 0.13), (1 / 12, 40, 6, 0.02), (1 / 12, 40, 4, 0.125)]
)
def test_a_cap_loses_the_published_share_of_draws(rate: float, rounds: int, cap: int, lost: float) -> None:
    plan = solve(sample_rate=rate, rounds=rounds, epsilon=1.0, max_participations=cap)

    assert plan.draws_lost == pytest.approx(lost, abs=5e-3)


def test_contributions_under_a_cap_are_those_of_a_brute_force_sum() -> None:
    law = [math.comb(10, k) * 0.3**k * 0.7 ** (10 - k) for k in range(11)]
    for most in (1, 2, 5, 10, 12):
        brute = sum(min(k, most) * p for k, p in enumerate(law))
        assert expected_contributions(0.3, 10, most) == pytest.approx(brute, rel=1e-12)


def test_rounds_are_never_fewer_than_asked_while_the_noise_is_solved_for() -> None:
    for target in (0.1, 1.0, 8.0):
        assert solve(sample_rate=1 / 12, rounds=40, epsilon=1.0, epsilon_server=target).rounds == 40


def test_a_given_noise_makes_both_targets_budgets_for_rounds_and_participations() -> None:
    everyone = solve(sample_rate=1, rounds=20, noise_multiplier=15.0, epsilon_server=1.0, threshold=TWO_THIRDS)
    sampled = solve(sample_rate=1 / 12, rounds=40, noise_multiplier=5.0, epsilon=0.3, epsilon_server=2.0)
    fixed = solve(sample_rate=1 / 12, rounds=40, noise_multiplier=3.0, epsilon_server=4.0, sampling="fixed")

    assert everyone.rounds == everyone.max_participations == 10
    assert everyone.epsilon_server <= 1.0 < _server(15.0 * TWO_THIRDS**0.5, 11)
    assert sampled.rounds < 40 and sampled.epsilon <= 0.3
    assert sampled.epsilon_server <= 2.0 < _server(5.0, sampled.max_participations + 1)
    assert fixed.rounds < 40 and fixed.epsilon_server <= 4.0
    assert everyone.describe()["noise_decided_by"] == "noise_multiplier"


def _server(noise: float, participations: int) -> float:
    return accounts.epsilon_server([(noise, participations)], delta=1e-5)


def test_what_was_released_before_round_1_is_taken_from_the_servers_target() -> None:
    spent = (Event(noise_multiplier=8.0, sample_rate=1, rounds=1),)
    keys: dict[str, Any] = {"sample_rate": 1, "rounds": 20, "epsilon_server": 1.0}
    alone, after = solve(**keys), solve(**keys, spent=spent)

    assert after.noise_multiplier > alone.noise_multiplier
    assert 0.999 < after.epsilon_server <= 1.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"noise_multiplier": 3.0},
            PrivacyError,
            r"epsilon_server must be at least 1\.2\d+ for 1 participation a client at noise multiplier 3, got 1; raise",
        ),
        (
            {"noise_multiplier": 4.0, "max_participations": 3},
            PrivacyError,
            r"for 3 participations a client at noise multiplier 4, got 1; lower max_participations to 1, or raise",
        ),
        (
            {"spent": (Event(noise_multiplier=2.0, sample_rate=1, rounds=1),)},
            PrivacyError,
            r"what is released before round 1 costs 1\.9\d+ against the server; raise the noise of that release",
        ),
        ({"accountant": "moments", "epsilon_server": 0.3}, PrivacyError, "by the moments accountant"),
        (
            {"sample_rate": 1, "max_participations": 3},
            InputError,
            "must be the 40 rounds where every client is asked in every round, got 3.*set rounds to 3",
        ),
        (
            {"epsilon_server": 1e-3, "rounds": 10_000, "max_participations": 9_999},
            PrivacyError,
            r"out of reach with 9999 participations a client .*; lower max_participations to \d+, or raise it",
        ),
    ],
)
def test_a_target_that_participation_does_not_allow_is_refused_with_what_would(
    change: dict[str, Any], error: type[SottovoceError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        solve(**{"sample_rate": 1 / 12, "rounds": 40, "epsilon_server": 1.0, **change})
    assert "\n" not in str(caught.value)
