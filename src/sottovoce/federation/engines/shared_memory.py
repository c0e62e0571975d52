"""Share arrays with worker processes, without a name to leak: an unlinked file whose descriptor the workers inherit."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.compact import CompactColumn, CompactFeatures

Arrays = dict[str, Any]  # arrays, and features of long tables that read like them
_ALIGN = 64


class ArrayPlace(NamedTuple):
    """The place of an array in the shared file."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class CompactPlace(NamedTuple):
    """The places of compact features: of each column its width, and where its places and values are."""

    records: int
    columns: tuple[tuple[int, ArrayPlace | None, ArrayPlace | float], ...]


Places = dict[str, ArrayPlace | CompactPlace]


def publish(arrays: Arrays) -> tuple[int, Places]:
    """Copy arrays into a new shared file; return its descriptor and the map to read it with.

    The kernel frees the file with its last descriptor, also after kill -9 of everyone.
    """
    shared: list[tuple[int, NDArray[Any]]] = []
    size = 0

    def place(array: NDArray[Any]) -> ArrayPlace:
        nonlocal size
        shared.append((size, array))
        size += -(-max(array.nbytes, 1) // _ALIGN) * _ALIGN
        return ArrayPlace(shared[-1][0], array.dtype.str, array.shape)

    def compact(features: CompactFeatures) -> CompactPlace:
        columns = [
            (
                column.width,
                None if column.places is None else place(column.places),
                place(column.values) if isinstance(column.values, np.ndarray) else float(column.values),
            )
            for column in features.columns
        ]
        return CompactPlace(features.records, tuple(columns))

    places: Places = {
        name: compact(array) if isinstance(array, CompactFeatures) else place(array) for name, array in arrays.items()
    }
    with tempfile.TemporaryFile(dir=_folder(size)) as file:
        for offset, array in shared:
            file.seek(offset)
            file.write(np.ascontiguousarray(array).data if array.size else b"")
            let_go(array)
        file.truncate(max(size, 1))
        file.flush()
        return os.dup(file.fileno()), places


def view(descriptor: int, places: Places) -> Arrays:
    """Map a shared file and return its arrays, read-only."""
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)

    def array(place: ArrayPlace) -> NDArray[Any]:
        found = np.frombuffer(memory, np.dtype(place.dtype), count=int(np.prod(place.shape)), offset=place.offset)
        return found.reshape(place.shape)

    def compact(features: CompactPlace) -> Any:
        columns = (
            CompactColumn(
                width,
                None if at is None else array(at),
                array(values) if isinstance(values, ArrayPlace) else np.float32(values),
            )
            for width, at, values in features.columns
        )
        return CompactFeatures(tuple(columns), features.records)

    return {name: compact(place) if isinstance(place, CompactPlace) else array(place) for name, place in places.items()}


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
