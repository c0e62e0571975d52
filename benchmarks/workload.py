"""Describe the reference workload W.

W: Fashion-MNIST, the 1,663,370-parameter CNN, 6000 clients with 10 images, 100 a round, 5 SGD steps of batch 10.
Without Fashion-MNIST at hand, random images of the same size stand in; the work is the same but for the zeros.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.assembly.parts import Parts, gather
from sottovoce.config.experiment import parse
from sottovoce.core.errors import DataError
from sottovoce.data import load

__all__ = ["W", "source_of_w", "workload"]


class W:
    """Name the sizes of the workload."""

    clients: Final = 6000
    cohort: Final = 100
    flop: Final = 361.9e9  # of a round, dense


def workload(source: str, **changes: dict[str, Any]) -> Parts:
    """Return W with changed tables."""
    tables: dict[str, dict[str, Any]] = {
        "data": {"source": source, "clients": W.clients},
        "model": {"name": "cnn"},
        "client": {"local_steps": 5, "batch_size": 10, "client_lr": 0.215},
        "cohort": {"sampling": "fixed", "sample_rate": f"{W.cohort}/{W.clients}"},
        "scheme": {"name": "fl-std"},
    }
    for name, table in changes.items():
        tables[name] = {**tables.get(name, {}), **table}
    return gather(parse(tables))


def source_of_w(folder: Path) -> str:
    """Return the name of Fashion-MNIST, or the path of random images of its size."""
    try:
        load("fashion-mnist")
    except DataError:
        rng = np.random.default_rng(0)
        path = folder / "random.npz"
        x = rng.integers(0, 256, (60000, 28, 28, 1), np.uint8)
        y = rng.integers(0, 10, 60000)
        np.savez(path, x_train=x, y_train=y, x_test=x[:10000], y_test=y[:10000])
        return str(path)
    return "fashion-mnist"
