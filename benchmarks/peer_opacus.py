"""Opacus on the work of `benchmarks.units` (one clipped sum) and of `benchmarks.sites` (a whole training)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from sottovoce.core.vectors import Vector
from sottovoce.federation.optimise import ServerStep
from sottovoce.models import Shard
from sottovoce.models.network import Conv2d, Flatten, Linear, MaxPool, Network
from sottovoce.privacy import PrivacyPlan

__all__ = ["clipped_sum", "trained"]

_AT_ONCE = 50  # records whose gradients are held at a time


def clipped_sum(
    net: Network, start: Vector, shard: Shard, clip_norm: float, batch: int
) -> Callable[[], NDArray[np.float32]]:
    """Return a function that computes the sum of the clipped gradients of all records, in the order of `net`."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook")
    layers = _layers(net, start)
    module = GradSampleModule(nn.Sequential(*layers), loss_reduction="sum")
    x = torch.from_numpy(shard.x)
    if x.ndim == 4:
        # Copied: Opacus 1.6 takes strides of (channels, height, width) for granted. With those that a permuted image of
        # one channel has, its gradient of the second convolution is zero.
        turned = x.permute(0, 3, 1, 2)
        x = torch.empty(turned.shape).copy_(turned)
    y = torch.from_numpy(shard.y.astype(np.float32 if net.binary else np.int64))
    loss: Any = nn.BCEWithLogitsLoss(reduction="sum") if net.binary else nn.CrossEntropyLoss(reduction="sum")
    plain = torch.optim.SGD(module.parameters(), lr=1.0)
    optimiser = DPOptimizer(plain, noise_multiplier=0.0, max_grad_norm=clip_norm, expected_batch_size=len(y))

    def work() -> NDArray[np.float32]:
        for parameter in optimiser.params:
            parameter.summed_grad = None
        for at in range(0, len(y), batch):
            logits = module(x[at : at + batch])
            loss(logits.reshape(-1) if net.binary else logits, y[at : at + batch]).backward()
            optimiser.clip_and_accumulate()
            for parameter in optimiser.params:
                parameter.grad_sample, parameter.grad = None, None
        return _flat(net, [parameter.summed_grad.numpy() for parameter in optimiser.params])

    return work


def trained(net: Network, start: Vector, shard: Shard, plan: PrivacyPlan, step: ServerStep) -> Vector:
    """Return the weights after DP-SGD on all records with the sampling, clip norm, noise and steps of a plan."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook")
    request = plan.request
    coins = np.random.default_rng(torch.initial_seed() % 2**32)
    module = GradSampleModule(nn.Sequential(*_layers(net, start)), loss_reduction="sum")
    expected = round(request.unit_rate * len(shard.y))
    optimiser = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=step.lr, momentum=step.momentum),
        noise_multiplier=plan.noise_multiplier,
        max_grad_norm=request.clip_norm,
        expected_batch_size=expected,
    )
    loss = nn.CrossEntropyLoss(reduction="sum")
    for round_ in range(1, plan.rounds + 1):
        optimiser.original_optimizer.param_groups[0]["lr"] = step.lr_at(round_)
        drawn = np.flatnonzero(coins.random(len(shard.y)) < request.unit_rate)
        for at in range(0, len(drawn), _AT_ONCE):
            rows = drawn[at : at + _AT_ONCE]
            x = torch.from_numpy(shard.x[rows].astype(np.float32) * np.float32(net.input_scale))
            x = torch.empty(x.permute(0, 3, 1, 2).shape).copy_(x.permute(0, 3, 1, 2))  # see `clipped_sum`
            loss(module(x), torch.from_numpy(shard.y[rows].astype(np.int64))).backward()
            optimiser.signal_skip_step(at + _AT_ONCE < len(drawn))
            optimiser.step()
            optimiser.zero_grad()
    return _flat(net, [parameter.detach().numpy() for parameter in optimiser.params])


def _layers(net: Network, start: Vector) -> list[nn.Module]:
    """Return the layers in torch, with the same weights."""
    tensors, layers = net.layout.views(start), list[nn.Module]()
    for number, layer in enumerate(net.layers):
        shape = net.shapes[number]
        made: nn.Module
        if isinstance(layer, Conv2d):
            made = nn.Conv2d(shape[2], layer.filters, layer.kernel, padding=layer.kernel // 2)
            weight = tensors[f"{number}.kernel"].transpose(3, 2, 0, 1)
        elif isinstance(layer, Linear):
            made = nn.Linear(shape[0], layer.units)
            weight = _turned(net, number, tensors[f"{number}.kernel"]).T
        elif isinstance(layer, MaxPool):
            layers.append(nn.MaxPool2d(layer.size))
            continue
        elif isinstance(layer, Flatten):
            layers.append(nn.Flatten())
            continue
        else:
            raise TypeError(f"{type(layer).__name__} is not known here")
        made.weight.data = torch.tensor(np.ascontiguousarray(weight))
        made.bias.data = torch.tensor(tensors[f"{number}.bias"])
        layers.append(made)
        if layer.relu:
            layers.append(nn.ReLU())
    return layers


def _turned(net: Network, number: int, kernel: NDArray[Any], *, back: bool = False) -> NDArray[Any]:
    """Return a dense kernel with its rows as torch flattens an image, channels first; `back`: the inverse."""
    if number == 0 or not isinstance(net.layers[number - 1], Flatten) or len(net.shapes[number - 1]) < 3:
        return kernel
    height, width, channels = net.shapes[number - 1]
    if back:
        return kernel.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(kernel.shape)
    return kernel.reshape(height, width, channels, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)


def _flat(net: Network, gradients: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    parts = []
    for (name, _), gradient in zip(net.layout.tensors, gradients, strict=True):
        number, tensor = name.split(".")
        if tensor == "kernel" and gradient.ndim == 4:
            gradient = gradient.transpose(2, 3, 1, 0)
        elif tensor == "kernel":
            gradient = _turned(net, int(number), gradient.T, back=True)
        parts.append(gradient.reshape(-1))
    return np.concatenate(parts)
