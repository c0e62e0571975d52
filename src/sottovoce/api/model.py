"""Read what a user calls a model: a name, a network of layers, or any torch module."""

from __future__ import annotations

import sys
from typing import Any

from sottovoce.api.data import Reader
from sottovoce.core.errors import InputError
from sottovoce.core.target import Target
from sottovoce.models import Model, TaskKeys, make_model
from sottovoce.models.base import Shape
from sottovoce.models.zoo import wanted_of


def reader_of(model: Any, front: str = "none") -> Reader:
    """Say what a model, or the front before it, asks of the data, before the data is read."""
    if isinstance(model, str):
        return Reader(named=True, tokens=model == "imdb-lstm" or front == "hashed")
    if front != "none":
        raise InputError(
            f"front={front!r} is for a model that is named, such as 'logistic', got {type(model).__name__}; name one, "
            "or give the features as data"
        )
    layers = model.modules() if _is_module(model) else getattr(model, "layers", ())
    tokens = any(type(layer).__name__ in ("Embedding", "EmbeddingBag") for layer in layers)
    return Reader(named=not _is_module(model), tokens=tokens)


def make(
    model: Any, shape: Shape, classes: int, *, input_scale: float, task: TaskKeys, target: Target, **keys: Any
) -> Model:
    """Return the model for records of this shape, or refuse it in one sentence.

    A torch module reads records as they are. One that cannot, and can read images with the channels first, gets them
    turned from (height, width, channels).
    """
    if not _is_module(model):
        return make_model(model, shape, classes, input_scale=input_scale, task=task, target=target, **keys)
    if keys:
        raise InputError(f"{next(iter(keys))}= is for the model that is named 'mlp', not for a torch module; remove it")
    from sottovoce.models.wrap import wrap_module  # torch is there already: the user's module needed it

    goal = wanted_of(task, classes, target)
    try:
        return wrap_module(model, shape, classes, input_scale=input_scale, turned=False, task=goal)
    except InputError as error:
        if len(shape) != 3:
            raise
        try:
            return wrap_module(model, shape, classes, input_scale=input_scale, turned=True, task=goal)
        except InputError:
            raise error from None


def _is_module(model: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)
