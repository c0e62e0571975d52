from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.coding import Clear, Coding, FloatGrid, Opened, Private, SignGrid, Terms
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.packed_signs import expand, pack_signs

TERMS = Terms(5, 0.5)
LENGTH = 40


def messages(clients: int, length: int = LENGTH, largest: float = 1.0) -> NDArray[np.float32]:
    return np.random.default_rng(clients).uniform(-largest, largest, (clients, length)).astype(np.float32)


def ballots(clients: int, length: int = LENGTH) -> list[NDArray[np.uint8]]:
    return [pack_signs(row, np.random.default_rng(0)) for row in messages(clients, length)]


def summed(coding: Coding, sent: Any, terms: Terms = TERMS) -> Opened:
    """Send every message over the wire and open the sum."""
    fold = coding.fold
    accumulator = fold.empty()
    for client, message in enumerate(sent):
        fold.add(accumulator, coding.pack(coding.words(message, terms, 1, client)))
    return coding.open(fold.total(accumulator), terms, len(sent), 1)


def plan(**keys: Any) -> PrivacyPlan:
    base = {"clients": 20, "sample_rate": 0.25, "rounds": 3, "delta": 1e-2, "noise_multiplier": 1.0, "clip_norm": 0.5}
    return PrivacyPlan.solve(**{**base, "length": LENGTH, "accountant": "rdp", **keys})


@given(cohort=st.integers(0, 2**24), clip_norm=st.floats(0, 2.0**99, width=32), down=st.binary(max_size=50))
def test_terms_come_off_a_downlink_as_they_were_put_on(cohort: int, clip_norm: float, down: bytes) -> None:
    terms = Terms(cohort, clip_norm)

    assert Terms.split(down + terms.pack()) == (down, terms)


@pytest.mark.parametrize("clients", [1, 3, 30])
def test_clear_floats_add_up_to_the_last_bit_that_floats_have(clients: int) -> None:
    sent = messages(clients)

    opened = summed(Clear("floats", LENGTH, 30), sent)

    assert np.allclose(opened.values, sent.sum(axis=0, dtype=np.float64), rtol=0, atol=clients * 2.0**-41)
    assert opened.clip_norm == TERMS.clip_norm


@given(clients=st.integers(1, 20), length=st.integers(1, 70))
def test_ballots_add_up_exactly_in_the_clear_and_on_the_grid(clients: int, length: int) -> None:
    sent = ballots(clients, length)
    truth = np.sum([expand(ballot, length) for ballot in sent], axis=0, dtype=np.int64)

    for coding in (Clear("signs", length, 20), SignGrid(length, 20)):
        assert np.array_equal(summed(coding, sent).values, truth)


@pytest.mark.parametrize("senders", [1, 2, 3, 100, 127, 128])
def test_ballot_words_hold_the_largest_count_and_no_more(senders: int) -> None:
    bits = SignGrid(LENGTH, senders).bits

    assert 2 ** (bits - 1) <= senders < 2**bits


def test_every_vote_the_same_way_does_not_wrap() -> None:
    ones = pack_signs(np.ones(LENGTH, np.float32), np.random.default_rng(0))

    assert (summed(SignGrid(LENGTH, 31), [ones] * 31).values == 31).all()
    assert (summed(SignGrid(LENGTH, 32), [ones] * 32).values == 32).all()


@given(clients=st.integers(1, 30), largest=st.floats(1e-3, 1e3))
def test_a_grid_sum_is_within_half_a_step_a_client(clients: int, largest: float) -> None:
    sent = messages(clients, largest=largest * 0.999)
    grid = FloatGrid(LENGTH, 30, largest)

    error = np.abs(summed(grid, sent).values - sent.sum(axis=0, dtype=np.float64))

    assert error.max() <= clients * grid.step / 2 * (1 + 1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_full_cohort_at_the_largest_value_does_not_wrap(sign: int) -> None:
    grid = FloatGrid(LENGTH, 1000, 4.0)

    total = summed(grid, [np.full(LENGTH, sign * 4.0, np.float32)] * 1000).values

    assert np.allclose(total, sign * 4000.0, atol=1000 * grid.step / 2)


@pytest.mark.parametrize("bad", [4.001, -4.001, np.inf, -np.inf, np.nan])
def test_a_value_outside_the_grid_is_refused_with_a_way_out(bad: float) -> None:
    message = np.zeros(LENGTH, np.float32)
    message[3] = bad

    with pytest.raises(RunError, match=r"outside the secure sum's range of 4; raise \[aggregation\] largest"):
        FloatGrid(LENGTH, 10, 4.0).words(message, TERMS, 1, 0)


def test_grid_words_are_what_travels() -> None:
    message = messages(1)[0]
    for coding in (FloatGrid(LENGTH, 10, 4.0), Private(plan(), Seeds(1))):
        sent = wire.unpack(coding.pack(coding.words(message, TERMS, 1, 0)), length=LENGTH, bits=coding.bits)

        assert np.array_equal(sent, coding.words(message, TERMS, 1, 0))
        assert int(sent.max()) < 2**coding.bits


def test_a_private_sum_is_the_sum_of_clipped_messages_and_noise() -> None:
    """Stray at most 7 standard deviations in any of 40 coordinates: a false alarm of 1e-10."""
    sent = messages(5, largest=0.01)
    private = Private(plan(), Seeds(1))

    error = summed(private, sent).values - sent.sum(axis=0)

    assert 0 < np.abs(error).max() < 7 * private.plan.stddev()


def test_private_words_depend_on_round_and_client_and_repeat_for_both() -> None:
    private = Private(plan(), Seeds(1))
    message = messages(1)[0]

    first = private.words(message, TERMS, 1, 0)

    assert np.array_equal(first, private.words(message, TERMS, 1, 0))
    assert not np.array_equal(first, private.words(message, TERMS, 2, 0))
    assert not np.array_equal(first, private.words(message, TERMS, 1, 1))
    assert not np.array_equal(first, Private(private.plan, Seeds(2)).words(message, TERMS, 1, 0))


def test_private_ballots_travel_in_few_bits_and_come_back_as_a_sum_of_signs() -> None:
    """Stray at most 7 standard deviations, as above."""
    private = Private(plan(form="signs", clip_norm=0.0), Seeds(1))
    sent = ballots(5)
    truth = np.sum([expand(ballot, LENGTH) for ballot in sent], axis=0)

    assert private.bits <= 12
    assert np.abs(summed(private, sent).values - truth).max() < 7 * private.plan.stddev()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_private_message_that_is_not_finite_is_that_clients_failure(bad: float) -> None:
    message = np.zeros(LENGTH, np.float32)
    message[0] = bad

    with pytest.raises(RunError, match="has values that are not finite"):
        Private(plan(), Seeds(1)).words(message, TERMS, 1, 0)


def test_too_few_messages_for_the_noise_open_nothing() -> None:
    with pytest.raises(RunError, match="round 1: 4 messages, but the noise was shared among at least 5"):
        summed(Private(plan(), Seeds(1)), messages(4))


def test_adaptive_clipping_sends_one_word_more_and_moves_the_clip_norm() -> None:
    private = Private(plan(clipping="adaptive", clip_norm=1.0, count_stddev=0.6), Seeds(1))
    tiny = [np.full(LENGTH, 1e-6, np.float32)] * 5

    opened = summed(private, tiny, Terms(5, 0.5))

    assert opened.values.shape == (LENGTH,)
    assert private.fold.empty().shape == (LENGTH + 1,)
    assert opened.clip_norm < 0.5, "every norm was below it, and the median is wanted"


def test_the_continuous_gaussian_travels_as_floats_and_cannot_be_masked() -> None:
    private = Private(plan(mechanism="gaussian"), Seeds(1))
    sent = messages(5, largest=0.01)

    assert np.abs(summed(private, sent).values - sent.sum(axis=0)).max() < 7 * private.plan.stddev()
    with pytest.raises(InputError, match="does not travel as integers"):
        _ = private.bits
