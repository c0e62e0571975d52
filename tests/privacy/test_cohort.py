from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.privacy.plan.cohort import Drawn, draw_cohort
from sottovoce.privacy.plan.plan import PrivacyPlan

KEYS: dict[str, Any] = {"sample_rate": 0.1, "size": 10, "cohort_cap": 100, "max_participations": 1000}


def rounds(count: int, **keys: Any) -> list[Drawn]:
    rng = np.random.default_rng(5)
    draws = np.zeros(100, np.int32)
    cohorts = []
    for _ in range(count):
        cohorts.append(draw_cohort(draws, **{"sampling": "poisson", **KEYS, **keys}, rng=rng))
        draws = cohorts[-1].draws
    return cohorts


def test_poisson_cohorts_vary_like_a_binomial() -> None:
    sizes = [cohort.clients.size for cohort in rounds(2000)]

    # False-alarm rate below 1e-6 each: 5 standard errors.
    assert abs(np.mean(sizes) - 10) < 5 * 3 / np.sqrt(2000)
    assert abs(np.var(sizes) - 9) < 5 * 9 * np.sqrt(2 / 2000)


def test_fixed_cohorts_have_one_size_and_no_client_twice() -> None:
    for cohort in rounds(50, sampling="fixed"):
        assert cohort.clients.size == np.unique(cohort.clients).size == 10


def test_a_cohort_above_the_cap_is_cut_but_its_draws_count() -> None:
    last = np.zeros(100, np.int32)
    cut = 0
    for cohort in rounds(200, cohort_cap=11):
        drawn = np.flatnonzero(cohort.draws - last)
        last = cohort.draws
        assert cohort.clients.size == min(11, drawn.size)
        assert np.isin(cohort.clients, drawn).all()
        cut += drawn.size > 11
    assert cut > 20


def test_nobody_takes_part_more_often_than_the_cap() -> None:
    part = np.zeros(100, int)
    for cohort in rounds(300, max_participations=7):
        part[cohort.clients] += 1

    assert part.max() == 7
    assert rounds(300, max_participations=7)[-1].draws.max() > 7


def test_a_cohort_below_the_floor_is_sent_home_but_its_draws_count() -> None:
    last = np.zeros(100, np.int32)
    small = 0
    for cohort in rounds(200, cohort_floor=9):
        drawn = np.flatnonzero(cohort.draws - last)
        last = cohort.draws
        assert cohort.clients.size == (drawn.size if drawn.size >= 9 else 0)
        small += 0 < drawn.size < 9
    assert small > 20


def test_the_plan_draws_what_it_charges() -> None:
    plan = PrivacyPlan.solve(
        clients=100,
        sample_rate=0.1,
        rounds=20,
        delta=1e-3,
        noise_multiplier=2.0,
        clip_norm=1.0,
        length=9,
        accountant="rdp",
    )
    rng = np.random.default_rng(0)
    draws = np.zeros(100, np.int32)
    part = np.zeros(100, int)
    for _ in range(20):
        cohort, draws = plan.draw_cohort(draws, rng)
        part[cohort] += 1
        assert cohort.size <= plan.cohort_cap

    assert part.max() <= plan.max_participations
    with pytest.raises(InputError, match="draws must count 100 clients"):
        plan.draw_cohort(np.zeros(99, np.int32), rng)
