"""Count what training costs a device, from the network alone: floating-point operations, and memory.

A product of an (a, b) and a (b, c) matrix is 2abc operations; convolutions, dense and recurrent layers are made of
such. A step goes forward once, and backward twice as much: for the gradients of the weights, and for those of the
layer's inputs, which nobody needs at the lowest layer that trains or below. Element-wise work is not counted:
activations, pooling, the optimiser, a scheme's own coding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sottovoce.models.base import Model
from sottovoce.models.module import TorchNetwork
from sottovoce.models.network import Conv1d, Conv2d, Embedding, Layer, Linear, Lstm, Network, Shape
from sottovoce.models.trainer import LocalTraining

__all__ = ["training_gflop", "training_memory_mb", "training_seconds"]

_FLOAT = 4  # bytes
_GFLOP_A_SECOND = 30.0  # of our kernels on one core of a usual processor
_PER_UPDATE = 1e-4  # seconds beside the products: batches, clipping, coding
_PER_TORCH_STEP = 4e-4  # seconds that a step of torch takes however small it is


@dataclass(frozen=True)
class _Counted:
    """What one record costs in one training step, and how many weights the device holds."""

    flop: float
    weights: int


def training_gflop(model: Model, training: LocalTraining, records: float) -> float:
    """Return the GFLOP of one client's local training, if it has so many records.

    What a public front or frozen layers make of the records is computed once, before the first round, and not counted.

    >>> from sottovoce.models.zoo import network
    >>> cnn = network("cnn", (28, 28, 1), 10)
    >>> round(training_gflop(cnn, LocalTraining(local_steps=5, batch_size=10), records=10), 2)
    3.62
    """
    batch = records if training.batch_size is None else min(training.batch_size, records)
    return _counted(model).flop * batch * training.local_steps * 1e-9


def training_seconds(model: Model, training: LocalTraining, records: float) -> float:
    """Return about how long one core needs for one client's local training: a guess that costs nothing to make."""
    if isinstance(model.trained, TorchNetwork):  # its products are counted by torch, which need not be loaded for this
        return _PER_UPDATE + training.local_steps * _PER_TORCH_STEP
    return _PER_UPDATE + training_gflop(model, training, records) / _GFLOP_A_SECOND


def training_memory_mb(model: Model) -> float:
    """Return the least memory that training needs: weights, and a gradient of those that train; no activations."""
    return _FLOAT * (_counted(model).weights + model.dim) * 1e-6


def _counted(model: Model) -> _Counted:
    from sottovoce.models.partial import Partial

    trained = model.trained
    if isinstance(trained, Network):
        return _Counted(_network_flop(trained, set(trained.layer_names.values())), trained.dim)
    if isinstance(trained, Partial):  # what lies below its lowest trained layer is too wide to be kept
        numbers = {trained.network.layer_names[name] for name in trained.layers}
        return _Counted(_network_flop(trained.network, numbers), trained.network.dim)
    if isinstance(trained, TorchNetwork):
        return _module_counted(trained)
    raise TypeError(f"the work of a {type(trained).__name__} is not known")


def _network_flop(network: Network, trained: set[int]) -> float:
    lowest = min(trained)
    flop = 0.0
    for number, layer in enumerate(network.layers):
        forward = 2.0 * _products(layer, network.shapes[number], network.shapes[number + 1])
        flop += forward * (1 + (number in trained) + (number > lowest))
    return flop


def _products(layer: Layer, entering: Shape, leaving: Shape) -> int:
    """Count the multiplications of one record's way through a layer."""
    match layer:
        case Conv2d(kernel=kernel):
            return math.prod(leaving) * kernel * kernel * entering[2]
        case Conv1d(kernel=kernel):
            return math.prod(leaving) * kernel * entering[1]
        case Linear(units=units):
            return entering[0] * units
        case Lstm(units=units):
            return entering[0] * 4 * units * (entering[1] + units)
        case Embedding():
            return 0  # rows are looked up, not multiplied
        case _:
            return 0


def _module_counted(network: TorchNetwork) -> _Counted:
    """Let torch count the products of a user's module, forward and backward, on a batch of two blank records."""
    import numpy as np
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from sottovoce.models.torch_module import ModuleProgram
    from sottovoce.models.trainer import Shard

    records = 2  # a normalisation over the batch refuses a single record in training
    params, gradient = torch.zeros(network.dim), torch.zeros(network.dim)
    program = ModuleProgram(network, params, gradient)
    kind = np.int64 if network.tokens else np.float32
    blank = Shard(np.zeros((records, *network.input_shape), kind), np.zeros(records, np.int64))
    with FlopCounterMode(display=False) as counter, torch.random.fork_rng([]):
        program.differentiate(blank, np.random.default_rng(0))
    weights = sum(tensor.numel() for tensor in program.module.parameters())
    return _Counted(counter.get_total_flops() / records, weights)
