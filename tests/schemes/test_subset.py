from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError, WireError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.schemes import importance, make
from sottovoce.schemes.coordinates import drawn, largest, pack_set, round_seed, shuffled, unpack_set
from sottovoce.schemes.subset import Subset

FIXED = ["fl-top", "fl-top-bis", "fl-bas-3", "fl-bas-4"]
FRESH = ["fl-rnd", "fl-basic", "fl-bas-2"]
RNG = np.random.default_rng(0)


def subset(name: str, **keys: float) -> Subset:
    return cast(Subset, make(name, **keys))


@given(dim=st.integers(1, 4096), ratio=st.floats(0.01, 1.0), name=st.sampled_from(FIXED + FRESH))
def test_a_subset_sends_four_bytes_up_for_each_kept_coordinate(dim: int, ratio: float, name: str) -> None:
    if round(dim * ratio) < 1:
        return
    scheme = subset(name, ratio=ratio).bind(dim)

    payload = wire.pack(scheme.encode(np.ones(dim, np.float32), 1, RNG))

    assert len(payload) - wire.HEADER == 4 * scheme.kept == 4 * round(dim * ratio)


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_set_sends_only_its_values_down(name: str) -> None:
    scheme = subset(name, ratio=0.1).bind(1000)

    assert len(scheme.downlink(scheme.init(np.ones(1000, np.float32)), 0)) == wire.HEADER + 400


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_set_sends_the_model_and_eight_bytes_of_seed_down(name: str) -> None:
    scheme = subset(name, ratio=0.1).bind(1000)

    payload = scheme.downlink(scheme.init(np.ones(1000, np.float32)), scheme.round_seed(1))

    assert len(payload) == (wire.HEADER + 4000) + (wire.HEADER + 8)


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_set_is_another_every_round_and_the_same_for_all_clients(name: str) -> None:
    server = subset(name, ratio=0.1).bind(1000, seed=3)
    client = subset(name, ratio=0.1).bind(1000, seed=3)
    sets = [server.coordinates(server.round_seed(round_)).tolist() for round_ in range(1, 6)]

    assert len({tuple(one) for one in sets}) == 5
    assert sets[2] == client.coordinates(client.round_seed(3)).tolist()


@pytest.mark.parametrize(
    ("name", "constrained"), [(name, name in ("fl-top", "fl-bas-3", "fl-basic")) for name in FIXED + FRESH]
)
def test_the_constrained_corners_are_those_of_the_table(name: str, constrained: bool) -> None:
    scheme = subset(name, ratio=0.1).bind(100)
    mask = scheme.trainable(5)

    assert (mask is not None) == constrained
    if mask is not None:
        assert np.flatnonzero(mask).tolist() == scheme.coordinates(5).tolist()


def test_bas_2_is_rnd_by_our_reading() -> None:
    one, two = (subset(name, ratio=0.3).bind(50, seed=2) for name in ("fl-rnd", "fl-bas-2"))

    assert one.round_seed(4) == two.round_seed(4)
    assert one.coordinates(9).tolist() == two.coordinates(9).tolist()
    assert (one.selection, one.constrain) == (two.selection, two.constrain)


def test_top_takes_the_most_important_and_of_equals_the_first() -> None:
    scores = np.array([0, 3, 1, 3, 3, 2], np.float32)

    assert subset("fl-top", ratio=0.34).bind(6, importance=scores).coordinates(0).tolist() == [1, 3]
    assert subset("fl-top", ratio=0.5).bind(6).coordinates(0).tolist() == [0, 1, 2]


def test_top_refuses_importance_of_another_shape_or_of_nan() -> None:
    with pytest.raises(InputError, match="importance must have 6 values"):
        make("fl-top", ratio=0.5).bind(6, importance=np.ones(5, np.float32))
    with pytest.raises(RunError, match="importance has values that are not finite"):
        make("fl-top", ratio=0.5).bind(6, importance=np.array([1, np.nan, 1, 1, 1, 1], np.float32))


def test_weights_outside_a_fixed_set_stay_at_the_start_for_ever() -> None:
    start = RNG.standard_normal(200).astype(np.float32)
    scheme = subset("fl-top", ratio=0.1).bind(200, start=start, importance=RNG.random(200, np.float32))
    state = scheme.init(start)
    for _ in range(5):
        state = scheme.decode(np.ones(20, np.float32), state, 0, RNG)
    outside = ~np.isin(np.arange(200), scheme.coordinates(0))

    received = scheme.receive(scheme.downlink(state, 0), {}).params

    assert np.array_equal(state["params"][outside], start[outside])
    assert np.array_equal(received, state["params"])


def test_a_client_without_w_0_is_told_so() -> None:
    scheme = subset("fl-top", ratio=0.5).bind(4)

    with pytest.raises(InputError, match="fl-top needs w_0"):
        scheme.receive(scheme.downlink(scheme.init(np.ones(4, np.float32)), 0), {})


@given(dim=st.integers(1, 3000), seed=st.integers(0, 99), data=st.data())
def test_a_set_survives_its_set_up_message_in_the_shorter_of_two_forms(
    dim: int, seed: int, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(1, dim))
    chosen = drawn(dim, kept, seed)

    payload = pack_set(chosen, dim)

    assert unpack_set(payload, dim, kept).tolist() == chosen.tolist()
    bits = max(1, (dim - 1).bit_length())
    assert len(payload) == wire.HEADER + min(-(-dim // 8), -(-kept * bits // 8))


def test_the_top_set_of_the_papers_network_takes_21_bits_an_index() -> None:
    scheme = subset("fl-top", ratio=0.005).bind(1_663_370)

    assert scheme.kept == 8317
    assert len(scheme.setup()) == wire.HEADER + -(-8317 * 21 // 8)
    assert subset("fl-bas-3", ratio=0.005).bind(1_663_370).setup() == b""


@pytest.mark.parametrize("indices", [[3, 2, 1], [1, 1, 2], [1, 2, 500]])
def test_a_set_up_that_is_no_set_is_refused(indices: list[int]) -> None:
    with pytest.raises(WireError, match="3 ascending coordinates below 300"):
        unpack_set(wire.pack(np.array(indices), bits=9), 300, 3)


def test_a_seed_scheme_refuses_a_set_up_it_does_not_expect() -> None:
    with pytest.raises(InputError, match="expects an empty set-up, got 1 bytes"):
        make("fl-bas-3").bind_setup(b"x", dim=100, seed=0, start=np.zeros(100, np.float32))


def test_drawn_coordinates_are_uniform() -> None:
    counts = np.zeros(20)
    for seed in range(4000):
        counts[drawn(20, 5, seed)] += 1

    # Each count is Binomial(4000, 1/4); five standard deviations: false alarm below 2e-5 over 20 counts.
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(4000 * 0.25 * 0.75)


@given(dim=st.integers(1, 500), seed=st.integers(0, 9))
def test_sets_and_shuffles_depend_on_nothing_but_the_raw_words_of_the_stream(dim: int, seed: int) -> None:
    set_keys, shuffle_keys = (Streams(seed).get(Purpose.SELECT, path).bit_generator.random_raw(dim) for path in (0, 2))

    assert drawn(dim, (dim + 1) // 2, seed).tolist() == sorted(np.argsort(set_keys)[: (dim + 1) // 2].tolist())
    assert shuffled(dim, seed).tolist() == np.argsort(shuffle_keys).tolist()


def test_round_seeds_are_64_bits_and_differ() -> None:
    seeds = {round_seed(7, round_) for round_ in range(100)} | {round_seed(8, round_) for round_ in range(100)}

    assert len(seeds) == 200
    assert max(seeds) >= 1 << 60
    assert max(seeds) < 1 << 64


def test_shared_sets_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        drawn(10, 2, 0)[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        largest(np.ones(4, np.float32), 2)[0] = 5


def test_importance_sums_absolute_gradients_along_sgd() -> None:
    start = np.array([1, -2, 0], np.float32)
    seen: list[int] = []

    def gradient(params: np.ndarray, step: int) -> np.ndarray:
        seen.append(step)
        return params  # of |w|^2 / 2

    scores = importance(gradient, start, steps=3, lr=0.5)

    assert np.array_equal(scores, np.array([1.75, 3.5, 0], np.float32))
    assert seen == [0, 1, 2]
    assert start.tolist() == [1, -2, 0]
