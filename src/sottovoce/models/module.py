"""Describe a user's torch module as a model; nothing here imports torch until the module itself is asked for."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.random import Generator

from sottovoce.core import wire
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Exported, Flops, Shape, Whole
from sottovoce.models.compiled import Compiled
from sottovoce.models.task import ClassTask, LearningTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sottovoce.models.torch_program import Program

Images = Literal["turned", "copied", "stored"]


@dataclass(frozen=True)
class TorchNetwork(Whole):
    """A torch module as it was given, with what the house must know of it; `wrap_module` makes and checks it.

    The flat vector holds the parameters that require a gradient, in the order and under the names of
    `named_parameters` (a tensor with two names once, under its first). All others, and all buffers, stay as given:
    they are part of the program and never travel.

    `images` says how a record (height, width, channels) reaches the module: "turned" is (channels, height, width) in
    torch's channels-last memory, the fastest; "copied" is the same in contiguous memory, for a module that calls
    `view`; "stored" is the record as it is.
    """

    name: str
    pickled: bytes = field(repr=False)  # by cloudpickle: the class may live in a notebook or a script
    layout: Layout = field(repr=False)
    input_shape: Shape
    classes: int
    input_scale: float = 1.0
    loss: Literal["ce", "bce"] = "ce"
    tokens: bool = False  # inputs are ids: they stay integers and are not scaled
    images: Images = "stored"
    goal: LearningTask | None = None  # None: to tell the classes apart, by `loss`
    deferred: bool = True  # large dense layers may take their steps without a gradient tensor
    compiled: Compiled | None = None  # the same as layers that the C kernels know; None where it is something else

    @cached_property
    def task(self) -> LearningTask:
        """Return what the module learns."""
        return self.goal or ClassTask(self.classes, self.loss == "bce")

    @property
    def binary(self) -> bool:
        """Tell whether there is one logit, for class 1 against class 0."""
        return self.task.binary

    @property
    def dim(self) -> int:
        """Count the parameters that are trained and travel."""
        return self.layout.dim

    @property
    def parameters(self) -> int:
        """Count the parameters that are trained and travel; of the others only the module itself knows."""
        return self.layout.dim

    @property
    def layered(self) -> None:
        """Return none: its layers are torch's."""
        return None

    def module(self) -> nn.Module:
        """Return a fresh copy of the module as it was given."""
        module: nn.Module = pickle.loads(self.pickled)
        return module

    def initialise(self, rng: Generator) -> Vector:
        """Return the weights that the module came with; a pre-trained module keeps them, so nothing is drawn."""
        tensors = dict(self.module().named_parameters())
        return self.layout.join({name: tensors[name].detach().numpy() for name, _ in self.layout.tensors})

    def start_payload(self) -> bytes:
        """Return w_0 as a frame of float32 values: no seed tells a client what a module's weights were."""
        return wire.pack(self.initialise(np.random.default_rng(0)))

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 and the rest of a set-up that begins with `start_payload`."""
        size = wire.frame_size(self.dim)
        return wire.unpack_floats(payload[:size], length=self.dim), payload[size:]

    def flops(self) -> Flops:
        """Let torch count the products, forward and backward, on two blank records."""
        from sottovoce.models.torch_module import count_flops

        return count_flops(self)

    def program(self, params: Tensor, gradient: Tensor) -> Program:
        """Return a copy of the module whose trained parameters are views of a flat buffer."""
        from sottovoce.models.torch_module import ModuleProgram

        return ModuleProgram(self, params, gradient)

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the tensors that train."""
        return self.layout.views(params)

    def exported(self, params: Vector) -> Exported:
        """Return the module's description itself; its code is known to torch alone."""
        return Exported(self, params, None)

    def filled(self, params: Vector) -> nn.Module:
        """Return a copy of the module with these weights, in evaluation mode."""
        import torch

        module = self.module()
        tensors = dict(module.named_parameters())
        with torch.no_grad():
            for name, view in self.layout.views(params).items():
                tensors[name].copy_(torch.tensor(view))
        return module.eval()
