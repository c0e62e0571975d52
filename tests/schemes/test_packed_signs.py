from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError, WireError
from sottovoce.schemes.packed_signs import Tally, expand, pack_signs, packed_size, step

floats = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(width=32, allow_nan=False))


def slow_signs(values: NDArray[np.float32]) -> NDArray[np.int8]:
    return np.sign(values).astype(np.int8)


@given(values=floats, seed=st.integers(0, 99))
def test_packed_signs_are_the_signs_wherever_there_is_one(values: NDArray[np.float32], seed: int) -> None:
    signs = expand(pack_signs(values, np.random.default_rng(seed)), values.size)

    assert set(signs.tolist()) <= {1, -1}
    assert np.array_equal(signs[values != 0], slow_signs(values)[values != 0])


@given(values=floats, seed=st.integers(0, 99))
def test_the_same_values_and_stream_give_the_same_ballot(values: NDArray[np.float32], seed: int) -> None:
    one, two = (pack_signs(values, np.random.default_rng(seed)) for _ in range(2))

    assert np.array_equal(one, two)


@given(values=floats)
def test_a_ballot_travels_in_one_bit_a_coordinate_and_reads_back(values: NDArray[np.float32]) -> None:
    ballot = pack_signs(values, np.random.default_rng(0))

    payload = wire.frame(ballot, length=values.size, bits=1)

    assert len(payload) - wire.HEADER == packed_size(values.size)
    assert np.array_equal(np.frombuffer(wire.open_frame(payload, length=values.size, bits=1), np.uint8), ballot)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_of_either_sign_get_each_sign_about_half_of_the_time(zero: float) -> None:
    size = 100_000
    ups = int((expand(pack_signs(np.full(size, zero, np.float32), np.random.default_rng(3)), size) == 1).sum())

    # False alarm below 1e-8: six standard deviations of Binomial(100000, 1/2). The seed is fixed, so it passes always.
    assert abs(ups - size / 2) < 6 * np.sqrt(size / 4)


def test_no_random_sign_is_drawn_where_there_is_no_zero() -> None:
    rng, untouched = np.random.default_rng(3), np.random.default_rng(3)

    pack_signs(np.array([1, -1, np.inf, -1e-45], np.float32), rng)

    assert rng.random() == untouched.random()


@pytest.mark.parametrize("place", [0, 31, 32, 70])
def test_nan_has_no_sign(place: int) -> None:
    values = np.ones(71, np.float32)
    values[place] = np.nan

    with pytest.raises(RunError, match="values that are NaN has no sign"):
        pack_signs(values, np.random.default_rng(0))


def test_a_ballot_with_bits_after_its_last_coordinate_is_refused_on_the_wire() -> None:
    payload = wire.frame(np.array([0xFF], np.uint8), length=3, bits=1)

    with pytest.raises(WireError, match="after its last word"):
        wire.open_frame(payload, length=3, bits=1)


@settings(max_examples=30)
@given(length=st.integers(1, 200), voters=st.integers(0, 70), cut=st.integers(0, 70), seed=st.integers(0, 99))
def test_the_tally_is_the_sum_of_signs_however_it_is_split(length: int, voters: int, cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((voters, length)).astype(np.float32)
    left, right = Tally(length), Tally(length)
    for index, row in enumerate(values):
        (left if index < cut else right).add(pack_signs(row, rng))

    left.merge(pickle.loads(pickle.dumps(right)))

    assert left.count == voters
    assert np.array_equal(left.total(), slow_signs(values).sum(axis=0, dtype=np.int32))


def test_a_unanimous_vote_of_a_thousand_is_counted_exactly() -> None:
    tally = Tally(77)
    for _ in range(1000):
        tally.add(pack_signs(np.ones(77, np.float32), np.random.default_rng(0)))

    assert set(tally.total().tolist()) == {1000}
    assert set(tally.total().tolist()) == {1000}, "asking does not change the count"


def test_tallies_and_ballots_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="9 coordinates are 2 bytes, got 1"):
        Tally(9).add(np.zeros(1, np.uint8))
    with pytest.raises(InputError, match="cannot be merged"):
        Tally(9).merge(Tally(8))


@given(values=floats, size=st.floats(2**-10, 1, width=32))
def test_a_step_adds_the_size_along_each_sign(values: NDArray[np.float32], size: float) -> None:
    ballot = pack_signs(values[::-1], np.random.default_rng(0))

    moved = step(values, ballot, size)

    assert np.array_equal(moved, values + np.float32(size) * expand(ballot, values.size).astype(np.float32))
