"""Compute what a model's public front makes of many records, and keep it for runs that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.base import Model

_MOST: Final = 2**29  # bytes of features that are kept

Kept = dict[bytes, NDArray[Any]]
_KEPT: Final[ContextVar[Kept | None]] = ContextVar("kept", default=None)


def all_features(model: Model, x: NDArray[Any], threads: int) -> NDArray[Any]:
    """Return what the trained part of a model reads, for all stored records; the records themselves without a front."""
    if not (fingerprint := model.fingerprint):
        return x
    if (kept := _KEPT.get()) is None:
        return model.map_features(x, threads)
    key = _key(fingerprint, x)
    if (features := kept.get(key)) is None:
        features = model.map_features(x, threads)
        _keep(kept, key, features)
    return features


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


def _key(fingerprint: bytes, x: NDArray[Any]) -> bytes:
    """Return a digest of all that decides the features: the front, the frozen layers, and every record."""
    digest = hashlib.blake2b(f"{x.dtype} {x.shape}".encode())
    digest.update(np.ascontiguousarray(x).data)
    digest.update(fingerprint)
    return digest.digest()
