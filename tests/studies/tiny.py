"""Small experiments that inference attacks are tested on."""

from __future__ import annotations

from typing import Any

import numpy as np

from sottovoce.assembly.overrides import Given
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.provenance import Public
from sottovoce.data import Dataset, Property

NOBODY = Public("drawn from a seed")


def people(records: int = 600, shift: float = 2.0) -> Given:
    """Return records of two classes; the tall ones, a third, differ in features that the class does not depend on."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((records, 12)).astype(np.float32)
    y = (x[:, 0] + 0.3 * rng.standard_normal(records) > 0).astype(np.uint8)
    tall = (np.arange(records) % 3 == 0).astype(np.uint8)
    x[:, 6:] += shift * tall[:, None]
    known = {"tall": Property(tall, np.zeros(30, np.uint8))}
    return Given(Dataset("people", x, y, x[:30].copy(), y[:30].copy(), classes=2, test_from=NOBODY, properties=known))


def images(records: int = 64) -> Given:
    """Return 12 x 12 images of four classes: a bright square in a corner of its own, on a slope."""
    rng = np.random.default_rng(2)
    y = (np.arange(records) % 4).astype(np.uint8)
    x = np.zeros((records, 12, 12, 1), np.uint8)
    for place, label in enumerate(y):
        top, left = (1 + 5 * (label // 2), 1 + 5 * (label % 2))
        x[place] = (4 * np.add.outer(np.arange(12), rng.integers(1, 5) * np.arange(12)))[..., None]
        x[place, top : top + 5, left : left + 5] = rng.integers(180, 255)
    return Given(
        Dataset("squares", x, y, x[:16].copy(), y[:16].copy(), classes=4, input_scale=1 / 255, test_from=NOBODY)
    )


def tables(scheme: str = "fl-std", /, **more: dict[str, Any]) -> Experiment:
    """Return an experiment of two clients that always take part."""
    base: dict[str, dict[str, Any]] = {
        "experiment": {"name": "tiny", "rounds": 24},
        "data": {"clients": 2},
        "model": {"name": "mlp", "hidden": 8},
        "client": {"local_steps": 1, "batch_size": 16, "client_lr": 0.1},
        "cohort": {"sampling": "fixed", "sample_rate": 1},
        "scheme": {"name": scheme},
        "inference": {"property": "tall", "pairs": 3},
    }
    for name, table in more.items():
        base[name] = {**base.get(name, {}), **table}
    return parse(base)
