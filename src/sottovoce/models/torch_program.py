"""Say what a trainer needs of a model in torch: logits, gradients and plain steps, over flat buffers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.vectors import Layout
from sottovoce.models.task import LearningTask
from sottovoce.models.trainer import Shard


class Program(Protocol):
    """A model in torch whose tensors are views of one flat buffer, and their gradients of another.

    Whoever holds the buffers loads parameters, and reads what was computed, in one operation.
    """

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return the scores of some records, dropout off: (records, outputs), or (records,) where there is one."""
        ...

    def differentiate(self, batch: Shard, rng: Generator | None = None) -> None:
        """Fill the gradient buffer; with an `rng` as in training, without one as in evaluation."""
        ...

    def descend(self, batch: Shard, lr: float, rng: Generator) -> None:
        """Take a step of plain SGD on the parameter buffer."""
        ...

    def drawing(self, rng: Generator) -> AbstractContextManager[None]:
        """Return a context in which one client trains: what the model draws by itself comes from this client's rng."""
        ...


def split(layout: Layout, flat: Tensor) -> dict[str, Tensor]:
    """Return each tensor as a view of a flat buffer."""
    # `.data` gives each view its own version counter: one may change in a backward pass that still reads others.
    return {name: flat[layout.span(name)].view(shape).data for name, shape in layout.tensors}


def loss_of(task: LearningTask, scores: Tensor, y: NDArray[Any], weights: NDArray[np.float32] | None = None) -> Tensor:
    """Return the mean loss of a batch, each record times its weight."""
    wanted = torch.from_numpy(task.targets(y)).to(scores.device)
    counted = None if weights is None else torch.from_numpy(weights).to(scores.device)
    return task.torch_loss(scores, wanted, counted)
