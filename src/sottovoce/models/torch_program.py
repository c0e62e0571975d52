"""Say what a trainer needs of a model in torch: logits, gradients and plain steps, over flat buffers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sottovoce.core.vectors import Layout
from sottovoce.models.trainer import Shard

__all__ = ["Program", "loss_of", "split"]


class Program(Protocol):
    """A model in torch whose tensors are views of one flat buffer, and their gradients of another.

    Whoever holds the buffers loads parameters, and reads what was computed, in one operation.
    """

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return the logits of some records, dropout off: (records, classes), or (records,) for a binary model."""
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


def loss_of(logits: Tensor, y: NDArray[Any], binary: bool, weights: NDArray[np.float32] | None = None) -> Tensor:
    """Return the mean cross entropy of a batch, each record times its weight."""
    kind = np.float32 if binary else np.int64
    wanted = torch.from_numpy(np.asarray(y, kind)).to(logits.device)
    loss = functional.binary_cross_entropy_with_logits if binary else functional.cross_entropy
    if weights is None:
        return loss(logits, wanted)
    return (loss(logits, wanted, reduction="none") * torch.from_numpy(weights).to(logits.device)).mean()
