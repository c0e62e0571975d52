from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.coding import Clear
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.optimise import DEFAULTS, AdaptiveOptimiser, ServerStep
from sottovoce.federation.round import Server, server_round
from sottovoce.schemes import make
from sottovoce.schemes.base import State
from tests.federation.driven import drive, sending

RULES = ("adam", "yogi", "adagrad")
each_rule = pytest.mark.parametrize("rule", RULES)


def deltas(rounds: int, dim: int = 5) -> NDArray[np.float32]:
    rng = np.random.default_rng(rounds)
    return (rng.standard_normal((rounds, dim)) * 10.0 ** rng.integers(-5, 1, (rounds, dim))).astype(np.float32)


def naive(
    rule: str, steps: NDArray[Any], start: NDArray[Any], lr: float, beta1: float, beta2: float, tau: float
) -> NDArray[np.float64]:
    """Walk Algorithm 2 of the paper in float64, one parameter and one round after the other."""
    params = start.astype(np.float64)
    for i in range(params.size):
        m, v = 0.0, tau**2
        for delta in steps[:, i].astype(np.float64):
            m = beta1 * m + (1 - beta1) * delta
            if rule == "adagrad":
                v = v + delta**2
            elif rule == "yogi":
                v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
            else:
                v = beta2 * v + (1 - beta2) * delta**2
            params[i] += lr * m / (math.sqrt(v) + tau)
    return params


def walked(step: ServerStep, steps: NDArray[np.float32], start: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return where `adapt` ends when the scheme takes these steps."""
    params, state = start, State()
    for round_, delta in enumerate(steps, start=1):
        params, kept = step.adapt(params, params + delta, state, round_)
        state |= kept
    return params


@given(
    rule=st.sampled_from(RULES),
    rounds=st.integers(1, 12),
    lr=st.floats(1e-3, 1),
    beta1=st.floats(0, 0.99),
    beta2=st.floats(0, 0.999),
    tau=st.sampled_from([1e-4, 1e-3, 1e-1]),
)
def test_each_rule_follows_the_papers_algorithm(
    rule: Any, rounds: int, lr: float, beta1: float, beta2: float, tau: float
) -> None:
    steps = deltas(rounds)
    optimiser = AdaptiveOptimiser(rule, beta1, beta2, tau)
    state: State = {}
    params = np.zeros(5)
    for delta in steps:
        direction, state = optimiser.direction(delta, state)
        assert direction.dtype == np.float32
        params += lr * direction.astype(np.float64)

    # Yogi steps by the sign of v - Delta^2, so float32 and float64 may only differ by rounding: 1e-4 of a step.
    wanted = naive(rule, steps, np.zeros(5), lr, beta1, beta2, tau)
    assert np.allclose(params, wanted, rtol=1e-4, atol=1e-4 * lr)


@each_rule
def test_the_model_ends_where_the_papers_algorithm_ends_with_its_default_values(rule: Any) -> None:
    start, steps = np.random.default_rng(1).standard_normal(5).astype(np.float32), deltas(20)

    params = walked(ServerStep(optimizer=rule, lr=0.05, rounds=20), steps, start)

    # `after - before` loses what a float32 weight of size 1 cannot hold, 6e-8; against tau = 1e-3 that is 6e-5.
    wanted = naive(rule, steps, start, 0.05, **{"beta2": 0.0, **DEFAULTS[rule]})
    assert np.allclose(params, wanted, rtol=0, atol=0.05 * 20 * 1e-4)
    assert not np.allclose(params, start + steps.sum(axis=0), atol=1e-2)


def test_adagrad_is_the_adagrad_of_torch_that_starts_at_tau_squared() -> None:
    steps = deltas(15)
    weights = torch.zeros(5, requires_grad=True)
    twin = torch.optim.Adagrad([weights], lr=0.1, initial_accumulator_value=1e-6, eps=1e-3)
    optimiser, state, params = AdaptiveOptimiser("adagrad"), State(), np.zeros(5, np.float32)
    for delta in steps:
        weights.grad = torch.from_numpy(-delta)
        twin.step()
        direction, state = optimiser.direction(delta, state)
        params += np.float32(0.1) * direction

    assert np.allclose(params, weights.detach().numpy(), rtol=1e-5, atol=1e-6)


@each_rule
def test_a_schedule_scales_the_adaptive_step_and_not_what_it_adapts_to(rule: Any) -> None:
    start, (delta,) = np.zeros(5, np.float32), deltas(1)
    step = ServerStep(optimizer=rule, lr=0.1, schedule="linear", rounds=10)

    early, kept = step.adapt(start, start + delta, {}, 1)
    late, same = step.adapt(start, start + delta, {}, 6)

    assert np.allclose(late, early / 2, rtol=1e-6)
    assert all(np.array_equal(kept[name], same[name]) for name in kept)
    mean, nothing = step.step(delta, {}, 6)
    assert mean is delta
    assert nothing == {}


def test_sgd_leaves_the_model_where_the_scheme_put_it() -> None:
    before, after = deltas(2)

    params, kept = ServerStep(momentum=0.5, lr=2.0).adapt(before, after, {}, 1)

    assert params is after
    assert kept == {}


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"beta1": 1.0}, r"beta1 must be in \[0, 1\), got 1"),
        ({"beta2": -0.1}, r"beta2 must be in \[0, 1\), got -0.1"),
        ({"tau": 0.0}, "tau must be finite and above 0, got 0"),
        ({"tau": math.nan}, "tau must be finite and above 0, got nan"),
    ],
)
def test_values_out_of_range_are_refused(keys: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        AdaptiveOptimiser("adam", **keys)


@each_rule
def test_a_step_whose_square_overflows_ends_the_run_instead_of_freezing_the_model(rule: Any) -> None:
    start = np.zeros(3, np.float32)

    with pytest.raises(RunError, match=r"round 4: the step is too large for optimizer .*; lower client_lr"):
        ServerStep(optimizer=rule).adapt(start, start + np.float32(1e30), {}, 4)


def served(name: str, dim: int, **keys: Any) -> tuple[Server, Clear]:
    cohort = Cohort(4, Fraction(1))
    scheme = make(name, **keys).bind(dim, seed=3, start=np.zeros(dim, np.float32), importance=np.ones(dim, np.float32))
    coding = Clear("floats", scheme.length, cohort.most)
    return Server(scheme, cohort, Direct(coding, lambda asked: asked), Seeds(1).server), coding


@each_rule
@pytest.mark.parametrize("name", ["fl-std", "fl-top", "fl-bas-3", "fl-rnd", "fl-basic", "fl-freq", "fl-cs"])
def test_whatever_a_scheme_sends_the_moments_belong_to_the_parameters(name: str, rule: Any) -> None:
    """The twin plays the round with "sgd" from the same state, and adapts the step it sees."""
    dim = 40
    server, coding = served(name, dim, **({} if name == "fl-std" else {"ratio": 0.25}))
    adaptive = replace(server, step=ServerStep(optimizer=rule, lr=0.1, rounds=6))
    rng = np.random.default_rng(5)
    state, steps, params = server.init(np.zeros(dim, np.float32)), [], np.zeros(dim)
    for round_ in range(1, 7):
        message = rng.standard_normal(server.scheme.length).astype(np.float32)
        answer = sending(coding, lambda _, message=message: message)  # type: ignore[misc]
        bare = drive(server_round(server, state, round_), answer).state
        steps.append(bare["params"] - state["params"])
        state = drive(server_round(adaptive, state, round_), answer).state

        params = naive(rule, np.array(steps), np.zeros(dim), 0.1, **{"beta2": 0.0, **DEFAULTS[rule]})
        assert np.allclose(state["params"], params, rtol=1e-4, atol=1e-5)

    assert state["second_moment"].shape == (dim,)
    if name in ("fl-top", "fl-bas-3"):
        assert np.count_nonzero(state["params"]) == server.scheme.length, "the others stay at w_0, as clients assume"
