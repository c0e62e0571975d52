from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core import wire
from sottovoce.core.errors import RunError, WireError
from sottovoce.federation.sums import FloatSum, Fold, SignSum, WordSum
from sottovoce.schemes.packed_signs import expand, pack_signs


def floats(seed: int, length: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(length) * 10.0 ** rng.integers(-6, 3, length)).astype(np.float32)


def folded(fold: Fold, payloads: list[bytes]) -> np.ndarray:
    accumulator = fold.empty()
    for payload in payloads:
        fold.add(accumulator, payload)
    return fold.total(accumulator)


@given(clients=st.integers(1, 30), order=st.randoms(use_true_random=False), cut=st.integers(0, 30))
def test_a_sum_does_not_depend_on_order_or_on_workers(clients: int, order: object, cut: int) -> None:
    fold = FloatSum(length=50, senders=30)
    payloads = [wire.pack(floats(seed, 50)) for seed in range(clients)]
    one = folded(fold, payloads)

    order.shuffle(payloads)
    left, right = fold.empty(), fold.empty()
    for index, payload in enumerate(payloads):
        fold.add(left if index < cut else right, payload)
    fold.merge(left, right)

    assert np.array_equal(fold.total(left), one)


def test_the_exact_sum_is_as_near_as_float64() -> None:
    values = [floats(seed, 1000) for seed in range(20)]

    total = folded(FloatSum(1000, 20), [wire.pack(value) for value in values])

    assert np.allclose(total, np.sum(values, axis=0, dtype=np.float64), rtol=0, atol=20 * 2.0**-41)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 5000.0, -5000.0])
def test_a_diverged_client_is_refused_and_changes_nothing(bad: float) -> None:
    fold = FloatSum(4, 10)
    accumulator = fold.empty()
    fold.add(accumulator, wire.pack(np.array([1, 2, 3, 4], np.float32)))

    with pytest.raises(RunError, match="not finite or exceed 4096"):
        fold.add(accumulator, wire.pack(np.array([1, bad, 1, 1], np.float32)))

    assert fold.total(accumulator).tolist() == [1, 2, 3, 4]


def test_no_number_of_senders_can_overflow() -> None:
    for senders in (1, 1000, 10**6, 10**9):
        fold = FloatSum(1, senders)
        assert senders * 4096 * 2.0**fold.fraction_bits < 2.0**63


@given(clients=st.integers(1, 40), length=st.integers(1, 100))
def test_ballots_add_up_to_the_sum_of_signs(clients: int, length: int) -> None:
    ballots = [pack_signs(floats(seed, length), np.random.default_rng(seed)) for seed in range(clients)]

    total = folded(SignSum(length), [wire.frame(ballot, length=length, bits=1) for ballot in ballots])

    assert np.array_equal(total, np.sum([expand(ballot, length) for ballot in ballots], axis=0, dtype=np.int32))


@given(bits=st.integers(1, 32), clients=st.integers(1, 20))
def test_words_add_up_modulo_their_width(bits: int, clients: int) -> None:
    words = np.random.default_rng(bits).integers(0, 1 << bits, (clients, 33), np.uint64)

    total = folded(WordSum(33, bits), [wire.pack(row, bits=bits) for row in words])

    assert np.array_equal(total, words.sum(axis=0) % (1 << bits))


@pytest.mark.parametrize("fold", [FloatSum(8, 5), SignSum(8), WordSum(8, 13)])
def test_a_payload_of_another_kind_or_size_is_refused(fold: Fold) -> None:
    for payload in (b"", b"hello", wire.pack(np.ones(9, np.float32)), wire.pack(np.ones(8, np.uint32), bits=7)):
        with pytest.raises(WireError):
            fold.add(fold.empty(), payload)
