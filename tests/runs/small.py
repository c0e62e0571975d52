"""Small experiments that tests share."""

from __future__ import annotations

from typing import Any

from sottovoce.config.experiment import Experiment, parse


def small(**tables: dict[str, Any]) -> Experiment:
    """Return a run on digits that takes a second: 20 clients, logistic regression, 6 rounds."""
    base: dict[str, dict[str, Any]] = {
        "experiment": {"name": "small", "rounds": 6, "evaluate_every": 2, "checkpoint_every": 2},
        "data": {"source": "digits", "clients": 20},
        "model": {"name": "logistic"},
        "client": {"local_steps": 2, "client_lr": 0.1},
        "cohort": {"sample_rate": "1/2"},
    }
    for name, table in tables.items():
        base[name] = {**base.get(name, {}), **table}
    return parse(base)
