"""Run a network's layers in torch, on tensors that keep Keras's orientation.

Activations stay (records, height, width, channels) between layers; torch's convolutions see them through permuted
views, which is exactly its "channels last" memory format, so nothing is copied and flattening is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import torch
from numpy.random import Generator
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

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

__all__ = ["Sink", "forward"]

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
    return x[:, 0] if network.binary else x


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
