from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sottovoce.config.tables import DataTable
from sottovoce.core.errors import DataError, InputError
from sottovoce.data import Dataset, outline
from sottovoce.data.placeholder import records_elsewhere
from sottovoce.deployment.node.records import read_own_records

IMAGES = outline("digits")
assert IMAGES is not None
ROWS = records_elsewhere((2,), 2, 1.0)


def saved(folder: Path, x: object, y: object) -> str:
    np.savez(folder / "mine.npz", x=np.asarray(x), y=np.asarray(y))
    return str(folder / "mine.npz")


def read(source: str, shape: Dataset = IMAGES, label: str | None = None, **table: object) -> tuple[object, object]:
    shard = read_own_records(source, label, DataTable(**table), shape)  # type: ignore[arg-type]
    return shard.x, shard.y


def test_images_are_read_as_the_run_has_them(tmp_path: Path) -> None:
    x, y = read(saved(tmp_path, np.ones((3, 8, 8), np.uint8), np.array([0, 9, 4], np.uint8)))

    assert x.shape == (3, 8, 8, 1) and x.dtype == np.uint8  # type: ignore[attr-defined]
    assert y.tolist() == [0, 9, 4] and y.dtype == np.int64  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.ones((3, 9, 8, 1), np.uint8), [0, 1, 2], "a record has shape [9, 8, 1], the run's have [8, 8, 1]"),
        (np.ones((3, 8, 8, 1), np.uint8), [0, 1, 10], "labels must be whole numbers in [0, 9]"),
        (np.ones((3, 8, 8, 1), np.uint8), [0.0, 1.0, 2.0], "labels must be whole numbers"),
        (np.ones((3, 8, 8, 1), np.uint8), ["a", "b", "c"], "labels must be whole numbers in [0, 9], got <U1"),
        (np.ones((3, 8, 8, 1), np.uint8), [0, 1], "each record needs one label"),
        (np.ones((0, 8, 8, 1), np.uint8), np.zeros(0, np.int64), "there must be some"),
        (np.ones((3, 8, 8, 1), np.float64), [0, 1, 2], "whole numbers of type uint8"),
        (np.full((3, 8, 8, 1), 300), [0, 1, 2], "whole numbers of type uint8"),
    ],
)
def test_records_of_another_run_are_refused(tmp_path: Path, x: object, y: object, reason: str) -> None:
    with pytest.raises(DataError, match=re.escape(reason)) as refused:
        read(saved(tmp_path, x, y))

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_features_must_be_finite_in_the_runs_own_type(tmp_path: Path, value: float) -> None:
    with pytest.raises(DataError, match="not finite"):
        read(saved(tmp_path, [[0.0, value]], [1]), ROWS)


def test_rows_of_different_length_are_no_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ragged_records.py").write_text("def mine():\n    return [[1, 2], [3]], [0, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(DataError, match="equally long"):
        read("ragged_records:mine", ROWS)


SCHEMA = """
[label]
classes = ["no", "yes"]

[columns]
age = {kind = "number", minimum = 0, maximum = 100, missing = "refuse"}
weight = {kind = "number", minimum = 0, maximum = 200, missing = "refuse"}
"""


def test_a_table_is_read_by_the_schema_and_all_of_it_is_trained_with(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    lines = [f"{age},{age + 40},{'yes' if age % 2 else 'no'}" for age in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,weight,sick", *lines]) + "\n")

    x, y = read(str(tmp_path / "mine.csv"), ROWS, "sick", schema=str(tmp_path / "schema.toml"))

    assert x.shape == (20, 2) and sorted(y.tolist()) == [0] * 10 + [1] * 10  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="read differently on every node"):
        read(str(tmp_path / "mine.csv"), ROWS, "sick")
    with pytest.raises(InputError, match="--label"):
        read(str(tmp_path / "mine.csv"), ROWS)


def test_a_function_can_give_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import numpy as np\ndef mine(): return np.ones((2, 2)), np.array([0, 1])\ndef one(): return np.ones(3)\n"
    (tmp_path / "given_here.py").write_text(code)

    x, _ = read("given_here:mine", ROWS)

    assert x.shape == (2, 2) and x.dtype == np.float32  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="two arrays"):
        read("given_here:one", ROWS)
    with pytest.raises(InputError, match="nobody"):
        read("nobody:mine", ROWS)
    with pytest.raises(InputError, match="theirs"):
        read("given_here:theirs", ROWS)


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read(str(tmp_path / "nothing.npz"))
    with pytest.raises(DataError, match="npz file, a csv file or module:function"):
        read(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="--label is of tables"):
        read(saved(tmp_path, np.ones((1, 8, 8), np.uint8), [1]), label="sick")
