"""Describe networks as data: layers, shapes, the place of every parameter, and how they start.

Orientation and defaults are Keras's: images are (height, width, channels), convolution kernels (height, width, in,
out), dense kernels (in, out), and an LSTM has a kernel (in, 4 units), a recurrent kernel (units, 4 units) and one bias,
its gates in the order input, forget, cell, output. Nothing here imports torch; the trainers read these classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Exported, Flops, Shape, Whole
from sottovoce.models.task import ClassTask, LearningTask

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.models.torch_program import Program


def uniform(limit: float, shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw values between -limit and limit."""
    return (2 * rng.random(shape, dtype=np.float32) - 1) * np.float32(limit)


def glorot_uniform(shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw a kernel (..., in, out) between +- sqrt(6 / (field * (in + out)))."""
    field = math.prod(shape[:-2])
    return uniform(math.sqrt(6 / (field * (shape[-2] + shape[-1]))), shape, rng)


def orthogonal(shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw a matrix, each orthogonal one as likely as any other."""
    q, r = np.linalg.qr(rng.standard_normal(shape[::-1]))
    # Without the signs of r the matrix would not be uniform over the orthogonal ones.
    return np.asarray((q * np.sign(np.diag(r))).T, np.float32)


Padding = Literal["same", "valid"]


def windows(size: int, kernel: int, stride: int, padding: Padding) -> int:
    """Count the places of a window along an axis."""
    places = -(-size // stride) if padding == "same" else (size - kernel) // stride + 1
    if places < 1:
        raise InputError(f"a window of {kernel} does not fit an axis of {size}")
    return places


def pads_of(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Return how many zeros stand before and after an axis."""
    if padding == "valid":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


# of one record, without the batch
Tensors = dict[str, Shape]


@dataclass(frozen=True)
class Conv2d:
    """A convolution of an image (height, width, in); "same" pads as Keras does, an odd zero at the end."""

    filters: int
    kernel: int
    relu: bool = True
    padding: Padding = "same"
    stride: int = 1

    def tensors(self, shape: Shape) -> Tensors:
        """Name the parameters and their shapes, in the order of the flat vector."""
        return {"kernel": (self.kernel, self.kernel, shape[2], self.filters), "bias": (self.filters,)}

    def products(self, shape: Shape) -> int:
        """Count the multiplications of one record that enters with this shape."""
        return math.prod(self.output(shape)) * self.kernel * self.kernel * shape[2]

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        height, width, _ = _rank(self, shape, 3)
        return (*(windows(size, self.kernel, self.stride, self.padding) for size in (height, width)), self.filters)

    def pads(self, size: int) -> tuple[int, int]:
        """Return how many zeros stand before and after an axis of this size."""
        return pads_of(size, self.kernel, self.stride, self.padding)


@dataclass(frozen=True)
class MaxPool:
    """The largest of each size x size square of an image; a rest at the border is dropped."""

    size: int = 2

    def tensors(self, shape: Shape) -> Tensors:
        """Name no parameters."""
        return {}

    def products(self, shape: Shape) -> int:
        """Count no multiplications."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        height, width, channels = _rank(self, shape, 3)
        return (*(windows(size, self.size, self.size, "valid") for size in (height, width)), channels)


@dataclass(frozen=True)
class Flatten:
    """A record as one row, the last axis fastest."""

    def tensors(self, shape: Shape) -> Tensors:
        """Name no parameters."""
        return {}

    def products(self, shape: Shape) -> int:
        """Count no multiplications."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        return (math.prod(shape),)


@dataclass(frozen=True)
class Linear:
    """A dense layer: a row times a kernel, plus a bias."""

    units: int
    relu: bool = True

    def tensors(self, shape: Shape) -> Tensors:
        """Name the parameters and their shapes, in the order of the flat vector."""
        return {"kernel": (shape[0], self.units), "bias": (self.units,)}

    def products(self, shape: Shape) -> int:
        """Count the multiplications of one record that enters with this shape."""
        return shape[0] * self.units

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        _rank(self, shape, 1)
        return (self.units,)


@dataclass(frozen=True)
class DropoutLayer:
    """Dropout of units: some are zero at random while training, the others scaled up so that the mean stays."""

    rate: float

    def __post_init__(self) -> None:
        in_range("dropout rate", self.rate, low=0, high=1, open_high=True)

    def tensors(self, shape: Shape) -> Tensors:
        """Name no parameters."""
        return {}

    def products(self, shape: Shape) -> int:
        """Count no multiplications."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        return shape

    def factors(self, records: int, shape: Shape, rng: Generator) -> NDArray[np.float32]:
        """Draw the factor of every unit of a batch: 0, or 1 / (1 - rate).

        Every trainer draws here, after the step's batch and in the order of the layers, so that all see the same units.
        """
        kept = rng.random((records, *shape), dtype=np.float32) >= np.float32(self.rate)
        return kept * np.float32(1 / (1 - self.rate))


@dataclass(frozen=True)
class GlobalAveragePool:
    """Average each channel over the whole image."""

    def tensors(self, shape: Shape) -> Tensors:
        """Name no parameters."""
        return {}

    def products(self, shape: Shape) -> int:
        """Count no multiplications."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        return (_rank(self, shape, 3)[2],)


@dataclass(frozen=True)
class Embedding:
    """A table of one vector for each token; tokens are integers below `vocabulary`."""

    vocabulary: int
    size: int

    def tensors(self, shape: Shape) -> Tensors:
        """Name the parameters and their shapes, in the order of the flat vector."""
        return {"embedding": (self.vocabulary, self.size)}

    def products(self, shape: Shape) -> int:
        """Count no multiplications: rows are looked up."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        (length,) = _rank(self, shape, 1)
        return (length, self.size)


@dataclass(frozen=True)
class Conv1d:
    """A convolution of a sequence (length, in) along its length."""

    filters: int
    kernel: int
    relu: bool = True
    padding: Padding = "valid"

    def tensors(self, shape: Shape) -> Tensors:
        """Name the parameters and their shapes, in the order of the flat vector."""
        return {"kernel": (self.kernel, shape[1], self.filters), "bias": (self.filters,)}

    def products(self, shape: Shape) -> int:
        """Count the multiplications of one record that enters with this shape."""
        return math.prod(self.output(shape)) * self.kernel * shape[1]

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        length, _ = _rank(self, shape, 2)
        return (windows(length, self.kernel, 1, self.padding), self.filters)

    def pads(self, size: int) -> tuple[int, int]:
        """Return how many zeros stand before and after the sequence."""
        return pads_of(size, self.kernel, 1, self.padding)


@dataclass(frozen=True)
class MaxPool1d:
    """The largest of each `size` neighbours of a sequence; a rest at the end is dropped."""

    size: int

    def tensors(self, shape: Shape) -> Tensors:
        """Name no parameters."""
        return {}

    def products(self, shape: Shape) -> int:
        """Count no multiplications."""
        return 0

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        length, channels = _rank(self, shape, 2)
        return (windows(length, self.size, self.size, "valid"), channels)


@dataclass(frozen=True)
class Lstm:
    """A recurrent layer over a sequence (length, in); the last hidden state comes out."""

    units: int

    def tensors(self, shape: Shape) -> Tensors:
        """Name the parameters and their shapes, in the order of the flat vector."""
        gates = 4 * self.units
        return {"kernel": (shape[1], gates), "recurrent": (self.units, gates), "bias": (gates,)}

    def products(self, shape: Shape) -> int:
        """Count the multiplications of one record that enters with this shape."""
        return shape[0] * 4 * self.units * (shape[1] + self.units)

    def output(self, shape: Shape) -> Shape:
        """Return the shape that comes out for the shape that goes in."""
        _rank(self, shape, 2)
        return (self.units,)


Layer = (
    Conv2d | MaxPool | Flatten | Linear | DropoutLayer | GlobalAveragePool | Embedding | Conv1d | MaxPool1d | Lstm
)  # one of these, and nothing else: trainers match on the class
_KINDS: Final[dict[type, str]] = {Conv2d: "conv", Conv1d: "conv", Linear: "fc", Embedding: "embedding", Lstm: "lstm"}


@dataclass(frozen=True)
class Network(Whole):
    """A whole network; the last layer gives one logit a class, one when the loss is "bce", or as many as `goal` needs.

    >>> net = Network("tiny", (Flatten(), Linear(10, relu=False)), input_shape=(8, 8, 1), classes=10)
    >>> net.dim, net.shapes, net.layout.span("1.bias")
    (650, ((8, 8, 1), (64,), (10,)), slice(640, 650, None))
    """

    name: str
    layers: tuple[Layer, ...]
    input_shape: Shape
    classes: int
    input_scale: float = 1.0  # stored inputs are multiplied by it as float32; token ids are left alone
    loss: Literal["ce", "bce"] = "ce"
    goal: LearningTask | None = None  # None: to tell the classes apart, by `loss`

    def __post_init__(self) -> None:
        if self.goal is None:
            in_range("classes", self.classes, low=2)
            if self.loss == "bce" and self.classes != 2:
                raise InputError(f"{self.name}: the loss 'bce' is for 2 classes, got {self.classes}; use 'ce'")
        outputs = self.task.outputs
        if self.shapes[-1] != (outputs,):
            raise InputError(f"{self.name}: the last layer must give {outputs} values, it gives {self.shapes[-1]}")

    @cached_property
    def task(self) -> LearningTask:
        """Return what the network learns."""
        return self.goal or ClassTask(self.classes, self.loss == "bce")

    @property
    def binary(self) -> bool:
        """Tell whether there is one logit, for class 1 against class 0."""
        return self.task.binary

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shape that enters each layer, and after them the shape of the output."""
        shapes = [self.input_shape]
        for layer in self.layers:
            try:
                shapes.append(layer.output(shapes[-1]))
            except InputError as error:
                raise InputError(f"{self.name} cannot read records of shape {self.input_shape}: {error}") from None
        return tuple(shapes)

    @cached_property
    def layout(self) -> Layout:
        """Return the place of each tensor; tensor `kernel` of layer 3 is called "3.kernel"."""
        return Layout(
            tuple(
                (f"{index}.{name}", tensor)
                for index, layer in enumerate(self.layers)
                for name, tensor in layer.tensors(self.shapes[index]).items()
            )
        )

    @cached_property
    def layer_names(self) -> dict[str, int]:
        """Map the name of each layer with parameters to its number: conv1, conv2, fc1, fc2 for the papers' CNN."""
        names: dict[str, int] = {}
        counts: dict[str, int] = {}
        for index, layer in enumerate(self.layers):
            if layer.tensors(self.shapes[index]):
                kind = _KINDS[type(layer)]
                counts[kind] = counts.get(kind, 0) + 1
                names[f"{kind}{counts[kind]}"] = index
        return names

    @property
    def dim(self) -> int:
        """Count the parameters."""
        return self.layout.dim

    @property
    def parameters(self) -> int:
        """Count the parameters: all of them train."""
        return self.layout.dim

    @property
    def layered(self) -> Network:
        """Return the network itself."""
        return self

    def initialise(self, rng: Generator) -> Vector:
        """Draw w_0 as Keras does by default."""
        flat = np.zeros(self.dim, np.float32)
        for name, view in self.layout.views(flat).items():
            index, tensor = name.split(".")
            layer = self.layers[int(index)]
            if tensor == "kernel":
                view[...] = glorot_uniform(view.shape, rng)
            elif tensor == "recurrent":
                view[...] = orthogonal(view.shape, rng)
            elif tensor == "embedding":
                view[...] = uniform(0.05, view.shape, rng)
            elif isinstance(layer, Lstm):
                # A forget gate that starts open lets gradients reach far back.
                view[layer.units : 2 * layer.units] = 1
        return flat

    def start_payload(self) -> bytes:
        """Return nothing: w_0 follows from the seed that every set-up carries."""
        return b""

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 and the whole payload, of which none is needed."""
        return self.initialise(rng), payload

    def flops(self) -> Flops:
        """Count the work of one record where all layers train."""
        return self.flops_of(set(self.layer_names.values()))

    def flops_of(self, trained: set[int]) -> Flops:
        """Count the work of one record where the layers of these numbers train."""
        forward = [2.0 * layer.products(shape) for layer, shape in zip(self.layers, self.shapes, strict=False)]
        lowest = min(trained)
        training = sum(flop * (1 + (at in trained) + (at > lowest)) for at, flop in enumerate(forward))
        return Flops(sum(forward), training, self.dim)

    def program(self, params: Tensor, gradient: Tensor) -> Program:
        """Return the layers in torch, over flat buffers."""
        from sottovoce.models.torch_layers import LayersProgram

        return LayersProgram(self, params, gradient)

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return all tensors."""
        return self.layout.views(params)

    def exported(self, params: Vector) -> Exported:
        """Return the network itself."""
        return Exported(self, params, None)


def _rank(layer: object, shape: Shape, rank: int) -> Shape:
    if len(shape) != rank:
        kind = {1: "(features)", 2: "(length, channels)", 3: "(height, width, channels)"}[rank]
        raise InputError(f"{type(layer).__name__} needs {kind}, got {shape}")
    return shape
