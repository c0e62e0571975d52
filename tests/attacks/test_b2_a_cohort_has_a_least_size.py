"""Of a cohort of two, one client reads the other's update off the sum: every secure run has a least cohort.

Clients insist on it by themselves; the server's word plays no part. No sampling, no false alarms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from sottovoce.assembly.protection import Protection, protect
from sottovoce.core.errors import ConfigError, InputError, PrivacyError, SecAggError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.cohort import Cohort
from sottovoce.planning.plan import gather_shapes
from sottovoce.planning.plan import plan as plan_of
from sottovoce.privacy import PrivacyPlan
from sottovoce.report.planning import plan_sections
from sottovoce.runs.loop import run
from sottovoce.secagg import Policy
from sottovoce.secagg.session import default_threshold
from tests.runs.machines import federation
from tests.runs.small import small

REAL = {"secure": "real"}
PRIVACY = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5}


def protection_of(**tables: Any) -> Protection:
    return protect(gather_shapes(small(**tables))[0])


def policy_of(protection: Protection) -> Policy:
    policy = protection.policy(protection.parts.scheme.bind(protection.parts.network.dim), protection.plan)
    assert policy is not None
    return policy


@pytest.mark.parametrize("tables", [{}, {"privacy": PRIVACY}], ids=["plain", "private"])
def test_a_client_refuses_a_cohort_of_two_that_a_server_announces(tables: dict[str, Any]) -> None:
    protection = protection_of(aggregation=REAL, **tables)
    policy, keys = policy_of(protection), SimulatedKeys(Seeds(1), 20)
    floor = protection.cohort_floor
    assert floor is not None
    few = replace(policy, fewest=2, threshold=default_threshold)  # what a server that lies announces by

    def announced(size: int) -> bytes:
        return few.session(session_id=bytes(16), round_=1, clients=range(size), keys=keys).pack()

    assert floor >= 3
    assert policy.accept(announced(floor), keys).clients == tuple(range(floor))
    for size in range(2, floor):
        with pytest.raises(SecAggError, match=f"a cohort of {size} clients, at least {floor} are needed"):
            policy.accept(announced(size), keys)


@pytest.mark.parametrize(
    ("clients", "rate", "colluders", "least"),
    [
        (100, "1/5", 0, 10),  # half of the expected cohort
        (20, "1/4", 0, 3),
        (20, "1/4", 2, 5),
        (20, "1", 0, 20),  # everybody is asked, so everybody must be named
        (6000, "1/60", 0, 57),  # fewer are drawn in less than one of 10^6 rounds
        (20, "1/10", 0, 2),  # three are not expected: a simulation says so, and nobody deploys it
        (3, "1", 0, 3),
        (2, "1", 0, 2),
    ],
)
def test_without_privacy_it_is_half_of_the_expected_cohort_and_at_least_three(
    clients: int, rate: str, colluders: int, least: int
) -> None:
    assert Cohort(clients, Fraction(rate)).smallest(colluders) == least


@pytest.mark.parametrize(
    ("clients", "rate", "rounds", "delta"),
    [(100, 0.2, 50, 1e-3), (20, 0.5, 30, 1e-2), (60, 0.3, 40, 1e-3), (100, 0.2, 50, 1e-5)],
)
def test_in_a_small_private_run_it_is_the_largest_that_half_of_delta_can_pay_for(
    clients: int, rate: float, rounds: int, delta: float
) -> None:
    keys: dict[str, Any] = {"clients": clients, "sample_rate": rate, "rounds": rounds, "delta": delta}
    plan = PrivacyPlan.solve(**keys, clip_norm=1.0, length=10, noise_multiplier=2.0, threshold=2 / 3)
    floor, [event] = plan.shares.floor, plan.events()

    def cost(size: int) -> float:
        return float(rounds * rate * binom.pmf(size - 1, clients - 1, rate))

    assert cost(floor) <= delta / 2
    assert cost(floor + 1) > delta / 2 or floor + 1 > math.ceil(rate * clients / 2)
    assert event.floor_slack == pytest.approx(cost(floor), rel=0.02)
    assert plan.describe()["delta_for_floor"] == event.floor_slack


def test_a_plan_whose_cohorts_are_large_anyway_pays_next_to_nothing_and_keeps_its_noise() -> None:
    keys: dict[str, Any] = {"clients": 6000, "sample_rate": 1 / 60, "rounds": 200, "delta": 1e-5}
    plan = PrivacyPlan.solve(**keys, clip_norm=1.0, length=100, epsilon=1.0)

    assert plan.shares.floor == 40
    assert plan.noise_multiplier == pytest.approx(1.2244, abs=6e-5)
    assert plan.events()[0].floor_slack < 1e-4 * 1e-5


def test_colluders_raise_it() -> None:
    keys: dict[str, Any] = {"clients": 80, "sample_rate": 0.3, "rounds": 20, "delta": 1e-3, "clip_norm": 1.0}
    floors = [
        PrivacyPlan.solve(**keys, length=10, noise_multiplier=2.0, threshold=2 / 3, colluders=c).shares.floor
        for c in (0, 3)
    ]

    assert 3 <= floors[0] < 3 + 3 <= floors[1]


@pytest.mark.parametrize(
    "tables",
    [
        {"cohort": {"sample_rate": "1/10"}},  # two of twenty are expected
        {"data": {"clients": 2}, "cohort": {"sample_rate": 1}},
        {"privacy": {**PRIVACY, "delta": 1e-5}},
        {"data": {"clients": 3}, "cohort": {"sample_rate": 1}, "privacy": PRIVACY},
        {"cohort": {"sample_rate": "1/10", "sampling": "fixed"}, "privacy": PRIVACY},
        {"cohort": {"sample_rate": 1, "floor": 3}, "aggregation": {**REAL, "colluders": 2}},
    ],
)
def test_a_deployed_run_with_smaller_cohorts_is_refused_with_a_way_out(tables: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(**{"aggregation": REAL, **tables})
    deployed, _ = federation(experiment)

    with pytest.raises(PrivacyError, match=r"cohort_floor must be at least \d.*raise \[cohort\] sample_rate"):
        run(experiment, tmp_path / "run", parties=deployed)

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("tables", [{}, {"privacy": {**PRIVACY, "epsilon": 50.0}}], ids=["plain", "private"])
def test_a_small_simulation_goes_on_and_says_so(tables: dict[str, Any], tmp_path: Path) -> None:
    few = {"data": {"clients": 3}, "cohort": {"sample_rate": "2/3", "sampling": "fixed"}, "engine": {"workers": 1}}
    experiment = small(aggregation={"secure": "ideal"}, **few, **tables)
    summary, told = run(experiment, tmp_path / "run"), plan_of(experiment)
    shown = dict(plan_sections(told)[4].facts)

    assert summary["aborted_rounds"] == 0
    assert summary["cohort_floor"] == told["cohort_floor"] == 2
    assert "cohort_floor must be at least 3" in summary["cohort_floor_note"]
    assert shown["least cohort (cohort_floor)"] == "2"
    assert shown["... which is too few"] == summary["cohort_floor_note"]


def test_a_plan_shows_the_least_cohort_and_no_warning_where_there_is_none() -> None:
    told = plan_of(small(aggregation=REAL))
    shown = dict(plan_sections(told)[4].facts)

    assert told["cohort_floor"] == 5
    assert shown["least cohort (cohort_floor)"] == "5"
    assert told["cohort_floor_note"] is None
    assert plan_of(small())["cohort_floor"] is None, "a server that sees each update hides nobody"


def test_a_floor_can_be_set_and_reaches_clients_and_plan() -> None:
    plain = protection_of(aggregation=REAL, cohort={"floor": 7})
    private = protection_of(aggregation=REAL, cohort={"floor": 4, "sample_rate": "9/10"}, privacy=PRIVACY)

    assert policy_of(plain).fewest == plain.cohort_floor == 7
    assert policy_of(private).fewest == private.cohort_floor == 4
    assert private.plan is not None
    assert private.plan.draw_cohort(np.zeros(20, np.int32), np.random.default_rng(1)).clients.size >= 4


@pytest.mark.parametrize(
    ("cohort", "error", "sentence"),
    [
        ({"floor": 1}, ConfigError, "floor"),
        ({"floors": 3}, ConfigError, "did you mean 'floor'"),
        ({"floor": 21}, InputError, "[cohort] floor"),
    ],
)
def test_a_floor_that_cannot_be_kept_is_refused(cohort: dict[str, Any], error: Any, sentence: str) -> None:
    with pytest.raises(error) as caught:
        protection_of(aggregation=REAL, cohort=cohort)

    assert sentence in str(caught.value)
