from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import DataError, InputError
from sottovoce.data import Dataset, Property


def small(records: int = 20, **changes: Any) -> Dataset:
    fields: dict[str, Any] = {
        "name": "small",
        "x_train": np.arange(records, dtype=np.float32)[:, None],
        "y_train": np.arange(records) % 2,
        "x_test": np.zeros((3, 1), np.float32),
        "y_test": np.zeros(3, np.uint8),
        "classes": 2,
        "ids": np.arange(records),
    }
    return Dataset(**fields | changes)


@given(records=st.integers(2, 60), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_split_loses_no_record_and_repeats_none(records: int, fraction: float, seed: int) -> None:
    count = min(records - 1, max(1, round(fraction * records)))

    rest, aside = small(records).split(count, np.random.default_rng(seed))

    assert aside.records == count
    both = np.concatenate([rest.x_train, aside.x_train]).ravel()
    assert sorted(both) == list(range(records))
    assert rest.ids is not None
    assert rest.ids.tolist() == rest.x_train.ravel().tolist()


def test_split_depends_on_the_generator_alone() -> None:
    first, second = (small().split(0.25, np.random.default_rng(5))[1] for _ in range(2))

    assert first.records == 5
    assert first.x_train.tolist() == second.x_train.tolist()


def test_records_keep_their_properties_when_they_are_split() -> None:
    known = Property(np.arange(20, dtype=np.uint8) % 3, np.ones(3, np.uint8))

    for part in small(properties={"thirds": known}).split(0.3, np.random.default_rng(1)):
        assert part.properties["thirds"].train.tolist() == (part.x_train.ravel() % 3).tolist()
        assert part.properties["thirds"].test.tolist() == [1, 1, 1]


@pytest.mark.parametrize("amount", [0, 20, -1, 0.0, 1.0, float("nan")])
def test_split_leaves_records_on_both_sides_or_says_why_not(amount: float) -> None:
    with pytest.raises(InputError, match="set aside must be"):
        small().split(amount, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.zeros(19, np.int64)}, "20 records and labels of shape"),
        ({"y_train": np.full(20, 2)}, r"labels go from 2 to 2; they must lie in \[0, 1\]"),
        ({"y_train": np.zeros(20)}, "must be integer class numbers"),
        ({"x_test": np.zeros((3, 2), np.float32)}, "a train record has shape"),
        ({"x_test": np.zeros((0, 1), np.float32), "y_test": np.zeros(0, np.int64)}, "test has no records"),
        ({"ids": np.arange(3)}, "3 ids for 20 train records"),
        (
            {"properties": {"tall": Property(np.zeros(20, np.uint8), np.zeros(2, np.uint8))}},
            "'tall' is not told of each",
        ),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(**changes)
