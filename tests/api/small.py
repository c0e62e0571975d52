"""A federation that plays in a second, and records to play with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import sottovoce as sv

WORDS = np.array(["maligne", "bénigne", "unclear"])


def blobs(records: int = 90, features: int = 4, classes: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return records of well separated classes."""
    rng = np.random.default_rng(7)
    y = np.arange(records) % classes
    return 4 * np.eye(classes, features)[y] + rng.normal(size=(records, features)), y


def simulate(data: Any, model: Any = "logistic", **keys: Any) -> sv.Result:
    """Simulate little, with defaults that any call may change."""
    keys = {"clients": 6, "rounds": 3, "sample_rate": 1, "workers": 1, "client_lr": 0.5, **keys}
    return sv.simulate(data, model, **keys)
