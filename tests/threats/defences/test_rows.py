from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.threats.defences import rows as kernels
from sottovoce.threats.defences import spread


@given(st.integers(1, 30), st.integers(1, 80), st.integers(0, 10**6))
def test_distances_and_products_are_those_of_numpy(count: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates = rng.standard_normal((count + 2, length), dtype=np.float32)
    rows = np.sort(rng.permutation(count + 2)[:count])
    wide, other = updates[rows].astype(np.float64), rng.standard_normal(length, dtype=np.float32)

    pairs = kernels.pairwise(updates, rows)

    assert np.allclose(pairs, ((wide[:, None] - wide[None]) ** 2).sum(axis=2), rtol=1e-13)
    assert np.array_equal(pairs, pairs.T)
    assert not np.diag(pairs).any()
    assert np.allclose(
        kernels.squared_distances(updates, rows, other.astype(float)), ((wide - other) ** 2).sum(axis=1), rtol=1e-13
    )
    assert np.allclose(kernels.products(updates, rows), (wide**2).sum(axis=1), rtol=1e-13)
    assert np.allclose(kernels.products(updates, rows, other), wide @ other, rtol=1e-12, atol=1e-12)
    weights = rng.random(count)
    assert np.allclose(kernels.weighted_sum(updates, rows, weights), weights @ wide, rtol=1e-12, atol=1e-12)


def test_distances_survive_what_all_updates_have_in_common() -> None:
    """|a|^2 + |b|^2 - 2 <a, b> would be off by a third here, even in float64."""
    length = 50_000
    common = np.full(length, 4000, np.float32)
    updates = np.stack([common, np.nextafter(common, np.float32(5000)), common])

    pairs = kernels.pairwise(updates, np.arange(3))

    assert pairs[0, 2] == 0
    assert pairs[0, 1] == pytest.approx(length * float(np.spacing(np.float32(4000))) ** 2, rel=1e-12)


def test_the_largest_floats_have_finite_distances() -> None:
    updates = np.array([[3e38] * 100, [-3e38] * 100], np.float32)

    assert np.isfinite(kernels.pairwise(updates, np.arange(2))).all()


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_a_row_with_one_bad_value_is_not_finite(value: float, place: int) -> None:
    updates = np.full((3, 100), 3e38, np.float32)
    updates[1, place] = value

    assert kernels.finite_rows(updates).tolist() == [0, 2]


def test_the_number_of_threads_changes_no_bit_of_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, because a float32 estimate would hide the last bits of these float64 sums."""
    rng = np.random.default_rng(2)
    updates, other = rng.standard_normal((9, 150_001), dtype=np.float32), rng.standard_normal(150_001, dtype=np.float32)
    rows, found = np.arange(9), set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(spread, "threads", lambda threads=threads: threads)
        sums = (
            kernels.pairwise(updates, rows),
            kernels.squared_distances(updates, rows, other.astype(np.float64)),
            kernels.products(updates, rows),
            kernels.products(updates, rows, other),
            kernels.weighted_sum(updates, rows, np.full(9, 0.1)),
        )
        found.add(b"".join(each.tobytes() for each in sums))

    assert len(found) == 1
