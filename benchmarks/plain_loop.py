"""The plain PyTorch loop that everything is measured against: one process, one thread, nn.Module and optim.SGD."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["PlainLoop"]


class PlainLoop:
    """Train the papers' CNN on one client after the other and average, as anyone would write it."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.uint8], lr: float = 0.215, steps: int = 5) -> None:
        torch.set_num_threads(1)
        self._images = torch.from_numpy(images.astype(np.float32)).div(255).reshape(-1, 1, 28, 28)
        self._labels = torch.from_numpy(labels.astype(np.int64))
        self._lr, self._steps = lr, steps
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )
        self._loss = nn.CrossEntropyLoss()

    def round(self, shards: list[NDArray[np.int64]]) -> None:
        """Play one round on the given shards."""
        start = {name: value.clone() for name, value in self.model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for shard in shards:
            self.model.load_state_dict(start)
            optimiser = torch.optim.SGD(self.model.parameters(), lr=self._lr)
            x, y = self._images[shard], self._labels[shard]
            for _ in range(self._steps):
                batch = torch.randperm(len(y))[:10]
                optimiser.zero_grad()
                self._loss(self.model(x[batch]), y[batch]).backward()
                optimiser.step()
            for name, value in self.model.state_dict().items():
                total[name] += value - start[name]
        self.model.load_state_dict({name: start[name] + total[name] / len(shards) for name in start})

    @torch.no_grad()
    def evaluate(self, images: NDArray[np.uint8]) -> None:
        """Score images in batches of 100."""
        x = torch.from_numpy(images.astype(np.float32)).div(255).reshape(-1, 1, 28, 28)
        for start in range(0, len(x), 100):
            self.model(x[start : start + 100])
