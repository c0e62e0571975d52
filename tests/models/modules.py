"""Small torch modules for the tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Residual", "Tied", "Twice", "Viewing", "cnn", "resnet"]


def cnn(classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), *(nn.Flatten(), nn.Linear(36, classes))
    )


class Residual(nn.Module):
    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wider, 3, padding=1, bias=False),
            *(nn.GroupNorm(4, wider), nn.ReLU(), nn.Conv2d(wider, wider, 3, padding=1, bias=False)),
            nn.GroupNorm(4, wider),
        )
        self.short = nn.Conv2d(channels, wider, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet() -> nn.Sequential:
    return nn.Sequential(
        *(Residual(1, 8), nn.MaxPool2d(2), Residual(8, 16)), *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    )


class Viewing(nn.Module):
    """The way of many tutorials: `view` wants contiguous memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(168, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.conv(x)).view(-1, 168))
        return out


class Tied(nn.Module):
    """One parameter under two names, looked up and multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(300, 256), nn.Linear(256, 300, bias=False)
        self.last.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.words(x).sum(1)))
        return out


class Twice(nn.Module):
    """A large dense layer that is called twice, and whose weight is also read directly."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dense = nn.Linear(5, 256), nn.Linear(256, 256)
        self.unused, self.last = nn.Linear(2, 2), nn.Linear(256, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.dense(torch.tanh(self.dense(torch.tanh(self.first(x))))))
        out: Tensor = self.last(x) + 0.1 * self.dense.weight.square().mean()
        return out
