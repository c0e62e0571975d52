"""Run a user's torch module as a program on flat buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from sottovoce.core.errors import DataError, RunError
from sottovoce.models.base import Flops
from sottovoce.models.module import TorchNetwork
from sottovoce.models.task import blank_labels
from sottovoce.models.torch_program import loss_of, split
from sottovoce.models.trainer import Shard

_LARGE: Final = 2**16  # weights from which a dense layer gains more by `_Deferred` than a Python function costs


class ModuleProgram:
    """The program of a torch module: a copy of it, its trained parameters turned into views of the flat buffer.

    The copy is in training mode where a client trains and in evaluation mode everywhere else, all of it.
    """

    def __init__(self, network: TorchNetwork, params: Tensor, gradient: Tensor) -> None:
        self._network = network
        self._device = params.device
        self.module = network.module().to(params.device).eval()
        named = dict(self.module.named_parameters())
        views = split(network.layout, params)
        for name, view in views.items():
            view.copy_(named[name].detach())
            named[name].data = view
        self._leaves: list[Tensor] = [named[name] for name in views]
        self._gradients = list(split(network.layout, gradient).values())
        self._products: list[_Product] = []
        if network.deferred:
            self._defer()

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return the logits of some records, dropout off."""
        with torch.no_grad():
            return self._shaped(self.outputs(x))

    def differentiate(self, batch: Shard, rng: Generator | None = None) -> None:
        """Fill the gradient buffer; with an `rng` in training mode, without one in evaluation mode."""
        gradients = self._backward(batch, training=rng is not None)
        missing = set()
        with torch.no_grad():
            for leaf, place, found in zip(self._leaves, self._gradients, gradients, strict=True):
                if found is None:
                    missing.add(id(leaf))
                else:
                    place.copy_(found)
            places = {id(leaf): place for leaf, place in zip(self._leaves, self._gradients, strict=True)}
            for weight, slope, x in self._products:
                places[id(weight)].addmm_(slope.t(), x, beta=0 if id(weight) in missing else 1)
                missing.discard(id(weight))
            for key in missing:  # of no use for this batch
                places[key].zero_()

    def descend(self, batch: Shard, lr: float, rng: Generator) -> None:
        """Take a step of plain SGD on the parameter buffer."""
        gradients = self._backward(batch, training=True)
        moves = [(leaf, found) for leaf, found in zip(self._leaves, gradients, strict=True) if found is not None]
        with torch.no_grad():
            if moves:
                torch._foreach_add_([leaf for leaf, _ in moves], [found for _, found in moves], alpha=-lr)
            for weight, slope, x in self._products:
                weight.addmm_(slope.t(), x, alpha=-lr)

    @contextmanager
    def drawing(self, rng: Generator) -> Iterator[None]:
        """Let torch draw from a generator that is seeded by this client's rng, whose own draws stay as they are."""
        seed = int(rng.spawn(1)[0].integers(2**63))
        cuda = self._device.type == "cuda"
        with torch.random.fork_rng([self._device] if cuda else []):
            torch.default_generator.manual_seed(seed)
            if cuda:
                torch.cuda.manual_seed(seed)
            yield

    def outputs(self, x: NDArray[Any], *, training: bool = False) -> Any:
        """Return what the module itself answers to some records."""
        if self.module.training != training:
            self.module.train(training)
        inputs = self.inputs(x)
        try:
            return self.module(inputs)
        except IndexError as error:
            if not self._network.tokens:
                raise
            raise DataError(
                f"{self._network.name} does not know all token ids from {inputs.min()} to {inputs.max()}: {error}"
            ) from None

    def _backward(self, batch: Shard, *, training: bool) -> tuple[Tensor | None, ...]:
        """Return what autograd knows of the gradient; the products have the rest."""
        logits = self._shaped(self.outputs(batch.x, training=training))
        loss = loss_of(self._network.task, logits, batch.y, batch.weights)
        self._products.clear()  # of a module that differentiates something in its own forward pass
        gradients = torch.autograd.grad(loss, self._leaves, allow_unused=True)
        return tuple(found.to_dense() if found is not None and found.is_sparse else found for found in gradients)

    def _shaped(self, outputs: Tensor) -> Tensor:
        # A module that squeezes drops the batch axis of a client with one record.
        task = self._network.task
        return outputs.reshape(-1) if task.flat else outputs.reshape(-1, task.outputs)

    def inputs(self, x: NDArray[Any]) -> Tensor:
        """Return some records as the module reads them."""
        x = x.reshape(len(x), *self._network.input_shape)
        if self._network.tokens:
            if not np.issubdtype(x.dtype, np.integer):
                raise DataError(f"{self._network.name} reads token ids, which are integers, got {x.dtype}")
            return torch.from_numpy(x.astype(np.int64)).to(self._device)
        if self._network.images == "copied":
            x = x.transpose(0, 3, 1, 2)
        scaled = np.multiply(x, np.float32(self._network.input_scale), dtype=np.float32, order="C")
        inputs = torch.from_numpy(scaled).to(self._device)
        return inputs.permute(0, 3, 1, 2) if self._network.images == "turned" else inputs

    def _defer(self) -> None:
        trained = {id(leaf) for leaf in self._leaves}
        for layer in self.module.modules():
            # Exactly this class: whoever derives from it may do something else with the weight.
            if type(layer) is nn.Linear and id(layer.weight) in trained and layer.weight.numel() >= _LARGE:
                layer.forward = partial(_linear, layer, self._products)  # type: ignore[method-assign]


class _Product(NamedTuple):
    """The gradient of a dense weight as the two factors it is the product of."""

    weight: Tensor
    slope: Tensor  # (rows, out)
    x: Tensor  # (rows, in)


def _linear(layer: nn.Linear, products: list[_Product], x: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return functional.linear(x, layer.weight, layer.bias)
    return _Deferred.apply(x, layer.weight, layer.bias, products)  # type: ignore[no-untyped-call, no-any-return]


class _Deferred(Function):
    """Compute a dense layer, and in the backward pass keep the weight's gradient as a product of two small factors.

    Large dense weights are most of many models, and autograd would allocate, fill and re-read a tensor of their size
    at every step. What else uses the weight goes through autograd as ever, and a layer that is called twice leaves two
    products, so the gradient is complete. Nothing moves before the backward pass is over.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, products: list[_Product]) -> Tensor:
        """Return the affine map of a batch."""
        context.save_for_backward(x)
        context.weight, context.products = weight, products
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        """Return the gradients of input and bias; keep the factors of the weight's."""
        if torch.is_grad_enabled():  # someone wants to differentiate this pass too; autograd would see a part
            raise RunError(
                "a large dense layer is differentiated twice; give dataclasses.replace(model, deferred=False)"
            )
        (x,) = context.saved_tensors
        weight = context.weight.detach()
        rows = slope.reshape(-1, slope.shape[-1])
        context.products.append(_Product(context.weight, rows, x.reshape(-1, x.shape[-1])))
        below = slope.matmul(weight) if context.needs_input_grad[0] else None
        return below, None, rows.sum(0) if context.needs_input_grad[2] else None, None


def count_flops(network: TorchNetwork) -> Flops:
    """Let torch count the products of a module's forward pass and of a step, on a batch of blank records."""
    from torch.utils.flop_counter import FlopCounterMode  # workers never need it

    records = 2  # a normalisation over the batch refuses a single record in training
    params, gradient = torch.zeros(network.dim), torch.zeros(network.dim)
    program = ModuleProgram(network, params, gradient)
    kind = np.int64 if network.tokens else np.float32
    blank = Shard(np.zeros((records, *network.input_shape), kind), blank_labels(network.task, records))
    with FlopCounterMode(display=False) as step, torch.random.fork_rng([]):
        program.differentiate(blank, np.random.default_rng(0))
    with FlopCounterMode(display=False) as forward, torch.random.fork_rng([]):
        program.logits(blank.x)
    weights = sum(tensor.numel() for tensor in program.module.parameters())
    return Flops(forward.get_total_flops() / records, step.get_total_flops() / records, weights)
