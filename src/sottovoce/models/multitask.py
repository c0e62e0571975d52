"""Train a network on its own task and on telling a property apart, as an active property inference does.

Melis et al., "Exploiting unintended feature leakage in collaborative learning", IEEE S&P 2019, section 4.4: the loss is
(1 - a) L(x, y; w) + a L(x, p; w, h), where p is the property and h a classifier of the last hidden layer that only the
attacker has. Its update of w makes the common model tell the property apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Model
from sottovoce.models.network import Linear
from sottovoce.models.torch_layers import forward
from sottovoce.models.torch_program import loss_of
from sottovoce.models.trainer import LocalTraining, Shard


@dataclass
class MultiTask:
    """A client that trains on two tasks at once by plain SGD; the classifier of the property stays with it."""

    network: Model
    training: LocalTraining
    weight: float  # of the property in the loss
    head: Tensor = field(init=False)  # (units of the last hidden layer + 1, 1): kernel and bias

    def __post_init__(self) -> None:
        network = self.network.layered
        *below, last = (None,) if network is None else network.layers
        if network is None or network is not self.network or not isinstance(last, Linear):
            raise InputError(f"{self.network.name} does not end with a dense layer, which an active attack builds upon")
        # One more output beside the network's own is the classifier of the property.
        self._kernel, self._bias = (f"{len(below)}.{name}" for name in ("kernel", "bias"))
        wider = Linear(last.units + 1, relu=False)
        self._wider = replace(network, layers=(*below, wider), classes=wider.units, loss="ce", goal=None)
        self.head = torch.zeros(network.shapes[-2][0] + 1, 1)

    def update(
        self, params: Vector, shard: Shard, has: NDArray[np.bool_], trainable: NDArray[np.bool_] | None = None
    ) -> Vector:
        """Return w' - w after the local steps, each on all of the shard; the classifier learns too."""
        x = torch.from_numpy(np.multiply(shard.x, np.float32(self.network.input_scale), dtype=np.float32))
        start = torch.tensor(params)
        moving = None if trainable is None else torch.from_numpy(trainable)
        flat = start.clone()
        for _ in range(self.training.local_steps):
            leaves = [flat.requires_grad_(), self.head.requires_grad_()]
            slopes = torch.autograd.grad(self._loss(x, shard.y, has, *leaves), leaves)
            with torch.no_grad():
                slope = slopes[0] if moving is None else slopes[0] * moving
                flat = flat.detach() - self.training.client_lr * slope
                self.head = self.head.detach() - self.training.client_lr * slopes[1]
        return np.asarray((flat - start).numpy())

    def guess(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the score of the property for some records: above 0 is yes."""
        scaled = torch.from_numpy(np.multiply(x, np.float32(self.network.input_scale), dtype=np.float32))
        with torch.no_grad():
            return np.asarray(self._outputs(scaled, torch.tensor(params), self.head)[:, -1].numpy())

    def _loss(self, x: Tensor, y: NDArray[Any], has: NDArray[np.bool_], flat: Tensor, head: Tensor) -> Tensor:
        outputs = self._outputs(x, flat, head)
        logits = outputs[:, 0] if self.network.binary else outputs[:, :-1]
        told = torch.from_numpy(has.astype(np.float32))
        aside = functional.binary_cross_entropy_with_logits(outputs[:, -1], told)
        return (1 - self.weight) * loss_of(self.network.task, logits, y) + self.weight * aside

    def _outputs(self, x: Tensor, flat: Tensor, head: Tensor) -> Tensor:
        layout = self.network.layout
        tensors = {name: flat[layout.span(name)].view(shape) for name, shape in layout.tensors}
        tensors[self._kernel] = torch.cat([tensors[self._kernel], head[:-1]], 1)
        tensors[self._bias] = torch.cat([tensors[self._bias], head[-1]])
        return forward(self._wider, x, tensors, None)
