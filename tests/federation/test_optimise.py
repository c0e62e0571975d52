from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.federation.optimise import ServerStep, model_of
from sottovoce.schemes.base import State


def means(rounds: int) -> np.ndarray:
    return np.random.default_rng(rounds).standard_normal((rounds, 5)).astype(np.float32)


def test_by_default_the_mean_is_decoded_as_it_is() -> None:
    mean = means(1)[0]

    step, kept = ServerStep(rounds=10).step(mean, {}, 3)

    assert step is mean
    assert kept == {}
    assert ServerStep(rounds=10).follow(mean, {}, 3) == {}


@given(momentum=st.floats(0.01, 0.99), rounds=st.integers(1, 12))
def test_momentum_is_the_geometric_sum_of_past_means(momentum: float, rounds: int) -> None:
    optimiser = ServerStep(momentum=momentum, lr=0.5, rounds=rounds)
    state: State = {}
    for round_, mean in enumerate(means(rounds), start=1):
        step, kept = optimiser.step(mean, state, round_)
        state |= kept

    weights = momentum ** np.arange(rounds)[::-1]
    assert np.allclose(step, 0.5 * weights @ means(rounds).astype(np.float64), rtol=1e-4, atol=1e-5)
    assert step.dtype == np.float32


@given(rounds=st.integers(1, 300), lr=st.floats(0.01, 10))
def test_schedules_start_at_lr_fall_steadily_and_end_near_zero(rounds: int, lr: float) -> None:
    for schedule in ("linear", "cosine"):
        steps = [ServerStep(lr=lr, schedule=schedule, rounds=rounds).lr_at(round_) for round_ in range(1, rounds + 1)]

        assert steps[0] == lr
        assert all(later < earlier for earlier, later in pairwise(steps))
        assert 0 < steps[-1] <= lr / rounds * (1 + 1e-9)
    assert {ServerStep(lr=lr, rounds=rounds).lr_at(round_) for round_ in (1, rounds)} == {lr}


def test_a_linear_schedule_is_halfway_down_halfway_through() -> None:
    assert ServerStep(lr=2.0, schedule="linear", rounds=10).lr_at(6) == 1.0
    assert ServerStep(lr=2.0, schedule="cosine", rounds=10).lr_at(6) == pytest.approx(1.0)


def test_a_young_running_mean_is_the_plain_mean_and_an_old_one_forgets() -> None:
    optimiser = ServerStep(average=0.9, rounds=100)
    models = means(40)
    state: State = {}
    averages = []
    for round_, params in enumerate(models, start=1):
        state |= optimiser.follow(params, state, round_)
        averages.append(state["average"])

    for young in (1, 5, 10):
        assert np.allclose(averages[young - 1], models[:young].mean(axis=0), atol=1e-6)
    assert np.allclose(averages[39], 0.9 * averages[38] + 0.1 * models[39], atol=1e-6)


def test_the_model_that_counts_is_the_running_mean_if_there_is_one() -> None:
    one, two = means(2)

    assert model_of({"params": one}) is one
    assert model_of({"params": one, "average": two}) is two
