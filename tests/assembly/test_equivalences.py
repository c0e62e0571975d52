"""Schemes that keep everything are FL-STD: whole runs, uneven clients, through workers and wire."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.runs.loop import run

UNEVEN = {"data": {"partition": "dirichlet"}, "experiment": {"rounds": 3}}


def model(path: Path) -> np.ndarray:
    with np.load(path / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files])


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    path = tmp_path_factory.mktemp("standard") / "run"
    run(small(**UNEVEN, scheme={"name": "fl-std"}), path)
    return model(path)


@pytest.mark.parametrize(("name", "weighting"), [("fl-top", "records"), ("fl-rnd", "auto")])
def test_a_run_that_keeps_every_coordinate_is_fl_std_bit_for_bit(
    tmp_path: Path, standard: np.ndarray, name: str, weighting: str
) -> None:
    """The box of FL-TOP has no weights, so uneven clients must be told to count by their records."""
    aggregation = {"weighting": weighting}
    run(small(**UNEVEN, scheme={"name": name, "ratio": 1}, aggregation=aggregation), tmp_path / "run")

    assert np.array_equal(model(tmp_path / "run"), standard)


def test_a_run_that_keeps_every_frequency_is_fl_std_but_for_rounding(tmp_path: Path, standard: np.ndarray) -> None:
    run(small(**UNEVEN, scheme={"name": "fl-freq", "ratio": 1}), tmp_path / "run")

    assert np.max(np.abs(model(tmp_path / "run") - standard)) < 1e-5
