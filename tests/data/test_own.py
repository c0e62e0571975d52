from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import DataError
from sottovoce.data import is_file, load, locate


def write(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "x_train": np.zeros((6, 3), np.float32),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.zeros((2, 3), np.float32),
        "y_test": np.array([0, 1]),
    } | changes
    np.savez_compressed(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_a_users_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", ids=np.arange(6))

    found = load(str(path))

    assert (found.name, found.classes, found.input_scale, found.shape) == ("mine", 3, 1.0, (3,))
    assert found.ids is not None
    assert load("mine.npz", tmp_path).records == 6
    assert locate("mine.npz", tmp_path) == path
    assert is_file("mine.npz")
    assert not is_file("mnist")


@pytest.mark.parametrize(
    ("x", "shape", "scale"),
    [
        (np.zeros((6, 4, 5), np.uint8), (4, 5, 1), 1 / 255),
        (np.zeros((6, 4, 5, 3), np.uint8), (4, 5, 3), 1 / 255),
        (np.zeros((6, 9), np.uint16), (9,), 1.0),
        (np.zeros((6, 9), np.float64), (9,), 1.0),
    ],
)
def test_the_type_of_the_array_says_what_it_holds(tmp_path: Path, x: np.ndarray, shape: tuple, scale: float) -> None:  # type: ignore[type-arg]
    found = load(str(write(tmp_path / "mine.npz", x_train=x, x_test=x[:2])))

    assert found.shape == shape
    assert found.input_scale == scale
    assert found.x_train.dtype == (np.float32 if x.dtype == np.float64 else x.dtype)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "has no array y_test; it needs x_train, y_train, x_test, y_test"),
        ({"y_train": np.zeros(5, np.int64)}, "x_train has 6 records and y_train 5"),
        ({"x_train": np.full((6, 3), np.nan, np.float32)}, "x_train has 18 of 18 values that are not finite"),
        ({"x_test": np.full((2, 3), 1e39)}, "x_test has 6 of 6 values that are not finite"),
        ({"x_train": np.zeros((6, 3), np.int64)}, "x_train is int64 of shape"),
        ({"x_train": np.float32(3)}, "x_train is float32 of shape"),
        ({"x_test": np.zeros((2, 4), np.float32)}, "a test record"),
        ({"x_test": np.zeros((2, 3), np.uint16)}, "x_train has type float32, x_test uint16"),
        ({"y_train": np.zeros(6)}, "y_train must be integers"),
        ({"y_train": np.zeros((6, 2), np.int64)}, "y_train must be integers, one a record"),
        ({"y_train": np.full(6, -1)}, r"they must lie in \[0, 1\]"),
        (
            {"y_train": np.array([0, 1, 2, 0, 1, 2_000_000])},
            "labels must be class numbers from 0 with few gaps, got 4 different labels up to 2000000, "
            r"which would make 2000001 classes; number them with np\.unique",
        ),
        ({"y_test": np.array([0, 2**62])}, "labels must be class numbers"),
        ({"ids": np.arange(3)}, "3 ids for 6 train records"),
        ({"x_test": np.zeros((0, 3), np.float32), "y_test": np.zeros(0, np.int64)}, "must agree and not be 0"),
    ],
)
def test_what_is_wrong_with_a_users_file_is_said_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "mine.npz", **changes)

    with pytest.raises(DataError, match=message) as caught:
        load(str(path))

    assert "mine" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("labels", [[1, 2, 3, 1, 2, 3], [0, 2, 4, 0, 2, 4], [0, 0, 0, 1, 1, 1]])
def test_labels_with_few_gaps_are_class_numbers(tmp_path: Path, labels: list[int]) -> None:
    found = load(str(write(tmp_path / "mine.npz", y_train=np.array(labels))))

    assert found.classes == 1 + max(labels)


def test_a_single_class_is_warned_of_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "mine.npz", y_train=np.ones(6, np.int64))

    assert load(str(path)).classes == 2
    assert caplog.messages == [f"{path}: every train record has label 1, so there is nothing to learn to tell apart"]


def test_a_file_that_is_missing_a_folder_or_foreign_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npz does not exist"):
        load(str(tmp_path / "absent.npz"))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(DataError, match="damaged or not what its name says"):
        load(str(tmp_path / "text.npz"))
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match=r"folder\.npz"):
        load(str(tmp_path / "folder.npz"))
