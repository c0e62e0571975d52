from __future__ import annotations

import numpy as np
import pytest

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError
from sottovoce.schemes import State, make
from sottovoce.schemes.packed_signs import expand

START = np.linspace(-1, 1, 50, dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ["fl-sign", "sign-sgd"])
def test_the_server_steps_by_gamma_along_the_majority(name: str) -> None:
    scheme = make(name, server_lr=0.25).bind(50, start=START)
    mean = rng().standard_normal(50).astype(np.float32)

    state = scheme.decode(mean, scheme.init(START), 0, rng())

    assert np.array_equal(state["params"], START + np.float32(0.25) * np.sign(mean))


@pytest.mark.parametrize("name", ["fl-sign", "sign-sgd"])
def test_a_tie_moves_a_coordinate_by_a_random_sign_and_never_by_nothing(name: str) -> None:
    scheme = make(name, server_lr=0.25).bind(50, start=START)

    one, two = (scheme.decode(np.zeros(50, np.float32), scheme.init(START), 0, rng(seed)) for seed in (1, 2))

    assert set((one["params"] - START).tolist()) <= set((START + np.float32(0.25) - START).tolist()) | set(
        (START - np.float32(0.25) - START).tolist()
    )
    assert not np.array_equal(one["params"], two["params"])


def test_a_diverged_client_fails_instead_of_voting() -> None:
    with pytest.raises(RunError, match="no sign"):
        make("fl-sign").bind(2).encode(np.array([1, np.nan], np.float32), 0, rng())


def run(rounds: int) -> tuple[State, list[bytes]]:
    scheme = make("sign-sgd").bind(50, start=START)
    state, heard = scheme.init(START), []
    for round_ in range(rounds):
        heard.append(scheme.downlink(state, 0))
        state = scheme.decode(rng(round_).standard_normal(50).astype(np.float32), state, 0, rng())
    return state, heard


def test_sign_sgd_sends_bits_down() -> None:
    _, heard = run(3)

    header = wire.frame_size(1, 32) + wire.HEADER
    assert [len(payload) - header for payload in heard] == [0, 7, 7]
    assert header <= 64


def test_a_sign_sgd_replica_follows_the_server_bit_for_bit() -> None:
    scheme = make("sign-sgd").bind(50, start=START)
    state, heard = run(20)
    memory: State = {}
    for payload in [*heard, scheme.downlink(state, 0)]:
        task = scheme.receive(payload, memory)
        memory = task.memory

    assert np.array_equal(task.params, state["params"])


def test_a_sign_sgd_client_that_missed_a_vote_refuses_to_train() -> None:
    scheme = make("sign-sgd").bind(50, start=START)
    _, heard = run(4)
    memory = scheme.receive(heard[1], scheme.receive(heard[0], {}).memory).memory

    with pytest.raises(RunError, match="heard 1 votes and is sent vote 3"):
        scheme.receive(heard[3], memory)
    with pytest.raises(RunError, match="heard 0 votes and is sent vote 1"):
        scheme.receive(heard[1], {})


def test_hearing_the_same_vote_twice_moves_a_replica_once() -> None:
    scheme = make("sign-sgd").bind(50, start=START)
    _, heard = run(2)
    once = scheme.receive(heard[1], scheme.receive(heard[0], {}).memory)

    assert np.array_equal(scheme.receive(heard[1], once.memory).params, once.params)


def test_sign_sgd_without_a_start_says_what_is_missing() -> None:
    scheme = make("sign-sgd").bind(50)

    with pytest.raises(InputError, match="bind it with `start`"):
        scheme.receive(scheme.downlink(scheme.init(START), 0), {})


def test_the_ballot_of_an_update_is_its_sign() -> None:
    update = rng().standard_normal(50).astype(np.float32)

    ballot = make("fl-sign").bind(50).encode(update, 0, rng())

    assert np.array_equal(expand(ballot, 50), np.sign(update))
