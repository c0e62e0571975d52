"""Share arrays with worker processes, without a name to leak: an unlinked file whose descriptor the workers inherit."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
_ALIGN = 64


class ArrayPlace(NamedTuple):
    """The place of an array in the shared file."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


def publish(arrays: Arrays) -> tuple[int, dict[str, ArrayPlace]]:
    """Copy arrays into a new shared file; return its descriptor and the map to read it with.

    The kernel frees the file with its last descriptor, also after kill -9 of everyone.
    """
    places: dict[str, ArrayPlace] = {}
    size = 0
    for name, array in arrays.items():
        places[name] = ArrayPlace(size, array.dtype.str, array.shape)
        size += -(-max(array.nbytes, 1) // _ALIGN) * _ALIGN
    with tempfile.TemporaryFile(dir=_folder(size)) as file:
        for name, array in arrays.items():
            file.seek(places[name].offset)
            file.write(np.ascontiguousarray(array).data if array.size else b"")
            let_go(array)
        file.truncate(max(size, 1))
        file.flush()
        return os.dup(file.fileno()), places


def view(descriptor: int, places: dict[str, ArrayPlace]) -> Arrays:
    """Map a shared file and return its arrays, read-only."""
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    return {
        name: np.frombuffer(memory, np.dtype(dtype), count=int(np.prod(shape)), offset=offset).reshape(shape)
        for name, (offset, dtype, shape) in places.items()
    }


def let_go(array: NDArray[Any]) -> None:
    """Give back the memory of an array that maps a file read-only; its pages come again when they are touched."""
    if array.flags.writeable:
        return
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


def _folder(size: int) -> Path | None:
    """Choose memory over disk where it has room; containers often give /dev/shm 64 MB only."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        status = os.statvfs(memory)
        if status.f_bavail * status.f_frsize > 2 * size:
            return memory
    return None
