"""A6: clients that leave out their noise weaken everybody's guarantee; what is printed counts with them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant

from sottovoce.planning.plan import plan
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting.accountant import renyi
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan.omission import Omission, epsilons_under_attack
from sottovoce.runs.loop import run
from tests.runs.small import small

PLAN = {"length": 40, "delta": 1e-5, "clip_norm": 1.0}
EVERYONE = {**PLAN, "clients": 10, "sample_rate": 1, "rounds": 20, "epsilon": 1.0, "threshold": 1}
SOME = {**PLAN, "clients": 600, "sample_rate": 1 / 6, "rounds": 100, "epsilon": 1.0}


def direct(noise: float, sample_rate: float, rounds: int, delta: float) -> float:
    """Return epsilon by dp-accounting itself."""
    account = pld_privacy_accountant.PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise))
    account.compose(event, rounds)
    return float(account.get_epsilon(delta))


@pytest.mark.parametrize("colluders", [1, 3])
def test_the_noise_of_the_others_is_enough_without_that_of_colluders(colluders: int) -> None:
    """Play the shares: all but the colluders' are in the sum, and their variance is what epsilon 1 needs."""
    needed = PrivacyPlan.solve(**EVERYONE).noise_multiplier
    solved = PrivacyPlan.solve(**EVERYONE, colluders=colluders)
    assert solved.grid is not None
    draws = 4000
    sums = np.zeros((draws, solved.word_length))
    half, whole = 1 << (solved.grid.bits - 1), 1 << solved.grid.bits
    for client in range(10 - colluders):
        for draw in range(draws // 40):
            words = solved.protect(
                np.zeros(40, np.float32),
                cohort=10,
                randomness=Randomness.simulated(bytes([client]) + draw.to_bytes(31, "little")),
            ).astype(np.int64)
            sums[draw] += (words + half) % whole - half
    stddev = float(np.std(sums[: draws // 40])) * solved.step()

    assert stddev >= needed * 0.97  # 4,000 values: its relative error is 1.1 %, so 3 % less has a chance of 0.4 %
    assert stddev >= PrivacyPlan.solve(**EVERYONE).stddev() * math.sqrt(1 - colluders / 10) * 1.03


def test_the_printed_epsilon_counts_with_colluders_who_add_nothing() -> None:
    for request in (EVERYONE, SOME):
        for colluders in (1, 2):
            solved = PrivacyPlan.solve(**request, colluders=colluders)
            left = min((n - colluders) / n for n in range(solved.shares.floor, solved.shares.cap + 1))
            true = direct(solved.noise_multiplier * math.sqrt(left), request["sample_rate"], request["rounds"], 1e-5)
            assert true <= solved.epsilon * 1.001 <= 1.002


def test_a_given_noise_costs_more_with_colluders() -> None:
    given = {**SOME, "epsilon": None, "noise_multiplier": 6.0}
    without = [PrivacyPlan.solve(**given, colluders=c) for c in (0, 4)]
    assert without[0].noise_multiplier == without[1].noise_multiplier
    assert without[1].epsilon > without[0].epsilon * 1.02
    assert without[1].epsilon_member > without[0].epsilon_member


def test_without_colluders_nothing_changes() -> None:
    solved = PrivacyPlan.solve(**SOME)
    assert solved.shares.outsider_part == 1
    assert solved.epsilon == pytest.approx(direct(solved.noise_multiplier, 1 / 6, 100, 1e-5), rel=2e-3)


def test_attackers_of_a_share_of_each_cohort_are_charged_exactly() -> None:
    solved = PrivacyPlan.solve(**SOME)
    attacked = epsilons_under_attack(solved, Omission(lambda size: math.ceil(size / 5)))
    sizes = np.arange(solved.shares.floor, solved.shares.cap + 1)
    left = float(np.min(1 - np.ceil(sizes / 5) / sizes))
    assert attacked.epsilon == pytest.approx(
        direct(solved.noise_multiplier * math.sqrt(left), 1 / 6, 100, 1e-5), rel=0.02
    )
    assert attacked.epsilon_server > solved.epsilon_server


def test_attackers_of_the_population_are_charged_up_to_rare_cohorts() -> None:
    solved = PrivacyPlan.solve(**SOME)
    attacked = epsilons_under_attack(solved, Omission(None, 60))
    mean = direct(solved.noise_multiplier * math.sqrt(0.9), 1 / 6, 100, 1e-5)
    assert mean < attacked.epsilon < 1.4 * mean
    rng = np.random.default_rng(5)
    honest, cheating = rng.binomial(540, 1 / 6, 100_000), rng.binomial(60, 1 / 6, 100_000)
    worst = float(np.min(honest / (honest + cheating)))  # of 1,000 runs: rarer ones are charged too
    assert attacked.epsilon >= direct(solved.noise_multiplier * math.sqrt(worst), 1 / 6, 100, 1e-5) * 0.999


def test_an_attacked_private_run_prints_both_numbers(tmp_path: Path) -> None:
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}
    threat = {"attack": "gradient-ascent", "fraction": 0.2}
    experiment = small(privacy=private, threat=threat, experiment={"rounds": 2})

    planned, summary = plan(experiment), run(experiment, tmp_path / "run")

    for told in (planned, summary):
        assert told["epsilon_under_attack"] > told["epsilon"] > 0
        assert told["epsilon_server_under_attack"] > told["epsilon_server"]
    kept = small(privacy=private, threat={**threat, "omit_noise": False}, experiment={"rounds": 2})
    told = plan(kept)
    assert (told["epsilon_under_attack"], told["epsilon_server_under_attack"]) == (
        told["epsilon"],
        told["epsilon_server"],
    )
    assert "epsilon_under_attack" not in plan(small(threat=threat, experiment={"rounds": 2}))


def test_a_limit_over_runs_counts_with_colluders_too() -> None:
    """The filter's Renyi divergence is that of the noise that is surely there."""
    given = {**SOME, "epsilon": None, "noise_multiplier": 6.0}
    alone, colluding = (PrivacyPlan.solve(**given, colluders=c).events() for c in (0, 4))
    left = replace(alone[0], noise_multiplier=colluding[0].faced)

    assert colluding[0].faced < 0.97 * alone[0].faced
    assert renyi(colluding, 8.0) == pytest.approx(renyi([left], 8.0)) and renyi(colluding, 8.0) > renyi(alone, 8.0)
