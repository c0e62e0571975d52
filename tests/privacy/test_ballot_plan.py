"""Plans whose noise is added by two aggregators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.plan.ballots import solve_ballot_grid
from sottovoce.privacy.plan.cohort import Shares

PAPERS: dict[str, Any] = {
    "clients": 6000,
    "sample_rate": 1 / 60,
    "rounds": 200,
    "delta": 1e-5,
    "threshold": 2 / 3,
    "clip_norm": 1.0,
    "length": 8317,
    "noise_by": "aggregators",
}


@pytest.mark.parametrize(
    ("each", "participations", "outsiders", "aggregator"),
    [(1.2244, 1, 0.573, 3.468), (1.2244, 3, 0.573, 6.575), (0.8658, 1, 1.000, 5.177), (0.8658, 3, 1.000, 10.00)],
)
def test_the_epsilons_are_those_of_the_design(
    each: float, participations: int, outsiders: float, aggregator: float
) -> None:
    plan = PrivacyPlan.solve(**PAPERS, noise_multiplier=each * math.sqrt(2), max_participations=participations)

    assert plan.epsilon == pytest.approx(outsiders, abs=0.003)
    assert plan.epsilon_server == pytest.approx(aggregator, abs=0.003)
    assert plan.describe()["epsilon_both_aggregators"] is None


def test_a_target_against_an_aggregator_sets_the_noise_of_each() -> None:
    plan = PrivacyPlan.solve(
        **{**PAPERS, "length": 4010, "sample_rate": 1.0, "rounds": 20, "clip_norm": 0.6}, epsilon_server=1.0
    )

    told = plan.describe()
    assert told["aggregator_noise_multiplier"] == pytest.approx(16.68, abs=0.01)
    assert plan.epsilon == pytest.approx(0.69, abs=0.01) and 0.99 < plan.epsilon_server <= 1.0


def test_each_aggregator_alone_adds_all_of_its_own_noise() -> None:
    plan = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244 * math.sqrt(2))

    drawn = plan.aggregator_noise(Randomness.simulated(bytes(32)))

    # The estimate of a variance from 8317 draws is 1.55 % off in one of three cases; 8 % never (five of those).
    assert drawn.var() == pytest.approx(1.2244**2 * 8317 + 4, rel=0.08)
    assert plan.stddev() == pytest.approx(math.sqrt(2 * (1.2244**2 * 8317 + 4) / 8317), rel=1e-9)


def test_the_first_draw_of_a_client_after_its_last_participation_is_turned_away() -> None:
    plan = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.7, max_participations=1)
    draws = np.zeros(6000, np.int32)
    rng = np.random.default_rng(1)
    seen: set[int] = set()
    for _ in range(60):
        cohort, draws = plan.draw_cohort(draws, rng)
        assert not seen.intersection(cohort.tolist())
        seen.update(cohort.tolist())


@pytest.mark.parametrize(("length", "noise", "bits"), [(8317, 1.73, 16), (1_663_370, 1.73, 16), (1_663_370, 2.4, 32)])
def test_words_are_wide_enough_for_the_cohort_and_twelve_deviations(length: int, noise: float, bits: int) -> None:
    plan = PrivacyPlan.solve(**{**PAPERS, "length": length}, noise_multiplier=noise)

    assert plan.bits == bits
    assert 2 ** (bits - 1) > plan.cohort_cap + 12 * noise * math.sqrt(length)


@pytest.mark.parametrize(("cap", "bits"), [(31_000, 16), (32_000, 32)])
def test_votes_and_noise_share_the_room_of_a_word(cap: int, bits: int) -> None:
    """12 deviations are 1,291 votes here: 32,000 clients fit 15 bits, and so does the noise, but not both."""
    shares = Shares(2 / 3, 0, 2, cap, by_aggregators=True)

    grid = solve_ballot_grid(noise_multiplier=1.7, shares=shares, length=4000, max_slack=1e-18)

    assert grid.bits == bits
    assert grid.wrap_probability < 1e-25


def test_a_client_of_ballots_adds_no_noise_and_an_aggregator_of_masks_none() -> None:
    ballots = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.7)
    shares = PrivacyPlan.solve(**{**PAPERS, "noise_by": "clients"}, noise_multiplier=1.7)
    key = Randomness.simulated(bytes(32))

    with pytest.raises(PrivacyError, match="added by the aggregators, not by the clients"):
        ballots.protect(np.zeros(8317, np.float32), cohort=100, randomness=key)
    with pytest.raises(PrivacyError, match="added by the clients, not by the aggregators"):
        shares.aggregator_noise(key)


def test_noise_of_a_deployment_is_not_seeded() -> None:
    plan = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.7, deployment=True)

    with pytest.raises(PrivacyError, match="not from a seed"):
        plan.aggregator_noise(Randomness.simulated(bytes(32)))


def test_plans_without_ballots_keep_the_seal_that_older_ledgers_name() -> None:
    plan = PrivacyPlan.solve(**{**PAPERS, "noise_by": "clients"}, epsilon=1.0)

    assert plan.digest() == "dd1c774adb6d9fafacfe2d01038f053c5d0479ce9803477a4aab13e3f8bd52d6"


@pytest.mark.parametrize(
    "keys", [{"bits": 12}, {"mechanism": "gaussian"}, {"clipping": "adaptive"}, {"grid": "papers", "form": "signs"}]
)
def test_what_ballots_do_not_have_is_refused(keys: dict[str, Any]) -> None:
    asked = {**PAPERS, **keys}
    if asked.get("form") == "signs":
        asked["clip_norm"] = 0.0
    with pytest.raises(InputError, match="ballot"):
        PrivacyPlan.solve(**asked, noise_multiplier=1.7)
