"""Records of sites as units on Ray: the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.config.experiment import parse
from sottovoce.runs.loop import run

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

    with np.load(tmp_path / "here" / "model.npz") as here, np.load(tmp_path / "ray" / "model.npz") as there:
        assert here.files and all(np.array_equal(here[name], there[name]) for name in here.files)
