"""Compute what a model's public front makes of many records, and keep it for runs that follow.

Features are kept in this process while `keeping_features` lasts, and on disk where a folder is named: a file for each
front and set of records, by a digest of both and of the code, readable by its owner alone, because features tell about
records as much as records do.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.files import PRIVATE, replacing
from sottovoce.models.base import Model

_MOST: Final = 2**29  # bytes of features that are kept
_MOST_ON_DISK: Final = 2**30
_LEAST_ON_DISK: Final = 2**20  # fewer are computed as fast as they are found
_DIGEST: Final = 32

Kept = dict[bytes, NDArray[Any]]
_KEPT: Final[ContextVar[Kept | None]] = ContextVar("kept", default=None)


def all_features(model: Model, x: NDArray[Any], threads: int, folder: Path | None = None) -> NDArray[Any]:
    """Return what the trained part of a model reads, for all stored records; the records themselves without a front.

    With a `folder` they are read from it if they are there, and else written to it; it holds at most 1 GiB.
    """
    if not (fingerprint := model.fingerprint):
        return x
    kept, disk = _KEPT.get(), folder if folder is not None and _lasts(model) else None
    if kept is None and disk is None:
        return model.map_features(x, threads)
    key = _key(fingerprint, x)
    features = None if kept is None else kept.get(key)
    if features is None:
        features = _computed(model, x, threads) if disk is None else _on_disk(model, x, threads, disk, key)
        if kept is not None:
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


def _lasts(model: Model) -> bool:
    """Tell whether the front is of ours alone: what a user's function or a library makes may change with its code."""
    from sottovoce.models.fronted import Fronted
    from sottovoce.models.fronts.own import Own

    return isinstance(model, Fronted) and not isinstance(model.front, Own) and not model.model.fingerprint


def _computed(model: Model, x: NDArray[Any], threads: int) -> NDArray[Any]:
    return model.map_features(x, threads)


def _on_disk(model: Model, x: NDArray[Any], threads: int, folder: Path, key: bytes) -> NDArray[Any]:
    """Return features from their file, or compute them and try to write it; a disk that refuses is no error."""
    width = model.trained.input_shape
    file = folder / f"{hashlib.blake2b(key + _code(), digest_size=_DIGEST).hexdigest()}.features"
    if (found := _read(file, (len(x), *width))) is not None:
        return found
    features = _computed(model, x, threads)
    if features.dtype == np.float32 and _LEAST_ON_DISK <= features.nbytes <= _MOST_ON_DISK // 2:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_room(folder, features.nbytes)
            body = np.ascontiguousarray(features).data.cast("B")
            with replacing(file, PRIVATE) as draft, draft.open("wb") as stream:
                stream.write(_check(body))
                stream.write(body)
            _touch(file)
    return features


def _read(file: Path, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Return the features in a file, if it is whole and undamaged; it is then the last that has to go."""
    try:
        found = np.fromfile(file, np.uint8)
        _touch(file)
    except OSError:
        return None
    body = found[_DIGEST:]
    if body.size != 4 * int(np.prod(shape)) or found[:_DIGEST].tobytes() != _check(body.data):
        return None
    features = body.view(np.float32).reshape(shape)
    features.flags.writeable = False
    return features


def _touch(file: Path) -> None:
    """Say that a file was used now: the system's own clock of files ticks a hundred times a second at best."""
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def _check(body: memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _make_room(folder: Path, size: int) -> None:
    """Remove the files that were used longest ago, until there is room for one more."""
    files = sorted((file.stat().st_mtime_ns, file.stat().st_size, file) for file in folder.glob("*.features"))
    while files and sum(each for _, each, _ in files) + size > _MOST_ON_DISK:
        files.pop(0)[2].unlink(missing_ok=True)


@cache
def _code() -> bytes:
    """Return a digest of the programs that compute features: other programs may compute others."""
    here = Path(__file__).parent
    libraries = [spec.origin for name in ("core", "models") if (spec := _library(name)) is not None]
    files = [*here.glob("fronts/*.py"), *(here / name for name in ("fronted.py", "whitening.py"))]
    digest = hashlib.blake2b(np.__version__.encode())
    for file in sorted([*files, *map(Path, filter(None, libraries))]):
        digest.update(file.read_bytes())
    return digest.digest()


def _library(room: str) -> Any:
    return find_spec(f"sottovoce.{room}._{'native' if room == 'core' else 'kernels'}")


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
