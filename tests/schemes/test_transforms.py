"""FL-CS and FL-FREQ against their definitions, written out."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.schemes import State, make
from sottovoce.schemes.compressive import Compressive
from sottovoce.schemes.coordinates import shuffled
from sottovoce.schemes.dct import fast_length, first, forward, inverse
from sottovoce.schemes.reconstruct import reconstruct

RNG = np.random.default_rng(0)


def compressive(dim: int, **keys: float) -> Compressive:
    return cast(Compressive, make("fl-cs", **keys)).bind(dim, seed=4)


def theta(kept: int, length: int) -> NDArray[np.float64]:
    """The first rows of the DCT-II matrix, from its formula."""
    row, column = np.arange(kept)[:, None], np.arange(length)
    matrix = np.sqrt(2 / length) * np.cos(np.pi * (2 * column + 1) * row / (2 * length))
    matrix[0] /= np.sqrt(2)
    return matrix


def slow_chunks(scheme: Compressive, update: NDArray[np.float32]) -> NDArray[np.float32]:
    chunks = np.zeros((scheme.parts, scheme.padded), np.float32)
    for place, coordinate in enumerate(shuffled(scheme.dim, scheme.shared_seed)):
        chunks[place % scheme.parts, place // scheme.parts] = update[coordinate]
    return chunks


@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 400), chunks=st.integers(1, 30), ratio=st.floats(0.3, 1.0), seed=st.integers(0, 99))
def test_fl_cs_measures_each_shuffled_chunk_by_its_first_cosine_coefficients(
    dim: int, chunks: int, ratio: float, seed: int
) -> None:
    chunks = min(chunks, dim)
    if round(ratio * -(-dim // chunks)) < 1:
        return
    scheme = compressive(dim, chunks=chunks, ratio=ratio)
    update = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)

    message = scheme.encode(update, 0, RNG).reshape(scheme.parts, scheme.kept)

    assert np.allclose(message, slow_chunks(scheme, update) @ theta(scheme.kept, scheme.padded).T, atol=1e-5)


@given(dim=st.integers(1, 400), chunks=st.integers(1, 30))
def test_unshuffling_undoes_the_shuffle(dim: int, chunks: int) -> None:
    scheme = compressive(dim, chunks=min(chunks, dim), ratio=1.0)
    update = np.arange(1, dim + 1, dtype=np.float32)

    assert np.array_equal(scheme._unshuffle(slow_chunks(scheme, update)), update)


def slow_round(scheme: Compressive, y: NDArray[np.float32], state: State) -> State:
    """Alg. 4, lines 9 to 13, in float64 with the matrix in the place of the transform."""
    matrix = theta(scheme.kept, scheme.padded)
    u = scheme.momentum * state["momentum"].astype(float) + y
    e = scheme.server_lr * u + state["error"]
    s = reconstruct(e.reshape(scheme.parts, -1).astype(np.float32), scheme.padded, scheme.l1, state["warm"])
    update = np.zeros(scheme.dim)
    for place, coordinate in enumerate(shuffled(scheme.dim, scheme.shared_seed)):
        update[coordinate] = s[place % scheme.parts, place // scheme.parts]
    e = e - (slow_chunks(scheme, update.astype(np.float32)) @ matrix.T).reshape(-1)
    return {"params": state["params"] + update, "momentum": u, "error": e, "warm": s}


def test_fl_cs_decodes_as_algorithm_4_says() -> None:
    scheme = compressive(101, chunks=3, ratio=0.5)  # chunks of 34, 34 and 33, padded to 35
    state = scheme.init(RNG.standard_normal(101).astype(np.float32))
    for _ in range(3):
        y = scheme.encode(RNG.standard_normal(101).astype(np.float32), 0, RNG)
        slow = slow_round(scheme, y, state)
        state = scheme.decode(y, state, 0, RNG)
        for key, value in slow.items():
            assert np.allclose(state[key], value, atol=2e-4), key


def test_fl_cs_recovers_a_sparse_update_from_a_quarter_of_the_measurements() -> None:
    scheme = compressive(2000, chunks=2, ratio=0.25, server_lr=1.0, momentum=0.0)
    update = np.zeros(2000, np.float32)
    update[RNG.choice(2000, 20, replace=False)] = RNG.choice([-1.0, 1.0], 20)

    state = scheme.decode(scheme.encode(update, 0, RNG), scheme.init(np.zeros(2000, np.float32)), 0, RNG)

    assert np.linalg.norm(state["params"] - update) < 0.3 * np.linalg.norm(update)


def test_what_is_not_reconstructed_stays_in_the_error() -> None:
    scheme = compressive(101, chunks=3, ratio=0.5, server_lr=1.0)
    y = scheme.encode(RNG.standard_normal(101).astype(np.float32), 0, RNG)
    zeros = np.zeros(101, np.float32)

    state = scheme.decode(y, scheme.init(zeros), 0, RNG)

    assert np.allclose(state["error"] + scheme.encode(state["params"], 0, RNG), y, atol=1e-5)


@pytest.mark.parametrize(
    ("dim", "parts", "padded", "kept"), [(1_663_370, 200, 8320, 416), (1_496_601, 200, 7488, 374), (5000, 1, 5000, 250)]
)
def test_default_chunks_are_the_papers_200_and_fewer_for_small_models(
    dim: int, parts: int, padded: int, kept: int
) -> None:
    scheme = compressive(dim)

    assert (scheme.parts, scheme.padded, scheme.kept) == (parts, padded, kept)


@given(size=st.integers(1, 20_000))
def test_fast_lengths_pad_little_and_have_small_factors(size: int) -> None:
    length = fast_length(size)
    rest = length
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            rest //= prime

    assert rest == 1
    assert size <= length <= scipy.fft.next_fast_len(size, real=True)


@given(size=st.integers(1, 60), data=st.data())
def test_the_transform_is_the_orthonormal_dct_ii_in_float32(size: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, size))
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    matrix = theta(kept, size)

    coefficients = forward(values.copy())

    assert coefficients.dtype == np.float32
    assert np.allclose(coefficients[:kept], matrix @ values, atol=1e-5)
    assert np.allclose(inverse(coefficients[:kept].copy(), size), matrix.T @ matrix @ values, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "length", "kept"),
    [
        (20_000, 20_000, 1000),  # thinned by 10
        (19_990, 20_000, 625),  # by 16, with padding
        (16_384, 16_384, 4096),  # by 2
        (20_000, 20_000, 1),
        (20_001, 20_020, 6000),  # too many are wanted
        (17_325, 17_325, 100),  # an odd length
    ],
)
def test_the_first_coefficients_are_as_exact_as_those_of_the_whole_transform(size: int, length: int, kept: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    padded = np.zeros(length)
    padded[:size] = values
    wanted = scipy.fft.dct(padded, norm="ortho")[:kept]

    error = np.abs(first(values, length, kept) - wanted).max()

    assert error < 2e-6  # of coefficients around 1; float32 itself is off by up to 1e-6


def test_the_first_coefficients_see_both_ends_of_the_signal() -> None:
    for place in (0, 1, 90, 91, 19_908, 19_999):
        values = np.zeros(20_000, np.float32)
        values[place] = 1000

        assert np.allclose(first(values, 20_000, 1000), forward(values.copy())[:1000], atol=2e-6)


def test_fl_freq_is_a_low_pass_filter() -> None:
    scheme = make("fl-freq", ratio=0.25).bind(96)
    slow_wave, fast_wave = (np.cos(np.pi * (2 * np.arange(96) + 1) * k / 192).astype(np.float32) for k in (5, 70))
    zeros = np.zeros(96, np.float32)

    state = scheme.decode(scheme.encode(slow_wave + fast_wave, 0, RNG), scheme.init(zeros), 0, RNG)

    assert scheme.length == 24
    assert np.allclose(state["params"], slow_wave, atol=1e-5)


def test_fl_freq_never_pads_much_at_the_size_of_the_papers_network() -> None:
    scheme = make("fl-freq").bind(1_663_370)

    assert 0 <= scheme.length - 83_168 <= 0.0003 * 83_168


@pytest.mark.parametrize(
    ("keys", "dim", "message"),
    [
        ({"chunks": 101}, 100, "chunks must be at most the 100 parameters, got 101"),
        ({"chunks": 50}, 100, "ratio 0.05 keeps none of 2 coordinates of each of 50 chunks"),
        ({"ratio": 0.001}, 100, "keeps none of 100 coordinates of each of 1 chunks"),
    ],
)
def test_fl_cs_refuses_chunks_that_do_not_fit_the_model(keys: dict[str, float], dim: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make("fl-cs", **keys).bind(dim)
