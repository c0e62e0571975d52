"""Under fixed-size sampling a client takes another's place: all epsilons are for that pair, at distance 2.

The old `epsilon_server` was for a message replaced by nothing, at distance 1, and could be below `epsilon`.
"""

from __future__ import annotations

from typing import Any

import pytest

from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting.accountant import epsilon_server
from sottovoce.privacy.accounting.calculator import calculate
from sottovoce.privacy.adjacency import ADJACENCY


def solve(**keys: Any) -> PrivacyPlan:
    base: dict[str, Any] = {"clients": 100, "sample_rate": 0.9, "rounds": 20, "delta": 1e-3, "sampling": "fixed"}
    return PrivacyPlan.solve(**{**base, "clip_norm": 1.0, "length": 100, **keys})


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 0.99])
def test_whoever_sees_more_is_never_promised_more(rate: float) -> None:
    plan = solve(noise_multiplier=10.0, sample_rate=rate)

    assert plan.epsilon <= plan.epsilon_server <= plan.epsilon_if_a_third_colludes
    assert plan.epsilon <= plan.epsilon_member


def test_the_server_is_charged_at_the_distance_of_the_adjacency() -> None:
    plan = solve(noise_multiplier=10.0, mechanism="gaussian")
    expected = epsilon_server([(10.0 / 2, plan.max_participations)], delta=1e-3 * (1 - 1e-5))

    assert plan.events()[0].distance == ADJACENCY.distance(fixed_size=True, sample_rate=0.9) == 2
    assert plan.epsilon_server == pytest.approx(expected, rel=1e-6)


def test_a_target_against_the_server_is_kept_at_that_distance() -> None:
    plan = solve(epsilon_server=2.0)
    given = solve(epsilon_server=2.0, noise_multiplier=plan.noise_multiplier * 1.001)

    assert 1.99 < plan.epsilon_server <= 2.0
    assert given.rounds == plan.rounds


def test_where_everybody_is_asked_nobody_takes_a_place() -> None:
    fixed, poisson = (solve(noise_multiplier=10.0, sample_rate=1.0, sampling=kind) for kind in ("fixed", "poisson"))

    assert fixed.epsilon == poisson.epsilon
    assert fixed.events()[0].distance == 1


def test_the_calculator_says_the_same() -> None:
    told = calculate(sample_rate=0.9, rounds=20, delta=1e-3, noise_multiplier=10.0, sampling="fixed", threshold=1)

    assert told["epsilon"] <= told["epsilon_server"]
    assert told["epsilon_server"] == pytest.approx(epsilon_server([(5.0, 20)], delta=1e-3), rel=1e-6)
