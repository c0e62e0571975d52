"""The sum is exact, whoever leaves, and there is none below the threshold."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg import PHASES, RoundServer

Factory = Any


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clients=st.integers(2, 7), bits=st.integers(1, 32), length=st.integers(1, 75))
def test_the_total_is_the_exact_sum_modulo_two_to_the_b(cohort: Factory, clients: int, bits: int, length: int) -> None:
    round_ = cohort(clients, length, bits)

    assert np.array_equal(round_.run(), round_.expected())
    assert round_.server.survivors == round_.session.clients


def test_every_bit_width_gives_the_exact_sum(cohort: Factory) -> None:
    for bits in range(1, 33):
        round_ = cohort(3, 37, bits)
        assert np.array_equal(round_.run(), round_.expected())


def test_a_vector_longer_than_one_chunk_of_keystream_is_summed_exactly(cohort: Factory) -> None:
    for bits in (7, 13, 20):
        round_ = cohort(3, 150_001, bits)
        assert np.array_equal(round_.run(), round_.expected())


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_may_leave_at_every_phase(cohort: Factory, phase: str) -> None:
    round_ = cohort(7)
    gone = round_.session.clients[2]

    total = round_.run({phase: [gone]})

    left_before_its_vector = phase in ("advertise", "share", "mask")
    expected = [c for c in round_.session.clients if c != gone or not left_before_its_vector]
    assert np.array_equal(total, round_.expected(expected))
    assert round_.server.survivors == tuple(expected)
    assert round_.server.dropped == ((gone,) if phase == "mask" else ())


def test_different_clients_may_leave_at_different_phases(cohort: Factory) -> None:
    round_ = cohort(20)
    ids = round_.session.clients

    total = round_.run(
        {"advertise": ids[:1], "share": ids[3:4], "mask": ids[6:8], "consistency": ids[9:10], "unmask": ids[11:12]}
    )

    assert np.array_equal(total, round_.expected([c for c in ids if c not in (ids[0], ids[3], ids[6], ids[7])]))


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_nothing_is_released(cohort: Factory, phase: str) -> None:
    round_ = cohort(7)
    gone = round_.session.clients[: 7 - round_.session.threshold + 1]

    with pytest.raises(SecAggError, match=rf"but the threshold is {round_.session.threshold}; nothing was released"):
        round_.run({phase: gone})

    assert round_.server.phase is None
    with pytest.raises(SecAggError, match="there is no total"):
        round_.server.total()
    with pytest.raises(SecAggError, match="is not the open phase"):
        round_.server.collect(phase, {})
    assert round_.server._sum.size == 0
    assert not round_.server._told


def test_exactly_the_threshold_is_enough(cohort: Factory) -> None:
    round_ = cohort(7)
    gone = round_.session.clients[: 7 - round_.session.threshold]

    assert np.array_equal(round_.run({"mask": gone}), round_.expected(round_.session.clients[len(gone) :]))


def test_a_sparse_graph_gives_the_same_sum_with_fewer_bytes(cohort: Factory) -> None:
    sparse = cohort(60, threshold=55, neighbours=20, graph_colluders=0)
    complete = cohort(60, threshold=55)
    gone = {"mask": sparse.session.clients[10:12], "unmask": sparse.session.clients[30:31]}

    assert np.array_equal(sparse.run(gone), complete.run(gone))
    assert sparse.session.degree.neighbours == 20
    assert len(sparse.received["share"][5]) < len(complete.received["share"][5])


def test_the_secrets_change_the_bytes_and_not_the_total(cohort: Factory) -> None:
    one, other = cohort(4), cohort(4, round=8)

    assert np.array_equal(one.run(), other.run())
    assert one.received["mask"] != other.received["mask"]


def test_a_simulated_round_repeats_itself_byte_for_byte(cohort: Factory) -> None:
    one, other = cohort(4), cohort(4)
    one.run(), other.run()

    assert one.received == other.received


def test_a_client_can_be_stored_between_two_phases(cohort: Factory) -> None:
    round_ = cohort(4)
    for phase in PHASES:
        round_.clients = pickle.loads(pickle.dumps(round_.clients))
        round_.step(phase)

    assert np.array_equal(round_.server.total(), round_.expected())


def test_the_server_takes_messages_one_by_one_and_keeps_no_vector(cohort: Factory) -> None:
    round_ = cohort(4, length=10_000)
    round_.until("mask")
    replies = {client: round_.answer("mask", client, request) for client, request in round_.requests.items()}

    for client, reply in replies.items():
        round_.server.accept("mask", client, reply)

    assert len(pickle.dumps(vars(round_.server))) < 40_000
    round_.requests = round_.server.close("mask")
    round_.step("consistency"), round_.step("unmask")
    assert np.array_equal(round_.server.total(), round_.expected())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (np.zeros(15, np.uint32), "words must be 16 of type uint32"),
        (np.zeros(16, np.int64), "words must be 16 of type uint32"),
        (np.full(16, 1 << 13, np.uint32), r"words must be below 2\^13"),
    ],
)
def test_words_that_do_not_fit_are_refused_and_may_be_corrected(cohort: Factory, words: Any, problem: str) -> None:
    round_ = cohort(3)
    round_.until("mask")
    client = round_.session.clients[0]

    with pytest.raises(InputError, match=problem):
        round_.clients[client].mask(round_.requests[client], words)

    for phase in ("mask", "consistency", "unmask"):
        round_.step(phase)
    assert np.array_equal(round_.server.total(), round_.expected())


def test_there_is_no_total_before_the_end(cohort: Factory) -> None:
    with pytest.raises(SecAggError, match="there is no total"):
        RoundServer(cohort(3).session).total()
