from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.models.fronts.projection import Projection

RNG = default_rng(5)
MIX, TURN = RNG.standard_normal((6, 6)), RNG.standard_normal((4, 4))


def public(records: int = 2000, seed: int = 1) -> NDArray[np.float32]:
    """Return coefficients (records, 6, 4) that are correlated over channels and over places, and not centred."""
    raw = default_rng(seed).standard_normal((records, 6, 4)) * np.arange(1, 7)[:, None]
    return (MIX @ raw @ TURN + 3).astype(np.float32)


def by_hand(found: NDArray[np.float32], dims: int) -> list[NDArray[np.float64]]:
    """Return the `dims` largest (a D) F b of each record, in double precision, by the formula of the docstring."""
    values = found.astype(np.float64)
    spread = values.std((0, 2))
    values = values / (spread + 0.02 * spread.max())[None, :, None]
    centred = values - values.mean(0)
    channels = np.linalg.eigh(sum(one @ one.T for one in centred))[1]
    places = np.linalg.eigh(sum(one.T @ one for one in centred))[1]
    products = [channels[:, i] @ (centred @ places[:, j]).T for i in range(6) for j in range(4)]
    return sorted(products, key=lambda values: -values.var())[:dims]


def test_features_are_the_products_of_largest_variance_scaled_and_of_one_length() -> None:
    found = public()
    projection = Projection.fit(found, 7)

    raw = projection.raw(found).astype(np.float64)

    wanted = np.stack([product * product.var() ** -0.25 for product in by_hand(found, 7)], 1)
    for mine, theirs in zip(raw.T, wanted.T, strict=True):
        assert abs(np.corrcoef(mine, theirs)[0, 1]) > 0.99999
    # One factor for all: the scales agree up to it.
    ratio = raw.std(0) / wanted.std(0)
    assert np.allclose(ratio, ratio[0], rtol=2e-3)
    assert np.abs(raw.mean(0)).max() < 1e-3 * raw.std(0).min()
    assert np.allclose(np.linalg.norm(projection.features(found), axis=1), 1 / 0.3, rtol=1e-5)


def test_numbers_travel_as_they_are_used_and_axes_take_two_bytes_each() -> None:
    projection = Projection.fit(public(), 7)

    payload = projection.payload()
    read, rest = Projection.read(payload + b"!", channels=6, places=4, dims=7)

    assert rest == b"!" and read.payload() == payload
    assert np.array_equal(read.raw(public(9, seed=2)), projection.raw(public(9, seed=2)))
    axes = 6 * len(projection.channels) + 4 * len(projection.places)
    assert len(payload) == 5 * wire.HEADER + 8 + 2 * axes + 7 * (2 * 2 + 2 * 4)


def test_axes_of_any_size_survive_sixteen_bits() -> None:
    for size in (1e-20, 1e12):
        found = public() * np.float32(size)
        features = Projection.fit(found, 24).features(found)

        assert np.isfinite(features).all()
        assert np.allclose(np.linalg.norm(features, axis=1), 1 / 0.3, rtol=1e-5)


def test_a_record_without_features_stays_at_zero() -> None:
    projection = Projection.fit(public(), 7)
    blank = replace(projection, centre=np.zeros(7, np.float32))

    assert np.array_equal(blank.features(np.zeros((1, 6, 4), np.float32)), np.zeros((1, 7), np.float32))


def test_more_dims_than_vary_in_the_source_are_refused() -> None:
    found = public()
    found[:, 5] = 0  # a channel that is never there

    assert Projection.fit(found, 20).dims == 20
    with pytest.raises(InputError, match=r"projection\.dims must be at most 20, .* got 21"):
        Projection.fit(found, 21)


@pytest.mark.parametrize(
    ("break_", "reason"),
    [
        (lambda payload: payload[:-1], "truncated|takes|bytes"),
        (lambda payload: payload[: wire.HEADER], "bytes"),
        (lambda payload: wire.pack(np.array([7, 4], np.uint32), bits=32) + payload[32:], "7, 4. axes for 6 channels"),
        (lambda payload: wire.pack(np.array([0, 4], np.uint32), bits=32) + payload[32:], "0, 4. axes"),
        (lambda payload: _replaced(payload, 3, np.full(14, 6, np.uint32), 16), "pairs an axis that it does not hold"),
        (lambda payload: _replaced(payload, 4, np.full(14, np.nan, np.float32), None), "not finite"),
    ],
)
def test_a_set_up_that_is_no_projection_is_refused(break_, reason: str) -> None:  # type: ignore[no-untyped-def]
    payload = Projection.fit(public(), 7).payload()

    with pytest.raises(WireError, match=reason):
        Projection.read(break_(payload), channels=6, places=4, dims=7)


def _replaced(payload: bytes, number: int, values: NDArray[np.generic], bits: int | None) -> bytes:
    rows = wire.unpack(payload[:32], length=2, bits=32)
    sizes = [32, wire.frame_size(6 * int(rows[0]), 16), wire.frame_size(4 * int(rows[1]), 16), wire.frame_size(14, 16)]
    parts = [*(payload[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(4)), payload[sum(sizes) :]]
    parts[number] = wire.pack(values, bits=bits)
    return b"".join(parts)
