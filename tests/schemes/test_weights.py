"""Weights of a downlink, with 32 bits or with 16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sottovoce.checks.schemes import SchemeTrial, prepare
from sottovoce.core import wire
from sottovoce.core.errors import RunError
from sottovoce.core.vectors import Vector
from sottovoce.schemes import known, make
from sottovoce.schemes.weights import LARGEST, pack_weights, unpack_weights, weights_size

SENDING = [name for name in known() if make(name).sends_weights]


def weights(seed: int = 0) -> Vector:
    return np.random.default_rng(seed).normal(0, 0.1, 301).astype(np.float32)


def test_with_32_bits_weights_travel_as_they_are() -> None:
    assert pack_weights(weights(), 32) == wire.pack(weights())
    assert np.array_equal(unpack_weights(pack_weights(weights(), 32), 301, 32), weights())


def test_with_16_bits_weights_take_two_bytes_and_are_within_one_part_in_2048() -> None:
    payload = pack_weights(weights(), 16)
    received = unpack_weights(payload, 301, 16)

    assert len(payload) == weights_size(301, 16) == wire.HEADER + 602
    assert received.dtype == np.float32
    assert np.all(np.abs(received - weights()) <= np.abs(weights()) / 2048 + 2.0**-25)
    assert not np.array_equal(received, weights())


def test_a_weight_beyond_16_bits_is_refused_before_it_becomes_infinite() -> None:
    large = weights()
    large[3] = 2 * LARGEST
    with pytest.raises(RunError, match="set \\[scheme\\] downlink_bits = 32"):
        pack_weights(large, 16)


@pytest.mark.parametrize("name", SENDING)
def test_clients_of_every_scheme_start_at_the_rounded_model_and_the_server_keeps_its_own(name: str) -> None:
    full = prepare(make(name))
    half = prepare(replace(make(name), downlink_bits=16))
    sizes, models = [], []
    for trial in (full, half):
        state = trial.round(trial.server.init(trial.start), 1)
        seed = trial.server.round_seed(2)
        payload = trial.server.downlink(state, seed)
        assert _started(trial, payload) == pytest.approx(state["params"], rel=1 / 2048, abs=2.0**-25)
        sizes.append(len(payload))
        models.append(state["params"])

    assert np.array_equal(*models), "the same updates give the same model, which is not rounded"
    assert sizes[1] < 0.6 * sizes[0] + wire.HEADER


def _started(trial: SchemeTrial, payload: bytes) -> Vector:
    return trial.client.receive(payload, {}).params
