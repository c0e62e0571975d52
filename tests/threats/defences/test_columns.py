from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.threats.defences.columns import middle_mean, network

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33, 100, 130])
def test_the_network_sorts_all_columns_of_zeros_and_ones(count: int) -> None:
    """What sorts every column of zeros and ones sorts everything; of long columns we try many and all thresholds."""
    if count <= 12:
        columns = (np.arange(1 << count) >> np.arange(count)[:, None]) & 1
    else:
        columns = (np.random.default_rng(count).random((count, 4000)) < np.linspace(0, 1, 4000)).astype(np.int64)
    for lower, upper in network(count, 0, count):
        columns[[lower, upper]] = np.sort(columns[[lower, upper]], axis=0)

    assert np.all(np.diff(columns, axis=0) >= 0)


def test_a_median_needs_fewer_comparators_than_a_sort() -> None:
    assert len(network(100, 49, 51)) < len(network(100, 20, 80)) < len(network(100, 0, 100))


@given(st.data())
def test_sorted_values_are_those_of_numpy_for_any_finite_floats(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 5))
    updates = data.draw(arrays(np.float32, (rows, columns), elements=finite))
    place = data.draw(st.integers(0, rows - 1))

    found = middle_mean(updates, np.arange(rows), place, place + 1)

    assert np.array_equal(found, np.sort(updates, axis=0)[place])


def test_rows_that_are_not_named_are_not_looked_at() -> None:
    updates = np.arange(30, dtype=np.float32).reshape(10, 3)

    found = middle_mean(updates, np.array([1, 4, 9]), 1, 2)

    assert np.array_equal(found, updates[4])


def test_the_order_of_rows_does_not_matter_even_to_the_sign_of_zero() -> None:
    updates = np.array([[0.0], [-0.0], [1.0], [-0.0], [0.0]], np.float32)
    rows = np.arange(5)

    found = {middle_mean(updates[order], rows, 2, 3).tobytes() for order in ([0, 1, 2, 3, 4], [1, 3, 2, 0, 4])}

    assert len(found) == 1
