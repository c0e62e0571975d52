from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds, Streams

paths = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)


def first(streams: Streams, purpose: Purpose, path: tuple[int, ...]) -> int:
    return int(streams.get(purpose, *path).integers(2**63))


@given(seed=st.integers(0, 2**63 - 1), path=paths)
def test_a_name_always_gives_the_same_stream(seed: int, path: tuple[int, ...]) -> None:
    assert first(Streams(seed), Purpose.BATCH, path) == first(Streams(seed), Purpose.BATCH, path)
    assert Streams(seed).key(Purpose.NOISE, *path) == Streams(seed).key(Purpose.NOISE, *path)


@given(one=st.tuples(st.sampled_from(Purpose), paths), other=st.tuples(st.sampled_from(Purpose), paths))
def test_different_names_give_different_streams(
    one: tuple[Purpose, tuple[int, ...]], other: tuple[Purpose, tuple[int, ...]]
) -> None:
    if one != other:
        assert first(Streams(7), *one) != first(Streams(7), *other)


def test_a_longer_path_is_another_stream_even_if_it_ends_in_zeros() -> None:
    assert first(Streams(7), Purpose.BATCH, (3,)) != first(Streams(7), Purpose.BATCH, (3, 0))


def test_keys_have_the_size_asked_for() -> None:
    assert [len(Streams(1).key(Purpose.MASK, 1, size=size)) for size in (1, 7, 32, 64)] == [1, 7, 32, 64]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed must be at least 0, got -1"):
        Streams(-1)


@given(seed=st.integers(0, 2**63 - 1), client=st.integers(0, 2**40))
def test_every_owner_of_randomness_has_a_seed_of_its_own(seed: int, client: int) -> None:
    seeds = Seeds(seed)
    owners = [seeds.public, seeds.server, seeds.world, seeds.client(client), seeds.client(client + 1)]

    assert len({owner.seed for owner in owners} | {seed}) == 6


def test_the_public_seed_fits_the_set_up_and_the_others_are_too_long_to_guess() -> None:
    assert Seeds(1).public.seed < 2**64
    assert min(Seeds(seed).server.seed.bit_length() for seed in range(20)) > 200
