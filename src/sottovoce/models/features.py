"""Compute what a model's public front makes of many records."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sottovoce.models.base import Model
from sottovoce.models.network import Network

__all__ = ["all_features"]


def all_features(model: Model, x: NDArray[Any], threads: int) -> NDArray[Any]:
    """Return what the trained part of a model reads, for all stored records; the records themselves without a front."""
    if isinstance(model, Network) or model.trained is model:
        return x
    from sottovoce.models.fronted import Fronted
    from sottovoce.models.fronts.chunks import mapped
    from sottovoce.models.fronts.own import Own
    from sottovoce.models.partial import Partial

    if isinstance(model, Partial) and not model.cut:
        return x
    memory = 0
    if isinstance(model, Fronted):
        memory = model.front.memory
        threads = 1 if isinstance(model.front, Own) else threads  # nobody knows what a user's function shares
    return mapped(model.features, x, model.trained.input_shape, threads, memory)
