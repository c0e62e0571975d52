"""A data set that has only a shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sottovoce.data import load, outline


def test_an_outline_has_the_shape_of_the_data_set() -> None:
    real, known = load("digits"), outline("digits")

    assert known is not None
    assert (known.shape, known.classes, known.records, known.input_scale) == (
        (real.shape, real.classes, real.records, real.input_scale)
    )
    assert known.x_train.dtype == real.x_train.dtype


def test_an_outline_takes_no_memory_and_has_every_class() -> None:
    known = outline("fashion-mnist")

    assert known is not None and known.x_train.shape == (60_000, 28, 28, 1)
    assert known.x_train.strides == (0, 0, 0, 0)
    assert set(np.unique(known.y_train)) == set(range(10))


def test_tables_and_files_have_no_outline(tmp_path: Path) -> None:
    assert outline("adult") is None
    assert outline(str(tmp_path / "mine.npz")) is None
