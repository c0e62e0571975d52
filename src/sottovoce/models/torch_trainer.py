"""Train any model with torch, on the CPU or a GPU, in one flat buffer of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.validate import one_of
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Model
from sottovoce.models.task import shape_of
from sottovoce.models.trainer import LocalTraining, Shard, batches, class_weights


def proximal_gradient(params: Tensor, start: Tensor, mu: float) -> Tensor:
    """Return mu (w - w_t), the gradient of the proximal term; `params` is w and `start` is w_t.

    It belongs into the gradient, before momentum or Adam see it. For plain SGD it may also be subtracted, times the
    learning rate, after the step of the loss, if it was computed before that step.
    """
    return params.detach().sub(start).mul_(mu)


_Step = Callable[[Shard, Generator], None]

_CHUNK: Final = 256  # records evaluated at once
_BETA1: Final = 0.9
_BETA2: Final = 0.999


class TorchTrainer:
    """The torch trainer: clients one after the other, each from the same start with a fresh optimiser.

    The tensors of the model are views of one flat buffer, and so are their gradients: every optimiser is a few
    operations on flat vectors, and loading parameters or taking w_k - w is one. What the model computes is its
    program's business.
    """

    def __init__(self, network: Model, training: LocalTraining, device: str = "cpu") -> None:
        one_of("device", device.split(":")[0], ("cpu", "cuda"))
        if device != "cpu" and not torch.cuda.is_available():
            raise InputError(f"device {device!r} is not there: torch {torch.__version__} sees no GPU; use 'cpu'")
        self.network = network
        self.training = training
        self.device = torch.device(device)
        self._params = torch.zeros(network.dim, device=self.device)
        self._gradient = torch.zeros(network.dim, device=self.device)
        self.program = network.program(self._params, self._gradient)

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
            step = self._optimiser(start)
            weights = class_weights(shard.y) if self.training.weighted_loss else shard.weights
            with self.program.drawing(rng):
                for batch in batches(self._count(shard), self.training, rng):
                    step(Shard(shard.x[batch], shard.y[batch], None if weights is None else weights[batch]), rng)
                    if moving is not None:
                        # Put the others back: the same as a masked gradient, because every optimiser works coordinate
                        # by coordinate, but cheaper, and an infinite gradient cannot leak (0 * inf would be NaN).
                        moved = self._params.index_select(0, moving)
                        self._params.copy_(start).index_copy_(0, moving, moved)
            yield self._params.sub(start).cpu().numpy()

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard, dropout off."""
        self._params.copy_(self._vector(params))
        records = self._count(shard)
        total = torch.zeros_like(self._gradient)
        for chunk in _chunks(records):
            self.program.differentiate(Shard(shard.x[chunk], shard.y[chunk]))
            total.add_(self._gradient, alpha=len(shard.y[chunk]) / records)
        return np.asarray(total.cpu().numpy())

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of each record: (records, outputs), or (records,) where there is one."""
        self._params.copy_(self._vector(params))
        logits = np.empty(shape_of(self.network.task, len(x)), np.float32)
        for chunk in _chunks(len(x)):
            logits[chunk] = self.program.logits(x[chunk]).cpu().numpy()
        return logits

    def unit_steps(
        self,
        params: Vector,
        shard: Shard,
        rows: NDArray[np.int64],
        sizes: NDArray[np.int64],
        weights: Vector | None,
        chunk: int,
    ) -> Iterator[NDArray[np.float32]] | None:
        """Return the updates of units after one step each, computed together; None if it must be done singly."""
        from sottovoce.models.torch_units import vmapped

        return vmapped(self, params, shard, rows, sizes, weights, chunk)

    def _optimiser(self, start: Tensor) -> _Step:
        """Return a function that trains on one batch, with the state of a fresh optimiser inside."""
        if self.training.optimizer == "adam":
            return self._adam(start)
        if self.training.momentum:
            return self._momentum(start)
        return self._proximal(start) if self.training.prox else self._plain_step

    def _proximal(self, start: Tensor) -> _Step:
        """Return plain SGD with FedProx's term beside the loss, whose own step need not become a flat gradient."""

        def step(batch: Shard, rng: Generator) -> None:
            pull = proximal_gradient(self._params, start, self.training.prox)  # at the old weights, like the loss
            self._plain_step(batch, rng)
            self._params.add_(pull, alpha=-self.training.client_lr)

        return step

    def _plain_step(self, batch: Shard, rng: Generator) -> None:
        self.program.descend(batch, float(self.training.signed_lr), rng)

    def _momentum(self, start: Tensor) -> _Step:
        velocity = torch.zeros_like(self._params)

        def step(batch: Shard, rng: Generator) -> None:
            self._slope(batch, rng, start)
            velocity.mul_(self.training.momentum).add_(self._gradient)
            self._params.add_(velocity, alpha=-self.training.signed_lr)

        return step

    def _adam(self, start: Tensor) -> _Step:
        mean, square = torch.zeros_like(self._params), torch.zeros_like(self._params)
        scale = torch.empty_like(self._params)
        steps = 0

        def step(batch: Shard, rng: Generator) -> None:
            nonlocal steps
            steps += 1
            self._slope(batch, rng, start)
            mean.lerp_(self._gradient, 1 - _BETA1)
            square.mul_(_BETA2).addcmul_(self._gradient, self._gradient, value=1 - _BETA2)
            torch.sqrt(square, out=scale).div_(math.sqrt(1 - _BETA2**steps)).add_(self.training.adam_epsilon)
            self._params.addcdiv_(mean, scale, value=-self.training.signed_lr / (1 - _BETA1**steps))

        return step

    def _slope(self, batch: Shard, rng: Generator, start: Tensor) -> None:
        """Fill the flat gradient buffer with what an optimiser follows: the loss, and FedProx's term if it is on."""
        self.program.differentiate(batch, rng)
        if self.training.prox:
            self._gradient.add_(proximal_gradient(self._params, start, self.training.prox))

    def _count(self, shard: Shard) -> int:
        if len(shard.x) == 0 or len(shard.x) != len(shard.y):
            raise DataError(f"a shard needs records and as many labels, got {len(shard.x)} and {len(shard.y)}")
        return len(shard.x)

    def _vector(self, params: Vector) -> Tensor:
        if params.shape != (self.network.dim,):
            raise InputError(f"{self.network.name} has {self.network.dim} parameters, got shape {params.shape}")
        # A copy, because torch warns about arrays that are read-only (those off the wire are).
        return torch.tensor(params, dtype=torch.float32, device=self.device)

    def _indices(self, trainable: NDArray[np.bool_]) -> Tensor:
        if trainable.shape != (self.network.dim,) or trainable.dtype != np.bool_:
            raise InputError(
                f"trainable must be {self.network.dim} booleans, got shape {trainable.shape} of {trainable.dtype}"
            )
        return torch.from_numpy(np.flatnonzero(trainable)).to(self.device)


def _chunks(records: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, records, _CHUNK))
