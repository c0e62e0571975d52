"""Build the papers' networks by name (thesis, section 8.3).

Choices that the papers leave open: convolutions have a ReLU and keep the size of the image ("same"), except in
`imdb-lstm`, whose convolution shortens the sequence ("valid") as in the Keras example it comes from. `logistic` and
`mlp` have one output and the binary cross entropy for two classes, a softmax for more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.target import CLASSES, Target
from sottovoce.core.validate import in_range, one_of
from sottovoce.models.base import Model, Shape, Whole
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
from sottovoce.models.own_loss import check_loss
from sottovoce.models.task import USUAL, LearningTask, TaskKeys

Layers = tuple[Layer, ...]


@dataclass(frozen=True)
class _Recipe:
    """Which records a network reads, and how its layers follow from their shape."""

    layers: Callable[[int, int], Layers]  # from the number of outputs and the hidden units
    rank: int | None  # of a record; None: any, because it is flattened first
    smallest: int  # length of every axis but the channels
    fits: str
    binary: bool | None = None  # None: one output when there are two classes
    widens: bool = False  # whether all its widths may be multiplied


def network(
    name: str,
    input_shape: Shape,
    classes: int,
    *,
    input_scale: float | None = None,
    hidden: int = 128,
    width: float = 1.0,
    task: TaskKeys = USUAL,
    target: Target = CLASSES,
) -> Network:
    """Return a network for records of a shape; images are scaled by 1/255 unless told otherwise, other records by 1.

    `hidden` is the width of `mlp`; the other networks have the papers' widths, times `width`. `task` says what is
    learnt, and `target` what a label is.

    >>> network("cnn", (28, 28, 1), 10).dim
    1663370
    """
    one_of("model.name", name, NAMES)
    in_range("model.hidden", hidden, low=1)
    in_range("model.width", width, low=0, high=4, open_low=True)
    recipe = _RECIPES[name]
    if width != 1 and not recipe.widens:
        scaled = [other for other, one in _RECIPES.items() if one.widens]
        raise InputError(f"model.width is for {', '.join(scaled)}, not for {name!r}; remove it")
    axes = input_shape[:-1] if len(input_shape) == 3 else input_shape
    if recipe.rank not in (None, len(input_shape)) or min(input_shape, default=0) < 1 or min(axes) < recipe.smallest:
        raise InputError(f"model {name!r} cannot read records of shape {input_shape}; it fits {recipe.fits}")
    usual = task.task == "classification"
    if name == "logistic" and task.task == "regression":
        raise InputError("model 'logistic' tells classes apart; for task = 'regression' it is called 'linear'")
    if usual and recipe.binary and classes != 2:
        raise InputError(f"model {name!r} tells 2 classes apart, got {classes}; use 'mlp' or 'cnn'")
    binary = classes == 2 if recipe.binary is None else recipe.binary
    goal = task.make(classes, target, single=binary)
    check_loss(goal)
    if input_scale is None:
        input_scale = 1 / 255 if len(input_shape) == 3 else 1.0
    return Network(
        name=name,
        layers=_widened(recipe.layers(goal.outputs, hidden), width),
        input_shape=tuple(input_shape),
        classes=classes,
        input_scale=input_scale,
        loss="bce" if goal.binary else "ce",
        goal=None if task == USUAL else goal,
    )


def _widened(layers: Layers, width: float) -> Layers:
    """Return the layers with all widths but the outputs' multiplied, at least 1."""
    if width == 1:
        return layers
    last = max(place for place, layer in enumerate(layers) if isinstance(layer, Conv2d | Linear))

    def wide(place: int, layer: Layer) -> Layer:
        if place == last:
            return layer
        if isinstance(layer, Conv2d):
            return replace(layer, filters=max(1, round(layer.filters * width)))
        return replace(layer, units=max(1, round(layer.units * width))) if isinstance(layer, Linear) else layer

    return tuple(wide(place, layer) for place, layer in enumerate(layers))


def _logistic(outputs: int, _: int) -> Layers:
    return (Flatten(), Linear(outputs, relu=False))


def _mlp(outputs: int, hidden: int) -> Layers:
    return (Flatten(), Linear(hidden), Linear(outputs, relu=False))


def _cnn(outputs: int, _: int) -> Layers:
    return (
        *(Conv2d(32, 5), MaxPool(2)),
        *(Conv2d(64, 5), MaxPool(2)),
        *(Flatten(), Linear(512), Linear(outputs, relu=False)),
    )


def _all_cnn_c(outputs: int, _: int) -> Layers:
    return (
        *(Conv2d(96, 3), Conv2d(96, 3), Conv2d(96, 3, stride=2), DropoutLayer(0.5)),
        *(Conv2d(192, 3), Conv2d(192, 3), Conv2d(192, 3, stride=2), DropoutLayer(0.5)),
        *(Conv2d(192, 3), Conv2d(192, 1), Conv2d(outputs, 1, relu=False)),
        GlobalAveragePool(),
    )


def _imdb_lstm(outputs: int, _: int) -> Layers:
    return (Embedding(5000, 50), Conv1d(250, 5), MaxPool1d(3), Lstm(70), Linear(outputs, relu=False))


def _lfw_cnn(outputs: int, _: int) -> Layers:
    return (
        *(Conv2d(32, 3), MaxPool(2)),
        *(Conv2d(64, 3), MaxPool(2)),
        *(Conv2d(128, 3), MaxPool(2)),
        *(Flatten(), Linear(256), Linear(outputs, relu=False)),
    )


def _hospital_mlp(outputs: int, _: int) -> Layers:
    return (Linear(200), DropoutLayer(0.5), Linear(200), DropoutLayer(0.5), Linear(outputs, relu=False))


_RECIPES: Final = {
    "logistic": _Recipe(_logistic, None, 1, "records of any shape"),
    "linear": _Recipe(_logistic, None, 1, "records of any shape"),
    "mlp": _Recipe(_mlp, None, 1, "records of any shape"),
    "cnn": _Recipe(_cnn, 3, 4, "images (height, width, channels) of 4 x 4 or more", False, widens=True),
    "all-cnn-c": _Recipe(_all_cnn_c, 3, 4, "images (height, width, channels) of 4 x 4 or more", False, widens=True),
    "imdb-lstm": _Recipe(_imdb_lstm, 1, 7, "sequences (length) of 7 tokens or more", binary=True),
    "lfw-cnn": _Recipe(_lfw_cnn, 3, 8, "images (height, width, channels) of 8 x 8 or more", False, widens=True),
    "hospital-mlp": _Recipe(_hospital_mlp, 1, 1, "rows (features)", True, widens=True),
}

NAMES: Final = tuple(_RECIPES)


def make_model(
    model: Any,
    input_shape: Shape,
    classes: int,
    *,
    input_scale: float | None = None,
    hidden: int = 128,
    task: TaskKeys = USUAL,
    target: Target = CLASSES,
) -> Model:
    """Return a model for records of a shape, or refuse it before anything is computed.

    A `Network` or a `TorchNetwork` stays as it is, and must fit. A torch module is wrapped with what `wrap_module`
    does by default; its inputs are not scaled unless told otherwise. `hidden` is the width of the named "mlp".
    """
    if isinstance(model, str):
        return network(model, input_shape, classes, input_scale=input_scale, hidden=hidden, task=task, target=target)
    # Whoever has a torch module has imported torch; nobody else must wait for it.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from sottovoce.models.wrap import wrap_module

        scale = 1.0 if input_scale is None else input_scale
        return wrap_module(model, input_shape, classes, input_scale=scale, task=wanted_of(task, classes, target))
    if not issubclass(type(model), Whole):
        raise InputError(
            f"model must be one of {', '.join(NAMES)}, a Network, or a torch.nn.Module, got {type(model).__name__}"
            + ("; give an instance, not the class" if isinstance(model, type) else "")
        )
    if task != USUAL and model.task != wanted_of(task, classes, target):
        raise InputError(
            f"model {model.name} was made to learn {model.task.name} by another loss; give it the same goal"
        )
    if (tuple(model.input_shape), model.classes) != (tuple(input_shape), classes):
        raise InputError(
            f"model {model.name} reads records of shape {tuple(model.input_shape)} and tells {model.classes} classes "
            f"apart, but the data has shape {tuple(input_shape)} and {classes} classes"
        )
    return model  # type: ignore[no-any-return]


def wanted_of(task: TaskKeys, classes: int, target: Target) -> LearningTask | None:
    """Return the task of a model whose outputs are not known yet; None: the usual one of classes."""
    if task == USUAL:
        return None
    goal = task.make(classes, target, single=False)
    check_loss(goal)
    return goal
