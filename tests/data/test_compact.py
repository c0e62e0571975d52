"""Features of long tables are held small, and read as if they were not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.config.experiment import parse
from sottovoce.data import preprocessing
from sottovoce.data.compact import CompactFeatures, row_blocks, stretched
from sottovoce.data.dataset import Dataset
from sottovoce.data.table import table_dataset
from sottovoce.federation.engines.shared_memory import publish, view
from sottovoce.models import LocalTraining, Shard, make_trainer, network
from sottovoce.runs.loop import run

_SCHEMA = {
    "label": {"classes": ["no", "yes"]},
    "columns": {
        "age": {"kind": "number", "minimum": 0, "maximum": 100, "missing": "category"},
        "bmi": {"kind": "number", "minimum": 10, "maximum": 60},
        "dose": {"kind": "number", "scale": "octaves", "missing": "category"},
        "ward": {"kind": "category", "categories": ["a", "b", "c"], "missing": "category"},
        "city": {"kind": "category", "buckets": 16},
        "name": {"kind": "category", "buckets": 300, "missing": "category"},
    },
}


def _columns(rng: np.random.Generator, count: int) -> dict[str, list[Any]]:
    def some(values: list[Any]) -> list[Any]:
        return [values[place] for place in rng.integers(len(values), size=count)]

    return {
        "age": some([0, 0.0, 17, 55.5, 99, None]),
        "bmi": some([10, 22.5, 60, None]),
        "dose": some([0, 3, 0.25, -7, None, 1e9]),
        "ward": some(["a", "b", "c", "d", None]),
        "city": some(["x", "y", "z", None]),
        "name": some(["Ann", "Bo", "Cy", None]),
        "died": some(["no", "yes"]),
    }


def _read(columns: dict[str, list[Any]], *, compact: bool) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        if compact:
            patch.setattr(preprocessing, "LARGE", 0)
            patch.setattr(preprocessing, "_AT_ONCE", 900)  # several blocks, of other sizes in every column
        return table_dataset(columns, label="died", schema=_SCHEMA)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_compact_features_are_those_of_the_wide_table_bit_for_bit(seed: int) -> None:
    columns = _columns(np.random.default_rng(seed), 60)

    wide, held = _read(columns, compact=False), _read(columns, compact=True)

    assert isinstance(held.x_train, CompactFeatures)
    assert isinstance(wide.x_train, np.ndarray)
    np.testing.assert_array_equal(np.asarray(held.x_train), wide.x_train)
    np.testing.assert_array_equal(np.asarray(held.centred().x_test), wide.centred().x_test)
    assert held.shape == wide.shape


@pytest.mark.parametrize(
    "rows", [slice(3, 9), np.array([5, 1, 1]), np.arange(40) % 3 == 0, 7, [2], slice(None, None, -1), (slice(2, 5), 1)]
)
def test_rows_are_asked_for_as_of_an_array(rows: Any) -> None:
    held = _read(_columns(np.random.default_rng(5), 60), compact=True).x_train.only(slice(0, 40))

    np.testing.assert_array_equal(held[rows], np.asarray(held)[rows])


def test_compact_features_need_a_fraction_of_the_memory() -> None:
    held = _read(_columns(np.random.default_rng(1), 2000), compact=True).x_train

    assert held.nbytes < 4 * held.size / 20


def test_workers_share_compact_features_as_they_are() -> None:
    held = _read(_columns(np.random.default_rng(2), 80), compact=True).x_train

    descriptor, places = publish({"x_train": held, "y": np.arange(3)})
    seen = view(descriptor, places)

    assert isinstance(seen["x_train"], CompactFeatures)
    np.testing.assert_array_equal(np.asarray(seen["x_train"]), np.asarray(held))
    np.testing.assert_array_equal(seen["y"], np.arange(3))


def test_a_client_widens_no_more_rows_than_its_batches_have(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _read(_columns(np.random.default_rng(3), 300), compact=True).x_train
    model = network("logistic", held.shape[1:], 2)
    trainer = make_trainer(model, LocalTraining(local_steps=2, batch_size=4), "fast")
    widened = []
    whole = CompactFeatures._widened
    monkeypatch.setattr(CompactFeatures, "_widened", lambda self: widened.append(len(self)) or whole(self))
    y = np.zeros(len(held), np.int64)

    list(trainer.updates(np.zeros(model.dim, np.float32), [Shard(held, y)], [np.random.default_rng(1)]))

    assert widened
    assert max(widened) <= 8


def test_blocks_of_rows_are_all_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _read(_columns(np.random.default_rng(3), 80), compact=True).x_train
    monkeypatch.setattr("sottovoce.data.compact.AT_ONCE", 7)

    np.testing.assert_array_equal(np.concatenate(list(row_blocks(held))), np.asarray(held))
    np.testing.assert_array_equal(np.asarray(stretched(held, [2])), stretched(np.asarray(held), [2]))


RECORDS = {
    "privacy": {"unit": "record", "epsilon_server": 4, "delta": 1e-4, "min_units": 20},
    "aggregation": {"secure": "ideal"},
}


@pytest.mark.parametrize("more", [{}, RECORDS, {"client": {"trainer": "torch"}}, {"client": {"batch_size": "all"}}])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_on_compact_features_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, more: dict[str, Any]
) -> None:
    files = Path(__file__).parents[1] / "files"
    experiment = parse(
        {
            "experiment": {"rounds": 2, "evaluation": "none"},
            "data": {
                "source": str(files / "hospital_*.csv"),
                "label": "died",
                "schema": str(files / "hospitals.toml"),
                "centred": True,
            },
            "model": {"name": "logistic"},
            "engine": {"workers": workers},
            **more,
        }
    )
    run(experiment, tmp_path / "wide")
    monkeypatch.setattr(preprocessing, "LARGE", 0)
    run(experiment, tmp_path / "compact")

    models = [(tmp_path / name / "model.npz").read_bytes() for name in ("wide", "compact")]

    assert models[0] == models[1]
