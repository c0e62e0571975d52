"""The energy guard: it refuses what honest clients cannot have sent, and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.federation.guard import EnergyGuard, influence
from sottovoce.privacy import PrivacyPlan

PAPERS = {"clients": 6000, "sample_rate": 1 / 60, "rounds": 200, "noise_multiplier": 1.2244, "delta": 1e-5}


@pytest.mark.parametrize("clip_norm", [1.0, 0.3])
def test_an_honest_sum_passes_and_one_beyond_the_bound_does_not(clip_norm: float) -> None:
    rng = np.random.default_rng(4)
    length, z = 5000, 1.5
    guard = EnergyGuard(bound=20, width=4)
    honest = np.zeros(length)
    honest[:100] = 1.5  # 15 clip norms
    noise = rng.normal(0, z, (40, length))
    limit = math.sqrt(guard.limit(z * z, length))

    for each in noise:  # the estimate is below its mean plus 4 standard deviations but once in 30,000 draws
        assert guard.excess((clip_norm * (honest + each)).astype(np.float32), z * clip_norm, clip_norm) <= 0
        far = honest + each + np.eye(length)[7] * (limit + 5 * math.sqrt(z * z * math.sqrt(2 * length)))
        assert guard.excess((clip_norm * far).astype(np.float32), z * clip_norm, clip_norm) > 0


def test_the_estimate_is_that_of_the_noiseless_sum_and_its_spread_is_the_formula() -> None:
    rng = np.random.default_rng(9)
    length, z = 2000, 2.0
    guard = EnergyGuard(bound=0, width=0)  # the excess is then the estimate itself
    signal = np.full(length, 0.25)
    estimates = [guard.excess((signal + rng.normal(0, z, length)).astype(np.float32), z, 1.0) for _ in range(400)]

    spread = z * z * math.sqrt(2 * length)
    # Five standard errors of a mean, and of a spread, over 400 draws.
    assert np.mean(estimates) == pytest.approx(signal @ signal, abs=5 * spread / 20)
    assert np.std(estimates) == pytest.approx(
        math.sqrt(spread**2 + 4 * z * z * (signal @ signal)), rel=5 / math.sqrt(800)
    )


def test_a_sum_that_is_not_finite_is_refused() -> None:
    values = np.zeros(10, np.float32)
    values[3] = np.inf

    assert EnergyGuard(60, 4).excess(values, 1.0, 1.0) > 0


@pytest.mark.parametrize(
    ("form", "length", "most", "votes", "radius"),
    [("floats", 8_317, 201, 11.2, 30), ("signs", 1_663_370, 19_170, 158, 190)],
)
def test_what_one_client_can_do_is_what_ballots_md_computes(
    form: str, length: int, most: float, votes: float, radius: float
) -> None:
    clip = {"clip_norm": 0.61} if form == "floats" else {}
    # 19,170 votes are the page's 23,444, where V was larger by 1.496, over its root.
    told = influence(PrivacyPlan.solve(form=form, length=length, threshold=2 / 3, **clip, **PAPERS))

    assert told["votes"] == pytest.approx(votes, rel=0.01)
    assert told["guard_radius"] == pytest.approx(radius, rel=0.01)
    assert told["most_per_coordinate"] == pytest.approx(most, rel=0.12)  # the grid has 13 and 10 bits, but another step
