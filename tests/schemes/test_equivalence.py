"""Schemes that keep everything are FL-STD, and every scheme costs what it sends."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.checks.schemes import prepare
from sottovoce.core import wire
from sottovoce.schemes import Scheme, make

PAPER = 1_663_370
SUBSETS = ["fl-top", "fl-top-bis", "fl-rnd", "fl-basic", "fl-bas-2", "fl-bas-3", "fl-bas-4"]


def train(scheme: Scheme, rounds: int = 4) -> NDArray[np.float32]:
    trial = prepare(scheme, dim=501, seed=9)
    state = trial.server.init(trial.start)
    for round_ in range(1, rounds + 1):
        state = trial.round(state, round_)
    return state["params"]


@pytest.mark.parametrize("name", SUBSETS)
def test_a_subset_of_everything_is_fl_std_bit_for_bit(name: str) -> None:
    assert np.array_equal(train(make(name, ratio=1.0)), train(make("fl-std")))


def test_all_frequencies_are_fl_std_within_rounding() -> None:
    assert np.abs(train(make("fl-freq", ratio=1.0)) - train(make("fl-std"))).max() < 1e-5


def test_a_subset_of_less_is_not_fl_std() -> None:
    assert not np.array_equal(train(make("fl-rnd", ratio=0.5)), train(make("fl-std")))


def payloads(scheme: Scheme) -> tuple[int, int]:
    zeros = np.zeros(scheme.dim, np.float32)
    rng = np.random.default_rng(0)
    message = scheme.encode(zeros, scheme.round_seed(1), rng)
    if scheme.form == "signs":
        up = len(wire.frame(message, length=scheme.length, bits=1))
    else:
        up = len(wire.pack(message))
    state = scheme.decode(np.zeros(scheme.length, np.float32), scheme.init(zeros), scheme.round_seed(1), rng)
    return up, len(scheme.downlink(state, scheme.round_seed(2)))


@pytest.mark.parametrize(
    ("name", "keys", "up", "down"),
    [
        ("fl-std", {}, 6_653_480, 6_653_480),
        ("fl-sign", {}, 207_922, 6_653_480),
        ("sign-sgd", {}, 207_922, 207_922),
        ("fl-top", {"ratio": 0.005}, 33_268, 33_268),
        ("fl-bas-3", {"ratio": 0.005}, 33_268, 33_268),
        ("fl-rnd", {"ratio": 0.05}, 332_672, 6_653_480),
        ("fl-basic", {"ratio": 0.05}, 332_672, 6_653_480),
    ],
)
def test_bytes_of_the_papers_network_are_those_asked_but_for_a_header(
    name: str, keys: dict[str, float], up: int, down: int
) -> None:
    sent_up, sent_down = payloads(make(name, **keys).bind(PAPER, seed=1))

    assert 0 <= sent_up - up <= 64
    assert 0 <= sent_down - down <= 64


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [
        ("fl-std", 1, 1),
        ("fl-sign", 1 / 32, 1),
        ("sign-sgd", 1 / 32, 1 / 32),
        ("fl-cs", 0.05, 1),
        ("fl-top", 0.05, 0.05),
        ("fl-rnd", 0.05, 1),
        ("fl-freq", 0.05, 1),
        ("fl-basic", 0.05, 1),
        ("fl-bas-2", 0.05, 1),
        ("fl-bas-3", 0.05, 0.05),
        ("fl-bas-4", 0.05, 0.05),
        ("fl-top-bis", 0.05, 0.05),
    ],
)
def test_the_papers_cost_is_that_of_their_formula(name: str, up: float, down: float) -> None:
    assert make(name).bind(1000).paper_values == pytest.approx((1000 * up, 1000 * down))


def test_sign_sgd_costs_what_table_4_2_prints() -> None:
    up, _ = make("sign-sgd").bind(PAPER).paper_values

    assert up * 32 * 200 / 1e6 == pytest.approx(332.67, abs=0.01)
