from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.studies.audit.outsider import Outsider, canaries_of, coins
from sottovoce.studies.audit.units import UnitFormulas
from tests.studies.audit.test_canaries import plan


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_score_is_the_log_likelihood_ratio_of_the_sampled_gaussian(rate: float) -> None:
    units = UnitFormulas(plan(sample_rate=rate))
    outsider = Outsider(units, 1)
    canaries = canaries_of(units, 40, 5)
    released = np.random.default_rng(1).normal(0, math.sqrt(units.variance), 400)

    found = outsider.increment(canaries, released)

    def density(x: float, centre: float) -> float:
        return math.exp(-((x - centre) ** 2) / (2 * units.variance))

    for canary, score in zip(canaries.values(), found, strict=True):
        x = float(released[canary.place])
        ratio = ((1 - rate) * density(x, 0) + rate * density(x, units.radius)) / density(x, 0)
        assert score == pytest.approx(math.log(ratio))


def test_a_coin_of_one_is_a_likelihood_ratio_without_sampling() -> None:
    units = UnitFormulas(plan(sample_rate=1))

    assert Outsider(units, 1).increment(canaries_of(units, 40, 2), np.zeros(400)) == pytest.approx(
        [-(units.radius**2) / 2 / units.variance] * 2
    )


@pytest.mark.parametrize(
    ("keys", "wanted", "count"),
    [
        ({}, None, 40),
        ({}, 7, 7),
        ({"length": 12}, None, 12),
        ({"form": "signs", "clip_norm": 0.0}, None, 40),
    ],
)
def test_canaries_are_different_clients_in_different_directions(keys: Any, wanted: int | None, count: int) -> None:
    canaries = canaries_of(UnitFormulas(plan(**keys)), 40, wanted)

    assert len(canaries) == count
    assert len({canary.place for canary in canaries.values()}) == count
    assert max(canaries) < 40


@pytest.mark.parametrize("wanted", [1, 41])
def test_more_canaries_than_clients_are_refused(wanted: int) -> None:
    with pytest.raises(InputError, match="canaries must be from 2 to 40"):
        canaries_of(UnitFormulas(plan()), 40, wanted)


def test_under_adaptive_clipping_half_of_them_are_below_the_norm() -> None:
    canaries = canaries_of(UnitFormulas(plan(clipping="adaptive", count_stddev=1.0)), 40, None)

    assert sum(canary.scale < 1 for canary in canaries.values()) == 20


def test_the_bound_of_scores_drawn_from_the_plan_stays_below_epsilon_and_shows_something() -> None:
    """A correct claim is refuted at 1e-3 in one of a thousand seeds at most."""
    units = UnitFormulas(plan(rounds=30, noise_multiplier=1.0, clients=400, delta=1e-5))
    outsider = Outsider(units, 30)
    rng = np.random.default_rng(5)
    scores, present = outsider._simulated(400, 1.0, rng)
    outsider.take(scores, present, "drawn")

    bound, finding = outsider.finding("one run", units.plan.epsilon, 1e-5, 1e-3, seed=1)

    assert 1.0 < bound < units.plan.epsilon
    assert finding.p_value == pytest.approx(1.0)


def test_coins_are_fair_and_follow_from_the_generator() -> None:
    """A count of 2000 outside 1000 +- 150 has probability 2e-11."""
    canaries = dict.fromkeys(range(2000))
    flipped = coins(canaries, np.random.default_rng(1))  # type: ignore[arg-type]

    assert 850 < flipped.sum() < 1150
    assert (flipped == coins(canaries, np.random.default_rng(1))).all()  # type: ignore[arg-type]
