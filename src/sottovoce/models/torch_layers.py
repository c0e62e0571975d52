"""Run a `Network`, whose layers are data, as a program in torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.errors import DataError
from sottovoce.models.network import Embedding, Linear, Network
from sottovoce.models.torch_forward import Sink, forward
from sottovoce.models.torch_program import loss_of, split
from sottovoce.models.trainer import Shard

__all__ = ["LayersProgram"]


class LayersProgram:
    """The program of a network of layers."""

    def __init__(self, network: Network, params: Tensor, gradient: Tensor) -> None:
        self._network = network
        self._device = params.device
        self._tokens = isinstance(network.layers[0], Embedding)
        self._tensors = split(network.layout, params)
        self._gradients = split(network.layout, gradient)
        # Dense kernels are no leaves: `forward` stores or applies their gradients itself.
        dense = {f"{index}.kernel" for index, layer in enumerate(network.layers) if isinstance(layer, Linear)}
        self._leaves = [self._tensors[name].requires_grad_() for name in self._tensors if name not in dense]
        self._leaf_gradients = [self._gradients[name] for name in self._tensors if name not in dense]

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return the logits of some records, dropout off."""
        with torch.no_grad():
            return forward(self._network, self._inputs(x), self._tensors)

    def differentiate(self, batch: Shard, rng: Generator | None = None) -> None:
        """Fill the gradient buffer; without an `rng` dropout is off."""
        loss = self._loss(batch, self._gradients, rng)
        torch._foreach_copy_(self._leaf_gradients, torch.autograd.grad(loss, self._leaves))

    def descend(self, batch: Shard, lr: float, rng: Generator) -> None:
        """Take a step of plain SGD on the parameter buffer."""
        gradients = torch.autograd.grad(self._loss(batch, lr, rng), self._leaves)
        with torch.no_grad():
            torch._foreach_add_(self._leaves, gradients, alpha=-lr)

    def drawing(self, rng: Generator) -> AbstractContextManager[None]:
        """Return a context that does nothing: each step gets the client's rng itself."""
        return nullcontext()

    def _loss(self, batch: Shard, sink: Sink, rng: Generator | None) -> Tensor:
        logits = forward(self._network, self._inputs(batch.x), self._tensors, sink, rng)
        return loss_of(logits, batch.y, self._network.binary, batch.weights)

    def _inputs(self, x: NDArray[Any]) -> Tensor:
        x = x.reshape(len(x), *self._network.input_shape)
        if not self._tokens:
            scaled = np.multiply(x, np.float32(self._network.input_scale), dtype=np.float32)
            return torch.from_numpy(scaled).to(self._device)
        embedding = self._network.layers[0]
        if isinstance(embedding, Embedding) and x.size and not 0 <= x.min() <= x.max() < embedding.vocabulary:
            raise DataError(f"token ids must be in [0, {embedding.vocabulary}), got {x.min()} to {x.max()}")
        return torch.from_numpy(x.astype(np.int64)).to(self._device)
