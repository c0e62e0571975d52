from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sottovoce.core.errors import InputError, PrivacyError, RunError, SottovoceError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.privacy.noise import path
from sottovoce.privacy.noise.path import sign_centre
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan.plan import PrivacyPlan

# The moments accountant is the quick one; what is tested here does not depend on which.
SMALL: dict[str, Any] = {
    "clients": 100,
    "sample_rate": 0.2,
    "rounds": 5,
    "delta": 1e-3,
    "noise_multiplier": 2.0,
    "clip_norm": 0.5,
    "length": 64,
    "accountant": "moments",
}


def plan(**keys: Any) -> PrivacyPlan:
    return PrivacyPlan.solve(**{**SMALL, **keys})


def noise(*path_: int) -> Randomness:
    return Randomness.simulated(Streams(1).key(Purpose.NOISE, *path_))


def test_the_papers_setting_at_epsilon_one_is_solved_whole() -> None:
    solved = PrivacyPlan.solve(
        clients=6000, sample_rate=1 / 60, rounds=200, delta=1e-5, epsilon=1.0, clip_norm=0.61, length=8317
    )

    assert solved.noise_multiplier == pytest.approx(1.2244, abs=6e-5)
    assert 0.9999 < solved.epsilon <= 1.0
    assert solved.bits == 13
    assert solved.max_participations == 13
    assert solved.epsilon_server > solved.epsilon
    assert solved.stddev() == pytest.approx(1.2244 * 0.61, rel=4e-3)  # the rounding width costs the rest
    assert solved.wrap_probability < 1e-20


def test_messages_come_back_as_their_sum_plus_noise_of_the_planned_size() -> None:
    solved = plan(length=4000)
    rng = np.random.default_rng(3)
    messages = [(rng.standard_normal(4000) * 0.005).astype(np.float32) for _ in range(20)]

    words = [solved.protect(m, cohort=20, randomness=noise(1, k)) for k, m in enumerate(messages)]
    total = np.sum(words, axis=0, dtype=np.uint32) & np.uint32(2**solved.bits - 1)
    release = solved.recover(total, cohort=20, survivors=20, randomness=noise(2))

    error = release.total - np.sum(messages, axis=0)
    assert all(w.dtype == np.uint32 and int(w.max()) < 2**solved.bits for w in words)
    assert release.clip_norm == 0.5
    assert abs(error.mean()) < 5 * solved.stddev() / math.sqrt(4000)
    assert error.std() == pytest.approx(solved.stddev(), rel=0.06)


def test_dropped_noise_is_made_up_so_that_the_release_does_not_tell_who_came() -> None:
    solved = plan(length=4000, threshold=2 / 3)
    zeros = np.zeros(4000, np.float32)
    words = [solved.protect(zeros, cohort=20, randomness=noise(1, k)) for k in range(14)]

    release = solved.recover(np.sum(words, axis=0), cohort=20, survivors=14, randomness=noise(2))
    empty = solved.recover(np.zeros(4000, np.uint32), cohort=0, survivors=0, randomness=noise(3))

    assert release.total.std() == pytest.approx(solved.stddev(), rel=0.06)
    assert empty.total.std() == pytest.approx(solved.stddev(), rel=0.06)


def test_too_few_survivors_release_nothing() -> None:
    solved = plan(threshold=2 / 3)

    with pytest.raises(RunError, match="round 4: 13 messages, but the noise was shared among at least 14"):
        solved.recover(np.zeros(64, np.uint32), cohort=20, survivors=13, randomness=noise(1), round_=4)


def test_protecting_repeats_under_a_simulation_key() -> None:
    message = np.ones(64, np.float32)

    first = plan().protect(message, cohort=20, randomness=noise(1, 2))

    assert (first == plan().protect(message, cohort=20, randomness=noise(1, 2))).all()
    assert (first != plan().protect(message, cohort=20, randomness=noise(1, 3))).any()


@settings(max_examples=80, deadline=None)
@given(
    message=hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    radius=st.floats(1, 40),
    precision=st.integers(4, 8),
)
def test_no_message_is_longer_than_the_radius_after_rounding(message: Any, radius: float, precision: int) -> None:
    centres = np.empty(message.size, np.int32)

    path._centres(message, path.norm(message), 0.5, radius, precision, centres)

    assert sum(int(c) ** 2 for c in centres) <= Fraction(radius) ** 2 * 4**precision


def test_a_short_message_is_rounded_and_not_scaled() -> None:
    message = np.array([0.1, -0.2, 0.0], np.float32)
    centres = np.empty(3, np.int32)

    path._centres(message, path.norm(message), 0.5, 20.0, 6, centres)

    assert centres.tolist() == [round(0.1 * 40 * 64), round(-0.2 * 40 * 64), 0]


@given(radius=st.floats(1, 2000), length=st.integers(1, 2_000_000))
def test_signs_are_never_longer_than_the_radius(radius: float, length: int) -> None:
    centre = sign_centre(radius, length)

    assert centre * centre * length <= Fraction(radius) ** 2
    assert float(centre) == pytest.approx(min(1.0, radius / math.sqrt(length)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_message_that_is_not_finite_is_a_client_failure(bad: float) -> None:
    message = np.ones(64, np.float32)
    message[7] = bad

    with pytest.raises(RunError, match="has values that are not finite; it was not sent"):
        plan().protect(message, cohort=20, randomness=noise(1))


def test_a_zero_message_is_sent_as_noise() -> None:
    assert plan().protect(np.zeros(64, np.float32), cohort=20, randomness=noise(1)).any()


@pytest.mark.parametrize("grid", ["solved", "papers"])
def test_signs_come_back_as_their_sum_plus_noise(grid: str) -> None:
    solved = plan(form="signs", length=4096, clip_norm=0.0, grid=grid)
    signs = np.where(np.arange(4096) % 3 == 0, -1, 1).astype(np.int8)

    words = [solved.protect(signs, cohort=30, randomness=noise(1, k)) for k in range(30)]
    release = solved.recover(np.sum(words, axis=0, dtype=np.uint32), cohort=30, survivors=30, randomness=noise(2))

    error = release.total - 30.0 * signs
    assert solved.stddev() == pytest.approx(2.0 * 64, rel=6e-3)
    assert error.std() == pytest.approx(solved.stddev(), rel=0.06)
    assert abs(error.mean()) < 5 * solved.stddev() / 64


def test_a_ballot_with_a_zero_is_refused() -> None:
    with pytest.raises(InputError, match="must be \\+1 or -1"):
        plan(form="signs", clip_norm=0.0).protect(np.zeros(64, np.int8), cohort=20, randomness=noise(1))


def test_adaptive_clipping_moves_towards_the_quantile_within_the_budget() -> None:
    solved = plan(clipping="adaptive", clip_norm=1.0, clients=400, sample_rate=0.5, delta=1e-3, count_stddev=5.0)
    long = np.full(64, 1.0, np.float32)  # norm 8: above S
    norm = 1.0
    for round_ in range(3):
        words = [solved.protect(long, cohort=200, randomness=noise(round_, k), clip_norm=norm) for k in range(200)]
        release = solved.recover(
            np.sum(words, axis=0, dtype=np.uint32), cohort=200, survivors=200, randomness=noise(9), clip_norm=norm
        )
        assert words[0].size == solved.word_length == 65
        assert release.total.size == 64
        assert 1.05 < release.clip_norm / norm < 1.11  # exp(0.2 * 0.5), give or take the count's noise
        norm = release.clip_norm

    z, update = solved.noise_multiplier, solved.update_noise_multiplier
    assert update**-2 + (2 * 5.0) ** -2 == pytest.approx(z**-2)
    assert solved.stddev(1.0) == pytest.approx(update, rel=6e-3)


def test_a_count_that_would_take_all_of_the_budget_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"count_stddev must be above half the noise multiplier, 1, got 0\.9"):
        plan(clipping="adaptive", count_stddev=0.9).update_noise_multiplier  # noqa: B018


def test_only_adaptive_clipping_may_change_the_norm() -> None:
    with pytest.raises(PrivacyError, match="only adaptive clipping may change it"):
        plan().protect(np.zeros(64, np.float32), cohort=20, randomness=noise(1), clip_norm=0.6)


def test_the_continuous_gaussian_has_the_same_noise_in_simulation_and_says_so() -> None:
    solved = plan(mechanism="gaussian", length=4000, threshold=2 / 3)
    sums = np.sum(
        [solved.protect(np.zeros(4000, np.float32), cohort=20, randomness=noise(1, k)) for k in range(15)], axis=0
    )

    release = solved.recover(sums, cohort=20, survivors=15, randomness=noise(5))

    assert release.total.std() == pytest.approx(solved.stddev(), rel=0.06)
    assert solved.bits is None
    assert solved.describe()["note"] == "simulated: not private"
    with pytest.raises(PrivacyError, match="for simulation only"):
        plan(mechanism="gaussian", deployment=True)


def test_a_deployment_takes_noise_from_the_operating_system_only() -> None:
    solved = plan(deployment=True)

    with pytest.raises(PrivacyError, match="not from a seed"):
        solved.protect(np.zeros(64, np.float32), cohort=20, randomness=noise(1))
    with pytest.raises(PrivacyError, match="not from a seed"):
        solved.recover(np.zeros(64, np.uint32), cohort=20, survivors=20, randomness=noise(1))
    assert solved.protect(np.zeros(64, np.float32), cohort=20, randomness=Randomness.system()).any()


def test_a_plan_cannot_be_changed_by_hand() -> None:
    solved = plan()

    for change in ({"noise_multiplier": 0.1}, {"epsilon": 0.1}, {"rounds": 50}, {"max_participations": 99}):
        with pytest.raises(PrivacyError, match=r"use PrivacyPlan\.solve"):
            replace(solved, **change)
    with pytest.raises(PrivacyError, match=r"use PrivacyPlan\.solve"):
        replace(solved, request=replace(solved.request, rounds=1000))


def test_a_plan_travels_by_pickle_and_stays_small() -> None:
    solved = plan()
    solved.protect(np.zeros(64, np.float32), cohort=20, randomness=noise(1))

    copy = pickle.loads(pickle.dumps(solved))

    assert copy == solved
    assert copy.digest() == solved.digest()
    assert len(pickle.dumps(solved)) < 4000


def test_the_digest_names_everything_that_bears_on_privacy() -> None:
    digests = {
        plan(**change).digest()
        for change in (
            {},
            {"delta": 1e-4},
            {"rounds": 6},
            {"clip_norm": 0.6},
            {"length": 65},
            {"max_participations": 2},
        )
    }

    assert len(digests) == 6


def test_with_noise_and_a_budget_the_run_ends_at_the_last_affordable_round() -> None:
    free = plan(rounds=50)
    tight = plan(rounds=50, epsilon=free.epsilon_after(20) + 1e-3)

    assert tight.rounds == 20
    assert tight.epsilon <= free.epsilon_after(20) + 1e-3


def test_epsilon_after_rises_from_zero_to_the_whole() -> None:
    solved = plan()
    values = [solved.epsilon_after(t) for t in range(6)]

    assert values[0] == 0
    assert values == sorted(values)
    assert values[-1] == solved.epsilon


def test_releases_before_round_one_are_charged() -> None:
    first = plan(rounds=1)
    both = plan(spent=tuple(first.events()))

    assert both.epsilon > plan().epsilon
    assert both.epsilon_server > plan().epsilon_server
    assert both.epsilon_after(0) == pytest.approx(first.epsilon, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epsilon": 0.0}, InputError, "epsilon must be in"),
        ({"epsilon": -2.0}, InputError, "epsilon must be in"),
        ({"noise_multiplier": None}, InputError, "needs epsilon, epsilon_server or noise_multiplier"),
        ({"delta": 0.0}, InputError, "delta must be in"),
        ({"delta": 1.0}, InputError, "delta must be in"),
        ({"delta": 0.02}, PrivacyError, "delta must be below 1 / clients = 0.01, got 0.02"),
        ({"epsilon": 0.01}, PrivacyError, "for one round at noise multiplier 2"),
        ({"weighting": "size"}, PrivacyError, r"no key 'weighting' any more: .* have \[aggregation\] weighting"),
        ({"clipping": "private"}, PrivacyError, "not private; use fixed, public or adaptive"),
        ({"clipping": "median"}, InputError, "clipping has no 'median'"),
        ({"clip_norm": 0.0}, InputError, "clip_norm must be in"),
        ({"clip_norm": math.nan}, InputError, "clip_norm must be in"),
        ({"clip_norm": 1e-306}, InputError, "clip_norm must be in"),
        ({"noise_multiplier": None, "epsilon_server": 1e-9}, InputError, "epsilon_server must be in"),
        ({"noise_seed": 7}, PrivacyError, r"no key 'noise_seed' any more: .* Randomness.system; remove the seed"),
        ({"form": "signs"}, InputError, r"clip_norm of signs is sqrt\(length\) = 8, got 0.5"),
        ({"grid": "papers"}, InputError, "for signs only"),
        ({"cohort_cap": 10}, InputError, "cohort_cap must be at least the expected cohort 20"),
        ({"sampling": "fixed", "cohort_cap": 50}, InputError, "a fixed cohort has one size"),
        ({"sampling": "fixed", "max_participations": 1}, PrivacyError, "under fixed-size sampling"),
        ({"bits": 6}, PrivacyError, "not to wrap, got 6"),
        ({"colluders": 30}, PrivacyError, "honest survivor"),
        ({"sample_rate": 0.0}, InputError, "sample_rate must be in"),
        ({"length": 0}, InputError, "length must be"),
    ],
)
def test_what_would_void_the_guarantee_is_refused_in_one_sentence(
    change: dict[str, Any], error: type[SottovoceError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        plan(**change)

    assert "\n" not in str(caught.value)


def test_unsafe_keys_let_through_and_are_told() -> None:
    solved = plan(delta=0.02, unsafe_delta=True, clipping="private", unsafe_clip_norm=True)

    assert solved.describe()["unsafe"] == ["unsafe_delta", "unsafe_clip_norm"]


def test_messages_of_another_shape_or_kind_are_refused() -> None:
    for message in (np.zeros(63, np.float32), np.zeros(64, np.float64), np.zeros((64, 1), np.float32)):
        with pytest.raises(InputError, match="a message of 64 float32 values"):
            plan().protect(message, cohort=20, randomness=noise(1))
    with pytest.raises(InputError, match="a total of 64 words"):
        plan().recover(np.zeros(65, np.uint32), cohort=20, survivors=20, randomness=noise(1))


def test_a_cohort_above_the_cap_is_refused_by_the_client_too() -> None:
    with pytest.raises(RunError, match="above the cohort cap"):
        plan().protect(np.zeros(64, np.float32), cohort=100, randomness=noise(1))


PAPERS: dict[str, Any] = {
    "clients": 6000,
    "sample_rate": 1 / 60,
    "rounds": 200,
    "delta": 1e-5,
    "clip_norm": 0.61,
    "length": 8317,
}


def test_each_adversary_is_accounted_by_the_noise_that_it_cannot_know() -> None:
    everyone = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244)
    secure = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244, threshold=2 / 3)
    colluding = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244, threshold=2 / 3, colluders=5)

    assert everyone.epsilon_server == pytest.approx(16.28, abs=0.01)
    assert secure.epsilon_server == pytest.approx(21.19, abs=0.05)
    assert colluding.epsilon_server > secure.epsilon_server + 1
    assert secure.epsilon_if_a_third_colludes > colluding.epsilon_server or not math.isfinite(
        secure.epsilon_if_a_third_colludes
    )
    # The threshold changes nothing else: the outsiders' noise, and so the model, is the same.
    assert (secure.epsilon, secure.noise_multiplier) == (everyone.epsilon, everyone.noise_multiplier)
    # At a given noise colluders cost outsiders too: they may leave out their shares.
    assert (colluding.epsilon > everyone.epsilon, colluding.noise_multiplier) == (True, everyone.noise_multiplier)
    for other in (secure, colluding):
        assert other.grid is not None and everyone.grid is not None
        assert (other.grid.variance, other.bits) == (everyone.grid.variance, everyone.bits)


def test_a_member_of_the_cohort_has_a_figure_of_its_own_where_the_servers_does_not_cover_it() -> None:
    everyone = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244)
    secure = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244, threshold=2 / 3)
    few = plan(cohort_floor=2, delta=9e-3, threshold=2 / 3)

    assert everyone.epsilon_member > everyone.epsilon_server, "it knows its own share, the server knows none"
    assert secure.epsilon_member < secure.epsilon_server
    assert few.epsilon_member > few.epsilon_server, "of two clients one knows half of the noise"


def test_with_a_target_against_the_server_the_noise_is_solved_from_its_part() -> None:
    keys = {**PAPERS, "sample_rate": 1.0, "rounds": 20, "length": 400, "threshold": 2 / 3}
    solved = PrivacyPlan.solve(**keys, epsilon_server=1.0)
    both = PrivacyPlan.solve(**keys, epsilon_server=1.0, epsilon=0.5)

    assert 0.99 < solved.epsilon_server <= 1.0
    assert solved.noise_multiplier == pytest.approx(20.4, rel=5e-3)
    assert solved.epsilon < 1.0
    assert 0.499 < both.epsilon <= 0.5
    assert both.epsilon_server < 1.0


def test_a_server_epsilon_beyond_the_tables_precision_is_no_number() -> None:
    solved = PrivacyPlan.solve(**{**PAPERS, "length": 1_663_370}, epsilon=8.0, threshold=2 / 3)

    assert solved.epsilon <= 8.0
    assert solved.epsilon_server == math.inf
    assert solved.describe()["epsilon_server"] is None


def test_adaptive_clipping_cannot_leave_the_range_in_which_the_grid_is_exact() -> None:
    solved = plan(clipping="adaptive", clip_norm=1.1e-20, count_stddev=5.0)
    release = solved.recover(
        np.zeros(65, np.uint32), cohort=20, survivors=20, randomness=noise(1), clip_norm=1.0000001e-20
    )

    assert release.clip_norm >= 1e-20
    with pytest.raises(InputError, match="clip_norm must be in"):
        solved.protect(np.ones(64, np.float32), cohort=20, randomness=noise(1), clip_norm=1e-306)
