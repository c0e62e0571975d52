"""Compute what a model's public front makes of many records, and keep it for runs that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.base import Model
from sottovoce.models.network import Network

__all__ = ["all_features", "keeping_features"]

_MOST: Final = 2**29  # bytes of features that are kept

Kept = dict[bytes, NDArray[Any]]
_KEPT: Final[ContextVar[Kept | None]] = ContextVar("kept", default=None)


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
    kept, key = _KEPT.get(), b""
    if kept is not None:
        key = _key(model, x)
        if key in kept:
            return kept[key]
    memory = 0
    if isinstance(model, Fronted):
        memory = model.front.memory
        threads = 1 if isinstance(model.front, Own) else threads  # nobody knows what a user's function shares
    found = mapped(model.features, x, model.trained.input_shape, threads, memory)
    if kept is not None:
        _keep(kept, key, found)
    return found


@contextmanager
def keeping_features() -> Iterator[None]:
    """Keep features, while it lasts, for runs in this process with the same front and records; at most 512 MiB."""
    before = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(before)


def _keep(kept: Kept, key: bytes, found: NDArray[Any]) -> None:
    """Keep one more, and let the oldest go where there is no room."""
    found.flags.writeable = False
    kept[key] = found
    while sum(array.nbytes for array in kept.values()) > _MOST:
        del kept[next(iter(kept))]


def _key(model: Model, x: NDArray[Any]) -> bytes:
    """Return a digest of all that decides the features: the front, the frozen layers, and every record."""
    from sottovoce.models.fronted import Fronted
    from sottovoce.models.partial import Partial

    digest = hashlib.blake2b(f"{x.dtype} {x.shape}".encode())
    digest.update(np.ascontiguousarray(x).data)
    if isinstance(model, Fronted):
        front: Any = model.front
        settings = [getattr(front, part.name) for part in fields(front) if part.name != "projection"]
        digest.update(f"{front.name} {settings}".encode())
        digest.update(front.payload())
        model = model.model
    if isinstance(model, Partial) and model.cut:
        digest.update(f"{model.network} {model.cut}".encode())
        digest.update(model.below.data)
    return digest.digest()
