"""Turn a user's torch module into a model, and refuse in one sentence what cannot be federated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, Final

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Layout
from sottovoce.models.base import Shape
from sottovoce.models.module import Images, TorchNetwork
from sottovoce.models.task import ClassTask, LearningTask, blank_labels
from sottovoce.models.torch_compile import compile_module
from sottovoce.models.torch_module import ModuleProgram
from sottovoce.models.trainer import Shard

_RECORDS: Final = 3  # of a trial: two could be taken for two classes


def wrap_module(
    module: nn.Module,
    input_shape: Shape,
    classes: int,
    *,
    input_scale: float = 1.0,
    tokens: bool | None = None,
    turned: bool | None = None,
    name: str | None = None,
    task: LearningTask | None = None,
) -> TorchNetwork:
    """Return a copy of the module as a model that starts from the weights it has now; the module itself stays as it is.

    Records reach it as float32, times `input_scale`; if `tokens`, which is the default for a module with an
    `nn.Embedding`, as int64. Images, stored as (height, width, channels), reach it as (channels, height, width) if
    `turned`; by default they do unless the module can only read them as stored. It must answer with logits:
    (records, classes), or (records,) or (records, 1) for two classes, of which they are class 1's. With a `task` it
    must answer with as many values a record as that has outputs.
    """
    in_range("classes", classes, low=2 if task is None else 1)
    name = name or type(module).__name__
    _check_tensors(name, module)
    layers = list(module.modules())
    if tokens is None:
        tokens = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in layers)
    tensors = tuple((key, tuple(value.shape)) for key, value in module.named_parameters() if value.requires_grad)
    network = TorchNetwork(
        name=name,
        pickled=_pickled(name, module),
        layout=Layout(tensors),
        input_shape=tuple(input_shape),
        classes=classes,
        input_scale=input_scale,
        tokens=tokens,
        goal=task,
    )
    orders: tuple[Images, ...] = ("stored",)
    if len(input_shape) == 3 and not tokens:
        orders = {True: ("turned", "copied"), False: ("stored",), None: ("turned", "copied", "stored")}[turned]
    network = _tried(network, orders)
    return replace(network, compiled=compile_module(network))


def _check_tensors(name: str, module: nn.Module) -> None:
    """Raise unless the parameters can be copied into one flat vector of float32 values, and nothing else changes."""
    for path, layer in module.named_modules():
        if isinstance(layer, _NormBase) and (layer.track_running_stats or layer.running_mean is not None):
            raise InputError(
                f"{name}: {path or 'the module'} is a {type(layer).__name__} with running statistics, and BatchNorm "
                "statistics are not private: they follow the clients' records without clipping or noise; use GroupNorm"
            )
    tensors: dict[str, Tensor] = dict(module.named_parameters())
    tensors |= dict(module.named_buffers())
    for key, tensor in tensors.items():
        if is_lazy(tensor):
            raise InputError(
                f"{name}: {key} has no shape yet; run one batch through the module before you hand it over"
            )
        if tensor.device.type != "cpu":
            raise InputError(
                f"{name}: {key} is on device '{tensor.device}', but a module is handed over on 'cpu'; call "
                "module.cpu(), and name the device in [client] device"
            )
    for key, parameter in module.named_parameters():
        if not parameter.is_floating_point():
            raise InputError(f"{name}: parameters must be float32, {key} is {_type(parameter)}; make it a buffer")
        if parameter.dtype != torch.float32 or parameter.layout != torch.strided:
            raise InputError(
                f"{name}: parameters must be dense float32, {key} is {_type(parameter)}; call module.float()"
            )
        if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
            raise InputError(f"{name}: {key} has values that are not finite; initialise it before you hand it over")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError(
            f"{name} has no parameter that requires a gradient, so there is nothing to train; unfreeze one"
        )
    _check_storage(name, tensors)


def _check_storage(name: str, tensors: dict[str, Tensor]) -> None:
    """Raise if a trained parameter shares memory with another tensor: training would tear them apart."""
    covering, end = "", 0
    dense = [(key, tensor) for key, tensor in tensors.items() if tensor.layout == torch.strided and tensor.numel()]
    for key, tensor in sorted(dense, key=lambda item: item[1].data_ptr()):
        steps = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        if tensor.requires_grad and any(size > 1 and not step for size, step in zip(tensor.shape, steps, strict=True)):
            raise InputError(f"{name}: {key} repeats its values by an expanded view; call contiguous() on it")
        begin = tensor.data_ptr()
        if begin < end and (tensor.requires_grad or tensors[covering].requires_grad):
            raise InputError(
                f"{name}: {covering} and {key} are views of the same storage; clone one, or tie them by using one "
                "nn.Parameter under both names"
            )
        if (last := begin + tensor.element_size() * (1 + sum(steps))) > end:
            covering, end = key, last


def _pickled(name: str, module: nn.Module) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(module)
    except Exception as error:  # whatever a user's class raises
        raise InputError(f"{name} cannot be sent to worker processes: {_first_line(error)}") from error
    return pickled


def _tried(network: TorchNetwork, orders: tuple[Images, ...]) -> TorchNetwork:
    """Return the network with the first order of axes that its module reads, after a step of training on made-up data.

    A module that calls `view` fails on "turned" images and reads "copied" ones; one that differentiates in its own
    forward pass fails on deferred gradients.
    """
    failures: dict[Images, Exception] = {}
    for images, deferred in itertools.product(orders, (True, False)):
        candidate = replace(network, images=images, deferred=deferred)
        params, gradient = torch.zeros(network.dim), torch.zeros(network.dim)
        program = ModuleProgram(candidate, params, gradient)
        try:
            with program.drawing(np.random.default_rng(0)):
                candidate = _answering(candidate, program.outputs(_made_up(candidate)))
                _check_buffers(ModuleProgram(candidate, params, gradient), candidate)
        except InputError:
            raise
        except Exception as error:  # whatever a user's forward raises
            failures[images] = error
        else:
            return candidate
    order = "copied" if "copied" in failures else orders[0]
    given = (_RECORDS, *network.input_shape)
    if order == "copied":
        given = (_RECORDS, network.input_shape[2], *network.input_shape[:2])
    kind = "int64 token ids" if network.tokens else "float32 values"
    raise InputError(
        f"{network.name} cannot read records of shape {network.input_shape}: given {kind} of shape {given} it says: "
        f"{_first_line(failures[order])}"
    ) from failures[order]


def _answering(network: TorchNetwork, outputs: Any) -> TorchNetwork:
    """Return the network with the task that fits its outputs and the classes; a task that is given must fit them."""
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"{network.name} must return one tensor of logits, it returns {type(outputs).__name__}; wrap it in a "
            "module that returns its logits"
        )
    if outputs.dtype != torch.float32:
        raise InputError(f"{network.name} must return float32 logits, it returns {_type(outputs)}")
    given, task = tuple(outputs.shape), network.goal or ClassTask(network.classes)
    values = 1 if given in ((_RECORDS,), (_RECORDS, 1)) else given[1] if len(given) == 2 and given[0] == _RECORDS else 0
    fitting = task.fitting(values)
    if fitting is None:
        raise InputError(
            f"{network.name} gives outputs of shape {given} for {_RECORDS} records, but "
            + (
                f"the labels have {network.classes} classes; give it {network.classes} outputs"
                if task.name == "classification"
                else f"{task.name} needs {task.outputs} a record; give it {task.outputs} outputs"
            )
            + (" or 1" if task.fitting(1) is not None else "")
        )
    if network.goal is None:
        return replace(network, loss="bce" if fitting.binary else "ce")
    return replace(network, goal=fitting)


def _check_buffers(program: ModuleProgram, network: TorchNetwork) -> None:
    """Raise if the module changes a tensor of its own while a gradient is computed in training mode."""
    tensors: dict[str, Tensor] = dict(program.module.named_parameters()) | dict(program.module.named_buffers())
    before = {key: value.detach().clone() for key, value in tensors.items()}
    labels = blank_labels(network.task, _RECORDS)
    program.differentiate(Shard(_made_up(network), labels), np.random.default_rng(0))
    after: dict[str, Tensor] = dict(program.module.named_parameters()) | dict(program.module.named_buffers())
    for key, value in before.items():
        if not torch.equal(value, after[key].detach()):
            raise InputError(
                f"{network.name}: {key} changes while the module trains, and what is no trained parameter stays on a "
                "client: it would be lost, and it is not private; remove it, or make it constant"
            )


def _made_up(network: TorchNetwork) -> NDArray[Any]:
    shape = (_RECORDS, *network.input_shape)
    if network.tokens:
        return np.zeros(shape, np.int64)
    size = _RECORDS * math.prod(network.input_shape)
    return (np.arange(size, dtype=np.float32) % 7 / 7 / np.float32(network.input_scale)).reshape(shape)


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.") + ("" if tensor.layout == torch.strided else " and sparse")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
