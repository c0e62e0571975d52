"""Measure torch modules of one's own that train in C, beside torch and beside the same network given as layers."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
import torch
from numpy.random import default_rng
from torch import nn

from sottovoce.models import LocalTraining, Model, Shard, make_trainer
from sottovoce.models.wrap import wrap_module

TRAINING = LocalTraining(local_steps=5, batch_size=10, client_lr=0.1)
TURNS = 5


def mlp() -> nn.Module:
    """Return a network of two dense layers."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    """Return a network of two convolutions."""
    first = (nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32 * 49, 10))


def client(model: Model, kind: str, clients: int) -> Callable[[], float]:
    """Return a function that trains some clients and tells the CPU microseconds of one."""
    rng, shape = default_rng(0), model.input_shape
    shards = [
        Shard(rng.random((10, *shape)).astype(np.float32), rng.integers(0, model.classes, 10)) for _ in range(clients)
    ]
    params, trainer = model.initialise(default_rng(0)), make_trainer(model, TRAINING, kind)  # type: ignore[arg-type]

    def timed() -> float:
        rngs = [default_rng(number) for number in range(clients)]
        began = process_time()
        for _ in trainer.updates(params, shards, rngs):
            pass
        return (process_time() - began) / clients * 1e6

    timed()
    return timed


def main() -> None:
    """Print CPU microseconds of a client, in turns, and ratios to torch with their spread."""
    torch.set_num_threads(1)
    cases = (
        ("MLP 64-32-10", mlp(), (64,), 10, 50),
        ("logistic regression, 170", nn.Linear(170, 1), (170,), 2, 50),
        ("CNN 16-32, 28 x 28", cnn(), (28, 28, 1), 10, 10),
    )
    print("| | torch us | compiled us | as layers us | compiled / torch (least to most) |\n|---|---|---|---|---|")
    for name, module, shape, classes, clients in cases:
        own = wrap_module(module, shape, classes)
        if own.compiled is None:
            raise SystemExit(f"{name} was not compiled; were the kernels built?")
        models = ((own, "torch"), (own, "auto"), (own.compiled.network, "fast"))
        who = [client(model, kind, clients) for model, kind in models]
        turns = np.array([[timed() for timed in who] for _ in range(TURNS)])
        ratios = turns[:, 1] / turns[:, 0]
        middle = [f"{median(column):,.0f}" for column in turns.T]
        print(f"| {name} | {' | '.join(middle)} | {median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f}) |")


if __name__ == "__main__":
    main()
