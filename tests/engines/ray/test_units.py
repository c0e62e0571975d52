"""Records and persons of sites as units on Ray: the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.config.experiment import parse
from sottovoce.runs.loop import run
from tests.deployment.test_units import hospitals, visits

TABLES: dict[str, Any] = {
    "experiment": {"name": "units", "seed": 4, "rounds": 2, "evaluation": "none"},
    "data": {"source": "digits", "clients": 4},
    "model": {"name": "logistic"},
    "privacy": {"unit": "record", "unit_rate": 0.5, "epsilon_server": 8.0, "delta": 1e-5},
    "aggregation": {"secure": "real", "threshold": 3},
}


def test_sites_on_ray_train_the_model_of_one_process(tmp_path: Path) -> None:
    run(parse({**TABLES, "engine": {"workers": 1}}), tmp_path / "here")
    run(parse({**TABLES, "engine": {"name": "ray", "workers": 2}}), tmp_path / "ray")

    assert same_model(tmp_path)


def test_persons_on_ray_train_and_measure_as_in_one_process(tmp_path: Path) -> None:
    """Rows of a person are one unit, and a fifth of the persons is measured on with noise."""
    visits(tmp_path)
    tables = hospitals(
        experiment={"rounds": 2, "evaluate_every": 2},
        data={"folder": str(tmp_path), "person": "patient"},
        privacy={"unit": "person", "units": [40] * 5, "min_units": 40, "max_rows": 2, "delta": 1e-4},
        aggregation={"threshold": 4},
    ).tables()
    tables["experiment"]["evaluation"], tables["client"]["held_out"] = "federated", 0.2

    here = run(parse({**tables, "engine": {"workers": 1}}), tmp_path / "here")
    there = run(parse({**tables, "engine": {"name": "ray", "workers": 2}}), tmp_path / "ray")

    assert same_model(tmp_path)
    assert here["units"] == there["units"] == 160
    assert here["measurements"] == there["measurements"]


def same_model(folder: Path) -> bool:
    with np.load(folder / "here" / "model.npz") as here, np.load(folder / "ray" / "model.npz") as there:
        return bool(here.files) and all(np.array_equal(here[name], there[name]) for name in here.files)
