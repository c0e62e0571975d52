"""A torch module as a network of layers that computes the same, so that C can train it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.network import Conv2d, Flatten, Network


@dataclass(frozen=True)
class Compiled:
    """A user's module as a network of layers, and the way between their two flat vectors.

    The module's vector keeps torch's order: dense kernels (out, in), convolution kernels (out, in, height, width), and
    the columns of a dense layer behind an image channel by channel. The network's is Keras's, as everywhere else.
    """

    network: Network
    layout: Layout = field(repr=False)  # of the module
    sources: tuple[tuple[str, str], ...]  # a tensor of the network, and that of the module which fills it
    turned: bool = False  # the module reads (channels, height, width)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Return where each parameter of the module lies in the network's vector."""
        places = np.empty(self.layout.dim, np.int64)
        layout = self.network.layout
        shapes = dict(layout.tensors)
        for own, theirs in self.sources:
            span = layout.span(own)
            tensor = np.arange(span.start, span.stop).reshape(shapes[own])
            places[self.layout.span(theirs)] = self._as_in_torch(own, tensor).reshape(-1)
        return places

    def joined(self, params: Vector) -> Vector:
        """Return the network's vector for one of the module; a bias that the module has not is zero."""
        joined = np.zeros(self.network.dim, np.float32)
        joined[self.places] = params
        return joined

    def _as_in_torch(self, name: str, tensor: NDArray[Any]) -> NDArray[Any]:
        """Return a tensor of the network with its axes as torch has them."""
        index, kind = name.split(".")
        if kind == "bias":
            return tensor
        number = int(index)
        if isinstance(self.network.layers[number], Conv2d):
            return tensor.transpose(3, 2, 0, 1)
        below = self.network.shapes[number - 1] if number else ()
        if self.turned and len(below) == 3 and isinstance(self.network.layers[number - 1], Flatten):
            height, width, channels = below
            return tensor.reshape(height, width, channels, -1).transpose(3, 2, 0, 1).reshape(-1, math.prod(below))
        return tensor.T
