"""Train networks of dense layers in numpy alone, for devices without torch.

`PlainTrainer` computes what `TorchTrainer` computes, on the same batches and with the same units dropped out, up to the
rounding of matrix products: SGD, momentum, Adam, FedProx and weighted losses, for `Linear`, `DropoutLayer` and
`Flatten`. It is slower than the fast trainer; what that one cannot do (dropout, optimisers with a memory) is done here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.network import DropoutLayer, Flatten, Linear, Network
from sottovoce.models.task import LearningTask
from sottovoce.models.trainer import LocalTraining, Shard, batches, class_weights

_OPTIMISERS: Final = ("optimizer", "momentum", "adam_epsilon", "prox")
_KNOWN: Final = frozenset(("local_steps", "batch_size", "client_lr", "weighted_loss", "ascend", *_OPTIMISERS))
_CHUNK: Final = 256  # records evaluated at once
_BETA1: Final = 0.9
_BETA2: Final = 0.999

Floats = NDArray[np.float32]
_Step = Callable[[Vector, Vector], None]  # weights, which it changes, and their gradient


def unsupported(network: Network, training: LocalTraining) -> str | None:
    """Return why this trainer cannot train a network this way, naming the layer or the option, or None."""
    if network.task.torch_only:
        return "a loss of your own is a torch function"
    for number, layer in enumerate(network.layers):
        if not isinstance(layer, Linear | DropoutLayer | Flatten):
            return f"layer {number} ({type(layer).__name__}) is not known to the plain trainer"
    return training.unknown_to("plain", _KNOWN)


class PlainTrainer:
    """The plain trainer: clients one after the other, each from the same start with a fresh optimiser."""

    def __init__(self, network: Network, training: LocalTraining) -> None:
        reason = unsupported(network, training)
        if reason is not None:
            raise InputError(f"{network.name}: {reason}; use trainer 'torch'")
        self.network = network
        self.training = training

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard, in order; coordinates outside `trainable` never move."""
        self._check(params)
        for shard, rng in zip(shards, rngs, strict=True):
            weights = class_weights(shard.y) if self.training.weighted_loss else shard.weights
            moved, step = np.array(params, np.float32), self._optimiser()
            for batch in batches(_count(shard), self.training, rng):
                some = Shard(shard.x[batch], shard.y[batch], None if weights is None else weights[batch])
                slope = self._slope(moved, some, rng)
                if self.training.prox:
                    slope += np.float32(self.training.prox) * (moved - params)
                step(moved, slope)
                if trainable is not None:
                    # Every optimiser works coordinate by coordinate, so the others can be put back.
                    np.copyto(moved, params, where=~trainable)
            yield moved - params

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard, dropout off."""
        self._check(params)
        records = _count(shard)
        total = np.zeros(self.network.dim, np.float32)
        for start in range(0, records, _CHUNK):
            part = Shard(shard.x[start : start + _CHUNK], shard.y[start : start + _CHUNK])
            total += np.float32(len(part.y) / records) * self._slope(params, part, None)
        return total

    def scores(self, params: Vector, x: NDArray[Any]) -> Floats:
        """Return the scores of each record: (records, outputs), or (records,) where there is one."""
        self._check(params)
        parts = [self._forward(params, x[at : at + _CHUNK], None)[0][-1] for at in range(0, len(x), _CHUNK)]
        logits = np.concatenate(parts) if parts else np.empty((0, self.network.task.outputs))
        return np.asarray(logits[:, 0] if self.network.task.flat else logits, np.float32)

    def _check(self, params: Vector) -> None:
        if params.shape != (self.network.dim,):
            raise InputError(f"{self.network.name} has {self.network.dim} parameters, got shape {params.shape}")

    def _forward(
        self, params: Vector, x: NDArray[Any], rng: Generator | None
    ) -> tuple[list[Floats], dict[int, Floats]]:
        """Return what enters each layer and the logits last, and the factors of the units that may drop out."""
        tensors = self.network.layout.views(params)
        x = np.multiply(x.reshape(len(x), -1), np.float32(self.network.input_scale), dtype=np.float32)
        entered, factors = [x], {}
        for number, layer in enumerate(self.network.layers):
            if isinstance(layer, Linear):
                x = x @ tensors[f"{number}.kernel"] + tensors[f"{number}.bias"]
                if layer.relu:
                    x = np.maximum(x, 0)
            elif isinstance(layer, DropoutLayer) and rng is not None:
                factors[number] = layer.factors(len(x), self.network.shapes[number], rng).reshape(len(x), -1)
                x = x * factors[number]
            entered.append(x)
        return entered, factors

    def _slope(self, params: Vector, batch: Shard, rng: Generator | None) -> Vector:
        """Return the gradient of the mean loss of a batch; without an `rng` dropout is off."""
        entered, factors = self._forward(params, batch.x, rng)
        back = _loss_slope(entered[-1], batch, self.network.task)
        tensors, found = self.network.layout.views(params), np.empty(self.network.dim, np.float32)
        slopes = self.network.layout.views(found)
        for number in reversed(range(len(self.network.layers))):
            layer = self.network.layers[number]
            if number in factors:
                back = back * factors[number]
            elif isinstance(layer, Linear):
                if layer.relu:
                    back = back * (entered[number + 1] > 0)
                slopes[f"{number}.kernel"][...] = entered[number].T @ back
                slopes[f"{number}.bias"][...] = back.sum(axis=0)
                if number:
                    back = back @ tensors[f"{number}.kernel"].T
        return found

    def _optimiser(self) -> _Step:
        """Return a function that takes one step, with the state of a fresh optimiser inside."""
        rate, momentum = self.training.signed_lr, np.float32(self.training.momentum)
        first, second = np.zeros((2, self.network.dim if self._remembers else 0), np.float32)
        steps = 0

        def descend(params: Vector, slope: Vector) -> None:
            params -= np.float32(rate) * slope

        def roll(params: Vector, slope: Vector) -> None:
            first[:] = momentum * first + slope
            params -= np.float32(rate) * first

        def adam(params: Vector, slope: Vector) -> None:
            nonlocal steps
            steps += 1
            first[:] += np.float32(1 - _BETA1) * (slope - first)
            second[:] = np.float32(_BETA2) * second + np.float32(1 - _BETA2) * slope * slope
            scale = np.sqrt(second) / np.float32(math.sqrt(1 - _BETA2**steps)) + np.float32(self.training.adam_epsilon)
            params -= np.float32(rate / (1 - _BETA1**steps)) * first / scale

        return adam if self.training.optimizer == "adam" else roll if self.training.momentum else descend

    @property
    def _remembers(self) -> bool:
        return self.training.optimizer == "adam" or bool(self.training.momentum)


def _loss_slope(scores: Floats, batch: Shard, task: LearningTask) -> Floats:
    """Return the derivative of the mean loss by each score, each record times its weight."""
    found = task.slopes(scores, batch.y)
    if batch.weights is not None:
        found = found * batch.weights[:, None]
    return np.asarray(found / np.float32(len(batch.y)), np.float32)


def _count(shard: Shard) -> int:
    if len(shard.x) == 0 or len(shard.x) != len(shard.y):
        raise DataError(f"a shard needs records and as many labels, got {len(shard.x)} and {len(shard.y)}")
    return len(shard.x)
