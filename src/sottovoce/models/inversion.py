"""Gradient inversion: images, and their labels, from the message that they were trained into.

Zhu, Liu and Han, "Deep leakage from gradients", NeurIPS 2019: look for images x and labels q whose update matches the
one that was sent. Geiping et al., "Inverting gradients", NeurIPS 2020: match by the angle and prefer smooth images,

    min over x in [0, 1] and q of  1 - cos(E u(x, q), y) + a TV(x),

where y is the message, E the scheme's encoding, u the update of the local steps (steps of plain SGD, all on the same
images), and TV(x) the mean absolute difference of neighbours. Labels are the softmax of free numbers, as in the first
paper. Where only signs y are known, the match is their mean logistic loss, log(1 + exp(-y z)) with z = u / mean |u|:
that is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Model
from sottovoce.models.torch_layers import forward
from sottovoce.models.trainer import LocalTraining

Linear = Callable[[Vector], Vector]

_STEP: Final = 0.1  # of Adam; a tenth of it from 3/8 of the way on, and so again at 5/8 and 7/8, as Geiping et al.
_LABEL_STEP: Final = 0.5
_TURNS: Final = (3 / 8, 5 / 8, 7 / 8)


class Rebuilt(NamedTuple):
    """Images in [0, 1], their labels, and how far their update is from the message."""

    images: NDArray[np.float32]  # (records, height, width, channels)
    labels: NDArray[np.int64]
    distance: float


@dataclass(frozen=True)
class Inversion:
    """An attack on the message of one client, or on the sum of several."""

    network: Model
    training: LocalTraining
    encode: Linear
    transpose: Linear  # of `encode`
    form: Literal["floats", "signs"]
    trainable: NDArray[np.bool_] | None
    clients: int  # in the sum; 1: a single message
    records: int  # of each client
    iterations: int
    smoothness: float
    restarts: int

    def __post_init__(self) -> None:
        if self.network.layered is not self.network or len(self.network.input_shape) != 3:
            raise InputError(
                f"model {self.network.name!r} cannot be inverted: images are rebuilt through a network of layers that "
                'reads images, such as "mlp" or "cnn"'
            )
        training = self.training
        if training.optimizer != "sgd" or training.momentum or training.prox:
            raise InputError(
                'the attacker retraces plain SGD; set [client] optimizer = "sgd" without momentum and prox'
            )

    def run(
        self, params: Vector, message: Vector, rng: Generator, tell: Callable[[int], None] = lambda done: None
    ) -> Rebuilt:
        """Return the images whose update from `params` matches a message best, of all restarts."""
        if not message.any():
            raise InputError("the message is zero in every value: there is nothing to rebuild images from")
        target = torch.from_numpy(np.sign(message) if self.form == "signs" else np.array(message))
        found = [self._rebuild(torch.tensor(params), target, rng, tell, start) for start in range(self.restarts)]
        return min(found, key=lambda rebuilt: rebuilt.distance)

    def _rebuild(
        self, params: Tensor, target: Tensor, rng: Generator, tell: Callable[[int], None], done: int
    ) -> Rebuilt:
        shape = (self.clients, self.records, *self.network.input_shape)
        images = torch.from_numpy(rng.random(shape, dtype=np.float32)).requires_grad_()
        labels = torch.zeros((*shape[:2], self.network.classes)).requires_grad_()
        moved: list[dict[str, Any]] = [{"params": [images]}, {"params": [labels], "lr": _LABEL_STEP}]
        optimizer = torch.optim.Adam(moved, lr=_STEP)
        turns = [int(self.iterations * turn) for turn in _TURNS]
        slower = torch.optim.lr_scheduler.MultiStepLR(optimizer, turns, 0.1)
        distance = torch.tensor(torch.inf)
        for step in range(self.iterations):
            optimizer.zero_grad()
            distance = self._distance(self._sum(params, images, labels), target)
            (distance + self.smoothness * _variation(images)).backward()  # type: ignore[no-untyped-call]
            if images.grad is not None:
                images.grad.sign_()  # as Geiping et al.: pixels that hardly matter move as well
            optimizer.step()
            slower.step()
            with torch.no_grad():
                images.clamp_(0, 1)
            tell(done * self.iterations + step + 1)
        flat = images.detach().reshape(-1, *self.network.input_shape)
        return Rebuilt(
            flat.numpy(), labels.detach().reshape(-1, self.network.classes).argmax(1).numpy(), float(distance.detach())
        )

    def _sum(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return the encoded sum of the clients' updates, as a function of their images and labels."""
        total = sum(self._update(params, images[client], labels[client]) for client in range(self.clients))
        return total if self.form == "signs" else _Encoded.apply(total, self.encode, self.transpose)  # type: ignore

    def _update(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return w_k - w after the local steps, differentiable in images and labels."""
        network = self.network
        moving = None if self.trainable is None else torch.from_numpy(self.trainable)
        flat = params.clone().requires_grad_()
        start, wanted = flat, functional.softmax(labels, 1)
        for _ in range(self.training.local_steps):
            tensors = {name: flat[network.layout.span(name)].view(shape) for name, shape in network.layout.tensors}
            logits = forward(network, images, tensors, None)  # type: ignore[arg-type]
            (slope,) = torch.autograd.grad(_loss(logits, wanted, network.binary), [flat], create_graph=True)
            flat = flat - self.training.client_lr * (slope if moving is None else slope * moving)
        return flat - start

    def _distance(self, made: Tensor, target: Tensor) -> Tensor:
        if self.form == "signs":
            return functional.softplus(-target * made / (made.abs().mean() + 1e-12)).mean()
        return 1 - functional.cosine_similarity(made, target, 0)


def _loss(logits: Tensor, wanted: Tensor, binary: bool) -> Tensor:
    """Return the mean cross entropy with labels that are probabilities."""
    if binary:
        return functional.binary_cross_entropy_with_logits(logits, wanted[:, 1])
    return functional.cross_entropy(logits, wanted)


def _variation(images: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbouring pixels, down and across."""
    down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean()
    return down + (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().mean()


class _Encoded(Function):
    """An encoding that numpy computes; its gradient is the transpose."""

    @staticmethod
    def forward(context: Any, update: Tensor, encode: Linear, transpose: Linear) -> Tensor:
        """Return E u."""
        context.transpose = transpose
        return torch.from_numpy(np.array(encode(update.detach().numpy())))

    @staticmethod
    def backward(context: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        """Return E^T times the slope."""
        return torch.from_numpy(np.array(context.transpose(slope.numpy()))), None, None
