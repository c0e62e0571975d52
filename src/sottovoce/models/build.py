"""Turn what a user calls a model into one: a name, a network of layers, or a torch module."""

from __future__ import annotations

import sys
from typing import Any

from sottovoce.core.errors import InputError
from sottovoce.models.base import Model
from sottovoce.models.network import Network, Shape
from sottovoce.models.zoo import NAMES, network

__all__ = ["make_model"]


def make_model(
    model: Any, input_shape: Shape, classes: int, *, input_scale: float | None = None, hidden: int = 128
) -> Model:
    """Return a model for records of a shape, or refuse it before anything is computed.

    A `Network` or a `TorchNetwork` stays as it is, and must fit. A torch module is wrapped with what `wrap_module`
    does by default; its inputs are not scaled unless told otherwise. `hidden` is the width of the named "mlp".
    """
    if isinstance(model, str):
        return network(model, input_shape, classes, input_scale=input_scale, hidden=hidden)
    # Whoever has a torch module has imported torch; nobody else must wait for it.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from sottovoce.models.wrap import wrap_module

        return wrap_module(model, input_shape, classes, input_scale=1.0 if input_scale is None else input_scale)
    if not _is_model(model):
        raise InputError(
            f"model must be one of {', '.join(NAMES)}, a Network, or a torch.nn.Module, got {type(model).__name__}"
            + ("; give an instance, not the class" if isinstance(model, type) else "")
        )
    if (tuple(model.input_shape), model.classes) != (tuple(input_shape), classes):
        raise InputError(
            f"model {model.name} reads records of shape {tuple(model.input_shape)} and tells {model.classes} classes "
            f"apart, but the data has shape {tuple(input_shape)} and {classes} classes"
        )
    return model  # type: ignore[no-any-return]


def _is_model(model: object) -> bool:
    if isinstance(model, Network):
        return True
    from sottovoce.models.module import TorchNetwork

    return isinstance(model, TorchNetwork)
