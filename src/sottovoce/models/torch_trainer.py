"""Train any network with torch, on the CPU or a GPU, in one flat buffer of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.validate import one_of
from sottovoce.core.vectors import Vector
from sottovoce.models.network import Embedding, Linear, Network
from sottovoce.models.torch_forward import Sink, forward
from sottovoce.models.trainer import LocalTraining, Shard, batches

__all__ = ["TorchTrainer"]

_Step = Callable[[Shard, Generator], None]

_CHUNK: Final = 256  # records evaluated at once
_BETA1: Final = 0.9
_BETA2: Final = 0.999
_TINY: Final = 1e-8  # Adam's epsilon, which is not a privacy budget


class TorchTrainer:
    """Train clients one after the other, each from the same start with a fresh optimiser.

    The tensors of the network are views of one flat buffer, and so are their gradients: every optimiser is a few
    operations on flat vectors, and loading parameters or taking w_k - w is one.
    """

    def __init__(self, network: Network, training: LocalTraining, device: str = "cpu") -> None:
        one_of("device", device.split(":")[0], ("cpu", "cuda"))
        if device != "cpu" and not torch.cuda.is_available():
            raise InputError(f"device {device!r} is not there: torch {torch.__version__} sees no GPU; use 'cpu'")
        self.network = network
        self.training = training
        self._device = torch.device(device)
        self._tokens = isinstance(network.layers[0], Embedding)
        self._params = torch.zeros(network.dim, device=self._device)
        self._gradient = torch.zeros(network.dim, device=self._device)
        self._tensors = self._split(self._params)
        self._gradients = self._split(self._gradient)
        # Dense kernels are no leaves: `forward` stores or applies their gradients itself.
        dense = {f"{index}.kernel" for index, layer in enumerate(network.layers) if isinstance(layer, Linear)}
        self._leaves = [self._tensors[name].requires_grad_() for name in self._tensors if name not in dense]
        self._leaf_gradients = [self._gradients[name] for name in self._tensors if name not in dense]

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard, in order; coordinates outside `trainable` never move."""
        start = self._vector(params)
        moving = None if trainable is None else self._indices(trainable)
        for shard, rng in zip(shards, rngs, strict=True):
            self._params.copy_(start)
            step = self._optimiser()
            for batch in batches(self._count(shard), self.training, rng):
                step(Shard(shard.x[batch], shard.y[batch]), rng)
                if moving is not None:
                    # Put the others back: the same as a masked gradient, because every optimiser works coordinate by
                    # coordinate, but cheaper, and an infinite gradient cannot leak (0 * inf would be NaN).
                    moved = self._params.index_select(0, moving)
                    self._params.copy_(start).index_copy_(0, moving, moved)
            yield self._params.sub(start).cpu().numpy()

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard, dropout off."""
        self._params.copy_(self._vector(params))
        records = self._count(shard)
        total = torch.zeros_like(self._gradient)
        for chunk in _chunks(records):
            self._differentiate(Shard(shard.x[chunk], shard.y[chunk]))
            total.add_(self._gradient, alpha=len(shard.y[chunk]) / records)
        return np.asarray(total.cpu().numpy())

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each record: (records, classes), or (records,) for a binary network."""
        self._params.copy_(self._vector(params))
        shape = (len(x),) if self.network.binary else (len(x), self.network.classes)
        logits = np.empty(shape, np.float32)
        with torch.no_grad():
            for chunk in _chunks(len(x)):
                logits[chunk] = forward(self.network, self._inputs(x[chunk]), self._tensors).cpu().numpy()
        return logits

    def _optimiser(self) -> _Step:
        """Return a function that trains on one batch, with the state of a fresh optimiser inside."""
        if self.training.optimizer == "adam":
            return self._adam()
        return self._momentum() if self.training.momentum else self._plain_step

    def _plain_step(self, batch: Shard, rng: Generator) -> None:
        lr = float(self.training.client_lr)
        gradients = torch.autograd.grad(self._loss(batch, lr, rng), self._leaves)
        with torch.no_grad():
            torch._foreach_add_(self._leaves, gradients, alpha=-lr)

    def _momentum(self) -> _Step:
        velocity = torch.zeros_like(self._params)

        def step(batch: Shard, rng: Generator) -> None:
            self._differentiate(batch, rng)
            velocity.mul_(self.training.momentum).add_(self._gradient)
            self._params.add_(velocity, alpha=-self.training.client_lr)

        return step

    def _adam(self) -> _Step:
        mean, square = torch.zeros_like(self._params), torch.zeros_like(self._params)
        scale = torch.empty_like(self._params)
        steps = 0

        def step(batch: Shard, rng: Generator) -> None:
            nonlocal steps
            steps += 1
            self._differentiate(batch, rng)
            mean.lerp_(self._gradient, 1 - _BETA1)
            square.mul_(_BETA2).addcmul_(self._gradient, self._gradient, value=1 - _BETA2)
            torch.sqrt(square, out=scale).div_(math.sqrt(1 - _BETA2**steps)).add_(_TINY)
            self._params.addcdiv_(mean, scale, value=-self.training.client_lr / (1 - _BETA1**steps))

        return step

    def _differentiate(self, batch: Shard, rng: Generator | None = None) -> None:
        """Fill the flat gradient buffer."""
        loss = self._loss(batch, self._gradients, rng)
        torch._foreach_copy_(self._leaf_gradients, torch.autograd.grad(loss, self._leaves))

    def _loss(self, batch: Shard, sink: Sink, rng: Generator | None) -> Tensor:
        logits = forward(self.network, self._inputs(batch.x), self._tensors, sink, rng)
        if self.network.binary:
            wanted = torch.from_numpy(np.asarray(batch.y, np.float32)).to(self._device)
            return functional.binary_cross_entropy_with_logits(logits, wanted)
        return functional.cross_entropy(logits, torch.from_numpy(np.asarray(batch.y, np.int64)).to(self._device))

    def _inputs(self, x: NDArray[Any]) -> Tensor:
        x = x.reshape(len(x), *self.network.input_shape)
        if not self._tokens:
            scaled = np.multiply(x, np.float32(self.network.input_scale), dtype=np.float32)
            return torch.from_numpy(scaled).to(self._device)
        embedding = self.network.layers[0]
        if isinstance(embedding, Embedding) and x.size and not 0 <= x.min() <= x.max() < embedding.vocabulary:
            raise DataError(f"token ids must be in [0, {embedding.vocabulary}), got {x.min()} to {x.max()}")
        return torch.from_numpy(x.astype(np.int64)).to(self._device)

    def _count(self, shard: Shard) -> int:
        if len(shard.x) == 0 or len(shard.x) != len(shard.y):
            raise DataError(f"a shard needs records and as many labels, got {len(shard.x)} and {len(shard.y)}")
        return len(shard.x)

    def _vector(self, params: Vector) -> Tensor:
        if params.shape != (self.network.dim,):
            raise InputError(f"{self.network.name} has {self.network.dim} parameters, got shape {params.shape}")
        # A copy, because torch warns about arrays that are read-only (those off the wire are).
        return torch.tensor(params, dtype=torch.float32, device=self._device)

    def _indices(self, trainable: NDArray[np.bool_]) -> Tensor:
        if trainable.shape != (self.network.dim,) or trainable.dtype != np.bool_:
            raise InputError(
                f"trainable must be {self.network.dim} booleans, got shape {trainable.shape} of {trainable.dtype}"
            )
        return torch.from_numpy(np.flatnonzero(trainable)).to(self._device)

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        layout = self.network.layout
        # `.data` gives each view its own version counter: one may change in a backward pass that still reads others.
        return {name: flat[layout.span(name)].view(shape).data for name, shape in layout.tensors}


def _chunks(records: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, records, _CHUNK))
