"""Read a user's torch module into layers that the C kernels know; say None where it does anything else.

The graph is `torch.fx`'s: the module's own `forward` is run once on stand-ins, in training and in evaluation mode. What
fx cannot see (a context without gradients, a branch on values) is found by a trial: scores and gradients of the network
must be those of the module, at weights and records drawn at random.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional

from sottovoce.core.vectors import Vector
from sottovoce.models import fast
from sottovoce.models.compiled import Compiled
from sottovoce.models.module import TorchNetwork
from sottovoce.models.network import Conv2d, Flatten, Layer, Linear, MaxPool, Network, Padding
from sottovoce.models.partial import PartTrainer
from sottovoce.models.task import blank_labels
from sottovoce.models.torch_module import ModuleProgram
from sottovoce.models.trainer import LocalTraining, Shard

_RECORDS: Final = 5  # of the trial; not as many as the module was read with
_TOLERANCE: Final = 1e-3  # of a norm; float32 differs by 1e-6, another function by far more

_RELU: Final = (nn.ReLU, functional.relu, torch.relu, "relu", "relu_")
_POOL: Final = (functional.max_pool2d, torch.max_pool2d)
_RESHAPE: Final = (nn.Flatten, nn.Unflatten, nn.Identity, torch.flatten, torch.reshape, torch.squeeze)
_RESHAPE_METHODS: Final = ("flatten", "view", "reshape", "squeeze", "contiguous")
_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _UnknownError(Exception):
    """The module does something that the kernels have no layer for."""


def compile_module(model: TorchNetwork) -> Compiled | None:
    """Return the module as a network of layers, if it is one and computes the same; None otherwise."""
    if model.tokens or model.task.kernel is None or fast.unavailable() is not None:
        return None
    try:
        with torch.random.fork_rng([]):
            trained, evaluated = (_read(model, training) for training in (True, False))
            if trained != evaluated or fast.unsupported(trained.network, LocalTraining()) is not None:
                return None
            return trained if _agrees(model, trained) else None
    except Exception:  # whatever a user's forward raises on stand-ins; torch then trains it as it is
        return None


class _Call(NamedTuple):
    """One operation of a graph: who is called, with what, and the shapes of a record before and after it."""

    target: Any  # a layer, a function, or the name of a method
    arguments: dict[str, Any]
    before: tuple[int, ...]
    after: tuple[int, ...]
    path: str


def _read(model: TorchNetwork, training: bool) -> Compiled:
    module = model.module().train(training)
    _check_plain(module)
    turned = model.images != "stored"
    layers: list[Layer] = []
    sources: list[tuple[str, str]] = []
    for call in _calls(model, module):
        _append(layers, sources, call, turned)
    if sorted(theirs for _, theirs in sources) != sorted(name for name, _ in model.layout.tensors):
        raise _UnknownError("a parameter is used twice, or never, or stays as it is")
    network = Network(
        name=model.name,
        layers=tuple(layers),
        input_shape=model.input_shape,
        classes=model.classes,
        input_scale=model.input_scale,
        loss=model.loss,
        goal=model.goal,
    )
    return Compiled(network, model.layout, tuple(sources), turned)


def _check_plain(module: nn.Module) -> None:
    """Raise where something hooks itself into the passes: a graph does not show it."""
    for layer in module.modules():
        if any(getattr(layer, hooks, None) for hooks in _HOOKS) or "forward" in vars(layer):
            raise _UnknownError("a hook")
    for parameter in module.parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise _UnknownError("a hook on a gradient")


def _calls(model: TorchNetwork, module: nn.Module) -> list[_Call]:
    """Return the operations from records to scores; they must be one chain."""
    graph = fx.symbolic_trace(nn.Sequential(module))  # a module that is one layer stays one only inside another
    values: dict[fx.Node, Any] = {}
    calls: list[_Call] = []
    last: fx.Node | None = None

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    blank = ModuleProgram(model, torch.zeros(model.dim), torch.zeros(model.dim)).inputs(_records(model, 3))
    with torch.no_grad():
        Recorder(graph).run(blank)
    for node in graph.graph.nodes:
        if node.op == "output":
            if node.args != (last,):
                raise _UnknownError("the scores are not the end of the chain")
            return calls
        if not isinstance(values[node], Tensor):  # a size that some `view` asks for
            continue
        if node.op == "placeholder" and last is None:
            last = node
            continue
        if node.op == "get_attr" or last is None or node.args[:1] != (last,) or values[node].dtype != torch.float32:
            raise _UnknownError(f"{node.op} {node.target}")
        if last in node.args[1:] or last in node.kwargs.values() or len(values[node]) != 3:
            raise _UnknownError(f"{node.target} mixes records")
        target = graph.get_submodule(node.target) if node.op == "call_module" else node.target
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        arguments = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
        before, after = (tuple(values[at].shape[1:]) for at in (last, node))
        calls.append(_Call(target, arguments, before, after, str(node.target).removeprefix("0").removeprefix(".")))
        last = node
    raise _UnknownError("no output")


def _append(layers: list[Layer], sources: list[tuple[str, str]], call: _Call, turned: bool) -> None:
    """Add what a call does to the layers."""
    target = call.target
    kind = type(target) if isinstance(target, nn.Module) else target
    if kind in _RELU:
        _rectify(layers)
    elif kind is nn.Linear:
        _own(layers, sources, Linear(target.out_features, relu=False), call)
    elif kind is nn.Conv2d and turned:
        _own(layers, sources, _convolution(target), call)
    elif kind is nn.MaxPool2d and turned:
        layers.append(_pool({name: getattr(target, name) for name in _POOL_DEFAULTS}))
    elif kind in _POOL and turned:
        layers.append(_pool(call.arguments))
    elif kind in (nn.Dropout, nn.Dropout2d) and target.p == 0:
        pass
    elif kind in _RESHAPE or (isinstance(kind, str) and kind in _RESHAPE_METHODS):
        if call.after == (math.prod(call.before),):
            layers += [Flatten()] if len(call.before) > 1 else []
        elif call.after != call.before and not (call.before == (1,) and call.after == ()):
            raise _UnknownError(f"{call.path}: {call.before} becomes {call.after}")
    else:
        raise _UnknownError(call.path)


def _rectify(layers: list[Layer]) -> None:
    """Let the last layer end with ReLU; it may stand before or behind a max-pool, for the largest stays the largest."""
    at = len(layers) - 1
    while at >= 0 and isinstance(layers[at], MaxPool | Flatten):
        at -= 1
    layer = layers[at] if at >= 0 else None
    if isinstance(layer, Linear):
        layers[at] = Linear(layer.units)
    elif isinstance(layer, Conv2d):
        layers[at] = Conv2d(layer.filters, layer.kernel, padding=layer.padding)
    else:
        raise _UnknownError("ReLU without a layer before it")


def _own(layers: list[Layer], sources: list[tuple[str, str]], layer: Linear | Conv2d, call: _Call) -> None:
    """Add a layer with parameters, and say which of the module's they are."""
    path = f"{call.path}." if call.path else ""
    sources.append((f"{len(layers)}.kernel", f"{path}weight"))
    if call.target.bias is not None:
        sources.append((f"{len(layers)}.bias", f"{path}bias"))
    layers.append(layer)


def _convolution(layer: nn.Conv2d) -> Conv2d:
    size = layer.kernel_size[0]
    paddings: dict[Any, Padding] = {0: "valid", "valid": "valid", "same": "same"}
    if size % 2 and size > 1:
        paddings[size // 2] = "same"
    padding = layer.padding if isinstance(layer.padding, str) else _one(layer.padding)
    plain = (_one(layer.kernel_size), _one(layer.stride), _one(layer.dilation), layer.groups) == (size, 1, 1, 1)
    if not plain or layer.padding_mode != "zeros" or padding not in paddings:
        raise _UnknownError(str(layer))
    return Conv2d(layer.out_channels, size, relu=False, padding=paddings[padding])


_POOL_DEFAULTS: Final = {
    "kernel_size": None,
    "stride": None,
    "padding": 0,
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
}


def _pool(given: dict[str, Any]) -> MaxPool:
    known = _POOL_DEFAULTS | given
    size = _one(known["kernel_size"])
    stride = size if known["stride"] is None else _one(known["stride"])
    rest = (_one(known["padding"]), _one(known["dilation"]), known["ceil_mode"], known["return_indices"])
    if stride != size or rest != (0, 1, False, False) or set(known) != set(_POOL_DEFAULTS):
        raise _UnknownError(f"max-pool {known}")
    return MaxPool(size)


def _one(value: Any) -> int:
    """Return the size that both axes have."""
    sizes = set(value) if isinstance(value, tuple | list) else {value}
    if len(sizes) != 1:
        raise _UnknownError(f"two sizes: {value}")
    return int(sizes.pop())


def _agrees(model: TorchNetwork, compiled: Compiled) -> bool:
    """Tell whether network and module give the same scores and gradients, at weights and records drawn at random."""
    rng = np.random.default_rng(0)
    params, gradient = torch.zeros(model.dim), torch.zeros(model.dim)
    program = ModuleProgram(model, params, gradient)
    drawn = model.layout.join({name: _drawn(shape, rng) for name, shape in model.layout.tensors})
    params.copy_(torch.from_numpy(drawn))
    shard = Shard(_records(model, _RECORDS), blank_labels(model.task, _RECORDS))
    trainer = PartTrainer(compiled, fast.FastTrainer(compiled.network, LocalTraining()))
    for training in (True, False):
        program.differentiate(shard, rng if training else None)
        if not _close(trainer.gradient(drawn, shard), gradient.numpy()):
            return False
        if not _close(trainer.scores(drawn, shard.x), program.outputs(shard.x, training=training).detach().numpy()):
            return False
    return True


def _drawn(shape: tuple[int, ...], rng: Generator) -> NDArray[np.float32]:
    return np.asarray(rng.normal(size=shape) / math.sqrt(max(1, math.prod(shape[1:]))), np.float32)


def _records(model: TorchNetwork, count: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(1).normal(size=(count, *model.input_shape)) / model.input_scale
    return np.asarray(drawn, np.float32)


def _close(ours: Vector, theirs: NDArray[Any]) -> bool:
    theirs = theirs.reshape(ours.shape)
    return bool(np.linalg.norm(ours - theirs) <= _TOLERANCE * np.linalg.norm(theirs))
