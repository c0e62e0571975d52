"""Run a `Network`, whose layers are data, as a program in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, assert_never

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from sottovoce.core.errors import DataError
from sottovoce.models.network import (
    Conv1d,
    Conv2d,
    DropoutLayer,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    Linear,
    Lstm,
    MaxPool,
    MaxPool1d,
    Network,
)
from sottovoce.models.torch_program import loss_of, split
from sottovoce.models.trainer import Shard

# Gradient buffers by tensor name, the learning rate of an immediate step, or None where only torch's own operations are
# wanted (a model that is exported).
Sink = Mapping[str, Tensor] | float | None


def forward(
    network: Network, x: Tensor, tensors: Mapping[str, Tensor], sink: Sink = 0.0, rng: Generator | None = None
) -> Tensor:
    """Return the logits of a batch; with an `rng` units drop out.

    Dense kernels are not differentiated by autograd: see `_Dense` for what becomes of `sink`.
    """
    for index, layer in enumerate(network.layers):
        if isinstance(layer, DropoutLayer):
            if rng is not None:
                factors = layer.factors(len(x), network.shapes[index], rng)
                x = x * torch.from_numpy(factors).to(x.device)
            continue
        x = _apply(layer, x, index, tensors, sink)
        if _rectified(network.layers, index):
            x = functional.relu(x)
    return x[:, 0] if network.task.flat else x


def _rectified(layers: Sequence[Layer], index: int) -> bool:
    """Tell whether a ReLU follows; one before a pool waits for it, which is the same on a quarter of the values."""
    layer = layers[index]
    if isinstance(layer, MaxPool | MaxPool1d):
        return index > 0 and isinstance(before := layers[index - 1], Conv1d | Conv2d) and before.relu
    pooled = index + 1 < len(layers) and isinstance(layers[index + 1], MaxPool | MaxPool1d)
    return isinstance(layer, Conv1d | Conv2d | Linear) and layer.relu and not pooled


def _apply(layer: Layer, x: Tensor, index: int, tensors: Mapping[str, Tensor], sink: Sink) -> Tensor:
    match layer:
        case Conv2d():
            return _convolve(layer, x, tensors[f"{index}.kernel"], tensors[f"{index}.bias"])
        case Conv1d():
            # As an image one pixel high: torch's own 1d kernels know no channels-last format.
            kernel = tensors[f"{index}.kernel"].unsqueeze(0)
            return _convolve(layer, x.unsqueeze(1), kernel, tensors[f"{index}.bias"]).squeeze(1)
        case MaxPool():
            return _pool(x, (layer.size, layer.size))
        case MaxPool1d():
            return _pool(x.unsqueeze(1), (1, layer.size)).squeeze(1)
        case Linear():
            name = f"{index}.kernel"
            if sink is None:
                return torch.addmm(tensors[f"{index}.bias"], x, tensors[name])
            place = sink if isinstance(sink, float) else sink[name]
            return _Dense.apply(x, tensors[f"{index}.bias"], tensors[name], place)  # type: ignore[no-untyped-call, no-any-return]
        case Lstm():
            return _lstm(
                x, *(tensors[f"{index}.{name}"] for name in ("kernel", "recurrent", "bias")), units=layer.units
            )
        case Embedding():
            return functional.embedding(x, tensors[f"{index}.embedding"])
        case Flatten():
            return x.flatten(1)
        case GlobalAveragePool():
            return x.mean((1, 2))
        case DropoutLayer():
            return x
        case _:
            assert_never(layer)


def _convolve(layer: Conv1d | Conv2d, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    stride = layer.stride if isinstance(layer, Conv2d) else 1
    top, bottom = layer.pads(x.shape[1]) if isinstance(layer, Conv2d) else (0, 0)
    left, right = layer.pads(x.shape[2])
    if (top, left) != (bottom, right):
        # Torch pads both ends alike, Keras puts an odd zero at the end.
        x = functional.pad(x, (0, 0, left, right, top, bottom))
        top = left = 0
    y = functional.conv2d(x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), bias, stride, (top, left))
    return y.permute(0, 2, 3, 1)


def _pool(x: Tensor, size: tuple[int, int]) -> Tensor:
    return functional.max_pool2d(x.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)


def _lstm(x: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, *, units: int) -> Tensor:
    # Torch's LSTM adds two biases; the second is a constant zero here. The order of its gates is Keras's.
    start = x.new_zeros(1, x.shape[0], units)
    tensors = [kernel.t(), recurrent.t(), bias, torch.zeros_like(bias)]
    output, _, _ = torch.lstm(x, (start, start), tensors, True, 1, 0.0, True, False, True)
    return output[:, -1]


class _Dense(Function):
    """Compute x @ kernel + bias, and in the backward pass send the kernel's gradient straight to where it is wanted.

    Dense kernels are most of a network, and autograd would allocate, fill and re-read a tensor of their size at every
    step. Here the gradient is written into a given buffer, or, for plain SGD, the step is taken at once (a rank-|B|
    update of the kernel in place) and the gradient never exists.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, bias: Tensor, kernel: Tensor, sink: Tensor | float) -> Tensor:
        """Return the affine map of a batch."""
        context.save_for_backward(x)
        context.kernel, context.sink = kernel, sink
        return torch.addmm(bias, x, kernel)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        """Return the gradients of input and bias; store or apply that of the kernel."""
        (x,) = context.saved_tensors
        # Before the kernel moves: earlier layers need the gradient at the old one.
        below = slope.mm(context.kernel.t()) if context.needs_input_grad[0] else None
        if isinstance(context.sink, float):
            context.kernel.addmm_(x.t(), slope, alpha=-context.sink)
        else:
            torch.mm(x.t(), slope, out=context.sink)
        return below, slope.sum(0), None, None


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
        return loss_of(self._network.task, logits, batch.y, batch.weights)

    def _inputs(self, x: NDArray[Any]) -> Tensor:
        x = x.reshape(len(x), *self._network.input_shape)
        if not self._tokens:
            scaled = np.multiply(x, np.float32(self._network.input_scale), dtype=np.float32)
            return torch.from_numpy(scaled).to(self._device)
        embedding = self._network.layers[0]
        if isinstance(embedding, Embedding) and x.size and not 0 <= x.min() <= x.max() < embedding.vocabulary:
            raise DataError(f"token ids must be in [0, {embedding.vocabulary}), got {x.min()} to {x.max()}")
        return torch.from_numpy(x.astype(np.int64)).to(self._device)
