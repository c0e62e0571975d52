from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.privacy.noise.grid import COARSEST, FINEST, FINEST_SHARE, TAIL, solve_grid
from sottovoce.privacy.noise.lattice import ROUNDING
from sottovoce.privacy.plan.cohort import Shares

CNN = 1_663_370


def everyone(cap: int) -> Shares:
    return Shares(threshold=1.0, colluders=0, floor=1, cap=cap)


@pytest.mark.parametrize("z", [1.2244, 1.54])
@pytest.mark.parametrize("length", [8317, CNN])
@pytest.mark.parametrize("cap", [100, 130, 150, 177])
def test_floats_take_at_most_thirteen_bits_at_the_papers_cohort(z: float, length: int, cap: int) -> None:
    assert solve_grid(noise_multiplier=z, shares=everyone(cap), length=length).bits <= 13


@pytest.mark.parametrize("z", [1.2244, 1.54])
def test_signs_take_ten_bits_at_the_papers_cohort(z: float) -> None:
    assert solve_grid(noise_multiplier=z, shares=everyone(177), length=CNN, form="signs").bits == 10


def test_the_papers_own_grid_for_signs_takes_sixteen_bits_and_a_client_std_of_199() -> None:
    grid = solve_grid(noise_multiplier=1.54, shares=everyone(100), length=CNN, form="signs", step_one=True)

    assert grid.bits == 16
    assert math.sqrt(grid.variance / 100) == pytest.approx(198.6, abs=0.1)


def test_secure_aggregation_with_dropouts_keeps_the_bits() -> None:
    shares = Shares(threshold=2 / 3, colluders=3, floor=60, cap=177)

    assert solve_grid(noise_multiplier=1.2244, shares=shares, length=CNN).bits == 13
    assert solve_grid(noise_multiplier=1.2244, shares=shares, length=CNN, form="signs").bits == 10


@settings(max_examples=60, deadline=None)
@given(
    z=st.floats(0.3, 30),
    cap=st.integers(1, 400),
    length=st.integers(1, 2_000_000),
    form=st.sampled_from(["floats", "signs"]),
)
def test_no_solved_grid_can_wrap_or_lose_its_noise(z: float, cap: int, length: int, form: str) -> None:
    grid = solve_grid(noise_multiplier=z, shares=everyone(cap), length=length, form=form)

    largest = grid.radius / math.sqrt(length) if form == "signs" else grid.radius
    assert cap * largest + TAIL * math.sqrt(grid.variance) < 2 ** (grid.bits - 1)
    assert math.sqrt(grid.variance - ROUNDING**2) / grid.radius == pytest.approx(z)
    assert grid.wrap_probability < 1e-24
    assert grid.slack <= 1e-20
    assert z * grid.radius >= COARSEST * 0.999
    finest = max(FINEST, FINEST_SHARE * math.sqrt(cap))
    assert z * grid.radius <= finest * 1.001 or (form == "floats" and grid.precision == 8)


def test_too_few_bits_are_refused_rather_than_wrapped() -> None:
    with pytest.raises(PrivacyError, match="not to wrap, got 9"):
        solve_grid(noise_multiplier=1.54, shares=everyone(100), length=100, bits=9)


def test_a_cohort_that_no_modulus_holds_is_refused() -> None:
    with pytest.raises(PrivacyError, match="lower the cohort cap"):
        solve_grid(noise_multiplier=1e-4, shares=everyone(10_000), length=100)


@settings(deadline=None)
@given(threshold=st.sampled_from([2 / 3, 0.9, 1.0]), colluders=st.integers(0, 5), cap=st.integers(20, 300))
def test_each_adversary_is_left_at_least_its_part_of_the_noise(threshold: float, colluders: int, cap: int) -> None:
    shares = Shares(threshold, colluders, 20, cap)

    parts = [shares.honest(cohort) / cohort for cohort in range(20, cap + 1)]

    assert shares.server_part == pytest.approx(min(parts))
    assert shares.member_part == pytest.approx((19 - colluders) / 20)
    assert shares.outsider_part == pytest.approx((20 - colluders) / 20)
    assert 0 < shares.third_part < shares.survivors(20) / 20


@pytest.mark.parametrize("cap", [500, 1000, 5000, 6000])
@pytest.mark.parametrize("z", [0.8, 2.3, 16.7])
def test_large_cohorts_have_a_grid_that_follows_them(cap: int, z: float) -> None:
    grid = solve_grid(noise_multiplier=z, shares=Shares(2 / 3, 0, cap // 2, cap), length=4010)

    assert grid.bits <= 24
    assert 1.5 < math.sqrt(grid.variance / cap) <= FINEST_SHARE * 1.01, "a share is wide enough to be Gaussian"
    assert grid.slack < 1e-20


def test_two_survivor_sets_must_share_an_honest_client() -> None:
    with pytest.raises(PrivacyError, match="colluders must leave two survivor sets a common honest client, got 6"):
        Shares(2 / 3, 6, 12, 100)


def test_the_threshold_is_that_of_secure_aggregation() -> None:
    shares = Shares(2 / 3, 0, 1, 200)

    assert [shares.survivors(n) for n in (1, 2, 3, 60, 99, 100)] == [1, 2, 3, 41, 67, 67]


def test_too_few_messages_release_nothing() -> None:
    shares = Shares(2 / 3, 0, 1, 177)

    with pytest.raises(RunError, match="round 7: 61 messages, but the noise was shared among at least 67; nothing was"):
        shares.check(100, 61, round_=7)
    with pytest.raises(RunError, match="above the cohort cap 177"):
        shares.check(178, 178)


def test_colluders_must_leave_somebody() -> None:
    with pytest.raises(PrivacyError, match="must leave an honest survivor"):
        Shares(2 / 3, 5, 4, 100)
    with pytest.raises(InputError, match="threshold must be in"):
        Shares(0.2, 0, 1, 10)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"noise_multiplier": 3000.0, "length": 9610}, "too wide for the exact sampler; raise epsilon or cohort_floor"),
        (
            {"noise_multiplier": 0.3, "length": 9610, "max_slack": 1e-50},
            "too far from a Gaussian at so large an epsilon",
        ),
        ({"noise_multiplier": 1e-6, "length": 10}, "it would wrap; lower the cohort cap"),
    ],
)
def test_what_no_grid_can_do_is_refused_with_the_reason(keys: dict[str, float], reason: str) -> None:
    with pytest.raises(PrivacyError, match=reason):
        solve_grid(**{"shares": everyone(200), **keys})
