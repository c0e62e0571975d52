"""How much each client counts: by its records or like any other, and by which records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.core.errors import ConfigError
from sottovoce.core.streams import Streams
from sottovoce.data import balance, mean_balanced_size, partition
from sottovoce.runs.loop import run

WEIGHTED = ("fl-std", "fl-rnd", "fl-freq")  # thesis, Alg. 1, 5, 6
PLAIN = ("fl-cs", "fl-top", "fl-basic", "fl-bas-2", "fl-bas-3", "fl-bas-4", "fl-top-bis")  # Alg. 4, 7; no other boxes
UNEVEN = {"data": {"partition": "dirichlet"}, "experiment": {"rounds": 2}, "engine": {"workers": 1}}


def patients(path: Path, deaths: int = 40, others: int = 1160) -> Path:
    """Write a table in which one patient of thirty died."""
    rng = np.random.default_rng(3)
    y = rng.permutation(np.repeat([1, 0], [deaths, others]))
    x = (rng.random((len(y), 6)) + 0.3 * y[:, None]).astype(np.float32)
    np.savez(path, x_train=x, y_train=y, x_test=x[:200], y_test=y[:200])
    return path


def hospitals(path: Path, **tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    base: dict[str, dict[str, Any]] = {
        "data": {"source": str(patients(path)), "partition": "hospitals", "clients": 20},
        "client": {"balanced": True, "batch_size": "all"},
        "cohort": {"sample_rate": 1},
        "engine": {"workers": 1},
    }
    return base | tables


def model(path: Path) -> np.ndarray:
    with np.load(path / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files])


def test_balanced_clients_of_one_size_count_the_same_by_default(tmp_path: Path) -> None:
    """Each hospital has 60 patients and trains with 4 of them: a weight of 4 / 60 would all but stop training."""
    for weighting in ("auto", "equal"):
        tables = hospitals(tmp_path / "own.npz", aggregation={"weighting": weighting})
        summary = run(small(**tables), tmp_path / weighting)
        assert summary["weighting"] == ("records" if weighting == "auto" else "equal")

    assert np.array_equal(model(tmp_path / "auto"), model(tmp_path / "equal"))


def test_the_weights_of_balanced_clients_have_mean_one(tmp_path: Path) -> None:
    tables = hospitals(tmp_path / "own.npz")
    tables["data"] |= {"partition": "dirichlet", "concentration": 2.0}
    parts = gather(small(**tables))
    owners, labels = parts.partition, parts.dataset.y_train
    trained = [len(balance(labels[owners.records(k)], np.random.default_rng(k))) for k in range(20)]

    assert len(set(trained)) > 3
    assert parts.blueprint().mean_size == pytest.approx(np.mean(trained))


def test_many_balanced_clients_are_looked_at_in_part() -> None:
    labels = np.random.default_rng(1).integers(0, 2, 1000)
    many = partition("virtual", labels, 10**8, Streams(1))
    few = partition("virtual", labels, 3000, Streams(1))

    # Ten fair coins: 2 min(heads, tails) is 7.54 on average, with a standard deviation of 1.8; all heads keep ten.
    assert mean_balanced_size(many, labels) == pytest.approx(7.54, abs=0.2)
    assert mean_balanced_size(few, labels) == pytest.approx(7.54, abs=0.3)


@pytest.mark.parametrize("name", [*WEIGHTED, *PLAIN])
def test_clients_count_by_their_records_only_where_the_papers_box_does(name: str) -> None:
    parts = gather(small(**UNEVEN, scheme={"name": name}))
    asked = gather(small(**UNEVEN, scheme={"name": name}, aggregation={"weighting": "records"}))
    equal = gather(small(**UNEVEN, scheme={"name": name}, aggregation={"weighting": "equal"}))

    assert parts.weighted == (name in WEIGHTED)
    assert (parts.blueprint().mean_size is None) == (name in PLAIN)
    assert asked.weighted
    assert not equal.weighted


def test_fl_top_takes_the_plain_mean_unless_records_are_asked_for(tmp_path: Path) -> None:
    for weighting in ("auto", "equal", "records"):
        run(small(**UNEVEN, scheme={"name": "fl-top"}, aggregation={"weighting": weighting}), tmp_path / weighting)

    assert np.array_equal(model(tmp_path / "auto"), model(tmp_path / "equal"))
    assert not np.array_equal(model(tmp_path / "auto"), model(tmp_path / "records"))


@pytest.mark.parametrize("name", ["fl-sign", "sign-sgd"])
def test_signs_cannot_be_weighted(name: str) -> None:
    tables = {"scheme": {"name": name}, "aggregation": {"weighting": "records"}, "cohort": {"sample_rate": 1}}

    with pytest.raises(ConfigError, match=f"{name} counts every client the same"):
        small(**tables)
