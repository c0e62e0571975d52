"""What holds whoever is malicious, and what must not change the result."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.threats import defences
from sottovoce.threats.defences import spread

Array = NDArray[np.float32]

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
anything = st.floats(width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0])
usual = st.floats(-100, 100, width=32)


def gaussian(rows: int, length: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, length), dtype=np.float32)


def poisoned(data: st.DataObject, fewest: int, malicious: int, bad: Any = anything) -> tuple[Array, Array]:
    """Draw honest rows, and a matrix in which malicious ones stand anywhere between them."""
    length = data.draw(st.integers(1, 4))
    rows = data.draw(st.integers(max(fewest, malicious + 1), max(fewest, malicious + 1) + 5))
    honest = data.draw(arrays(np.float32, (rows - malicious, length), elements=usual))
    wild = data.draw(arrays(np.float32, (malicious, length), elements=bad))
    order = data.draw(st.permutations(range(rows)))
    return honest, np.concatenate([honest, wild])[order]


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
@given(st.data())
def test_malicious_rows_of_any_value_cannot_leave_the_honest_range(name: str, data: st.DataObject) -> None:
    malicious, defence = data.draw(st.integers(0, 4)), defences.make(name)
    honest, updates = poisoned(data, 3 * malicious + 1, malicious)  # enough even if all malicious rows are NaN

    found = defence.estimate(updates, malicious)

    assert np.all((honest.min(axis=0) <= found) & (found <= honest.max(axis=0)))


@given(st.data())
def test_bulyan_stays_as_near_to_the_median_as_honest_values_are(data: st.DataObject) -> None:
    malicious = data.draw(st.integers(1, 2))
    honest, updates = poisoned(data, 5 * malicious + 3, malicious)

    found = defences.make("bulyan").estimate(updates, malicious)

    low, high = honest.min(axis=0).astype(np.float64), honest.max(axis=0).astype(np.float64)
    assert np.all((low - (high - low) - 1e-4 <= found) & (found <= high + (high - low) + 1e-4))


@given(st.data())
def test_krum_answers_with_an_honest_row_when_the_others_are_far(data: st.DataObject) -> None:
    malicious = data.draw(st.integers(1, 3))
    far = st.floats(1e4, width=32, allow_infinity=False) | st.just(np.nan)
    honest, updates = poisoned(data, 3 * malicious + 3, malicious, bad=far)

    found = defences.make("krum").estimate(updates, malicious)

    assert any(np.array_equal(found, row) for row in honest)
    assert np.abs(defences.make("multi-krum").estimate(updates, malicious)).max() <= 100.1


@given(st.data())
def test_the_geometric_median_stays_within_its_bound(data: st.DataObject) -> None:
    malicious = data.draw(st.integers(0, 3))
    honest, updates = poisoned(data, 3 * malicious + 1, malicious)

    found = defences.make("geometric-median").estimate(updates, malicious)

    n = int(np.isfinite(updates).all(axis=1).sum())
    radius = float(np.linalg.norm(honest.astype(np.float64), axis=1).max())  # the point is zero
    assert np.linalg.norm(found.astype(np.float64)) <= 2 * (n - malicious) / (n - 2 * malicious) * radius * 1.01 + 1e-3


@given(st.data(), st.none() | st.floats(0.1, 50))
def test_norm_bound_limits_what_malicious_rows_add(data: st.DataObject, bound: float | None) -> None:
    malicious = data.draw(st.integers(0, 3))
    honest, updates = poisoned(data, 3 * malicious + 1, malicious, bad=finite)

    found = defences.make("norm-bound", bound=bound).estimate(updates, malicious).astype(np.float64)

    if bound is None:
        bound = float(np.median(np.linalg.norm(updates.astype(np.float64), axis=1)))
        assert bound <= np.linalg.norm(honest.astype(np.float64), axis=1).max() * (1 + 1e-6)
    norms = np.linalg.norm(honest.astype(np.float64), axis=1, keepdims=True)
    ours = (honest * np.minimum(1, bound / np.maximum(norms, 1e-30))).sum(axis=0) / len(updates)
    assert np.linalg.norm(found - ours) <= malicious * bound / len(updates) + 1e-4


@given(st.data())
def test_fltrust_never_goes_against_the_server_nor_further_than_it(data: st.DataObject) -> None:
    malicious = data.draw(st.integers(0, 5))
    _, updates = poisoned(data, malicious + 1, malicious)
    reference = np.ones(updates.shape[1], np.float32)
    updates[-1] = 1  # somebody agrees

    found = defences.make("fltrust").estimate(updates, 0, reference).astype(np.float64)

    assert np.linalg.norm(found) <= np.linalg.norm(reference) * (1 + 1e-5)
    assert found @ reference > 0


def test_fltrust_looks_at_directions_alone() -> None:
    updates, reference = gaussian(9, 40) + np.float32(0.5), np.ones(40, np.float32)
    longer = updates * np.geomspace(1e-6, 1e6, 9, dtype=np.float32)[:, None]
    fltrust = defences.make("fltrust")

    assert np.allclose(fltrust.estimate(longer, 2, reference), fltrust.estimate(updates, 2, reference), rtol=1e-4)


def test_fltrust_refuses_when_nobody_agrees_and_when_the_server_has_no_direction() -> None:
    ones = np.ones(4, np.float32)

    with pytest.raises(RunError, match="no update points where the server's own does"):
        defences.make("fltrust").estimate(np.stack([-ones, -2 * ones, 0 * ones]), 0, ones)
    with pytest.raises(RunError, match="norm 0, which points nowhere"):
        defences.make("fltrust").estimate(np.stack([ones]), 0, 0 * ones)
    with pytest.raises(InputError, match="needs a reference update of 4 values"):
        defences.make("fltrust").estimate(np.stack([ones]), 0)


@pytest.mark.parametrize("name", defences.known())
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_as_if_it_had_not_come(name: str, bad: float) -> None:
    updates, reference = gaussian(12, 33), np.ones(33, np.float32)
    with_bad = np.insert(updates, 5, updates[0], axis=0)
    with_bad[5, 32] = bad

    found = defences.make(name).estimate(with_bad, 2, reference)

    assert np.array_equal(found, defences.make(name).estimate(updates, 2, reference))


@pytest.mark.parametrize("name", defences.known())
@settings(max_examples=20)
@given(st.permutations(range(13)), st.integers(0, 100))
def test_the_order_of_the_clients_does_not_matter(name: str, order: list[int], seed: int) -> None:
    updates, reference = gaussian(13, 20, seed), np.ones(20, np.float32)
    defence = defences.make(name)

    one, other = defence.estimate(updates, 2, reference), defence.estimate(updates[order], 2, reference)

    if name in ("median", "trimmed-mean", "krum", "bulyan"):
        assert np.array_equal(one, other)
    assert np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in defences.known() if name not in ("norm-bound", "fltrust")])
@settings(max_examples=20)
@given(st.floats(-50, 50, width=32), st.integers(0, 100))
def test_what_is_added_to_all_updates_is_added_to_the_estimate(name: str, shift: float, seed: int) -> None:
    updates, defence = gaussian(13, 20, seed), defences.make(name)

    moved = defence.estimate(updates + np.float32(shift), 2)

    assert np.allclose(moved, defence.estimate(updates, 2) + shift, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in defences.known() if name != "fltrust"])
@pytest.mark.parametrize("power", [-60, -10, 10, 60])
def test_updates_in_another_unit_give_the_estimate_in_that_unit(name: str, power: int) -> None:
    updates, factor, defence = gaussian(13, 20), np.float32(2.0**power), defences.make(name)

    assert np.array_equal(defence.estimate(updates * factor, 2), defence.estimate(updates, 2) * factor)


@pytest.mark.parametrize("name", defences.known())
def test_equal_updates_are_their_own_estimate(name: str) -> None:
    updates = np.tile(gaussian(1, 20), (11, 1))

    found = defences.make(name).estimate(updates, 2, updates[0])

    assert np.allclose(found, updates[0], rtol=1e-6)


@pytest.mark.parametrize("name", defences.known())
def test_the_number_of_threads_changes_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    updates, reference = gaussian(23, 150_001), gaussian(1, 150_001, 1)[0]
    found = set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(spread, "threads", lambda threads=threads: threads)
        found.add(defences.make(name).estimate(updates, 4, reference).tobytes())

    assert len(found) == 1


@pytest.mark.parametrize("name", defences.known())
def test_updates_are_neither_changed_nor_copied(name: str) -> None:
    updates, reference = gaussian(63, 100_000), gaussian(1, 100_000, 1)[0]
    updates.flags.writeable = False
    defence = defences.make(name)
    # Kernels are compiled by type, and an array that may not be written is
    # another type: what is measured must not be the compiler.
    small = gaussian(63, 100)
    small.flags.writeable = False
    defence.estimate(small, 15, reference[:100])

    tracemalloc.start()
    defence.estimate(updates, 15, reference)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < updates.nbytes / 4


@pytest.mark.parametrize("name", defences.known())
@pytest.mark.parametrize("malicious", [0, 1, 7])
def test_too_few_updates_are_refused(name: str, malicious: int) -> None:
    defence = defences.make(name)
    needed, reference = defence.fewest(malicious), np.ones(3, np.float32)
    updates = np.ones((needed, 3), np.float32)

    assert np.allclose(defence.estimate(updates, malicious, reference), 1)
    with pytest.raises(InputError, match=f"{name} needs {needed} finite updates to stand {malicious} malicious"):
        defence.estimate(updates[1:], malicious, reference)
    updates[0] = np.nan
    with pytest.raises(InputError, match=f"got {needed - 1}"):
        defence.estimate(updates, malicious, reference)


@pytest.mark.parametrize(
    ("name", "needed"),
    [("median", 9), ("trimmed-mean", 9), ("krum", 11), ("multi-krum", 11), ("bulyan", 19), ("geometric-median", 9)],
)
def test_how_many_updates_stand_four_malicious_ones(name: str, needed: int) -> None:
    assert defences.make(name).fewest(4) == needed


def test_the_median_of_norms_needs_a_majority_and_a_given_bound_does_not() -> None:
    assert (defences.make("norm-bound").fewest(4), defences.make("norm-bound", bound=1.0).fewest(4)) == (9, 5)


def test_what_is_no_matrix_of_float32_is_refused() -> None:
    with pytest.raises(InputError, match="float32 matrix, got float64"):
        defences.make("median").estimate(np.ones((3, 3)), 0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="row by row"):
        defences.make("median").estimate(np.ones((3, 4), np.float32).T, 0)
    with pytest.raises(InputError, match="malicious must be at least 0, got -1"):
        defences.make("median").estimate(np.ones((3, 4), np.float32), -1)
