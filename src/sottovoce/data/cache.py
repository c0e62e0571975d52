"""Keep an unpacked copy of a data set that is slow to read, and map it into memory the next time.

Unpacking Fashion-MNIST takes seconds, mapping it a millisecond, and processes that map one file share its pages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import Dataset, Property

VERSION: Final = 4  # raise it when a reader gives other arrays for the same file
_ARRAYS: Final = ("x_train", "y_train", "x_test", "y_test")


def cache_folder() -> Path:
    """Return the folder for downloads and unpacked copies, by the custom of the platform; it may not exist yet."""
    if named := os.environ.get("XDG_CACHE_HOME", "").strip():
        return Path(named).expanduser() / "sottovoce"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "sottovoce"


def unpacked(name: str, files: Sequence[Path], read: Callable[[], Dataset]) -> Dataset:
    """Return what `read` returns, from a copy if these very files (path, size, time) were read before.

    A cache that cannot be written is no error, and a damaged copy is made anew.
    """
    try:
        folder = cache_folder() / "unpacked" / f"{name}-{_fingerprint(files)}"
    except OSError:
        return read()
    if (copy := _open(folder)) is not None:
        return copy
    dataset = read()
    _write(folder, dataset)
    return _open(folder) or dataset


def _fingerprint(files: Sequence[Path]) -> str:
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest()[:16]


def _open(folder: Path) -> Dataset | None:
    try:
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        arrays: dict[str, Any] = {name: _map(folder, name) for name in _ARRAYS}
        ids = _map(folder, "ids") if facts["ids"] else None
        properties = {
            name: Property(*(_map(folder, f"property-{part}-{place}") for part in Property._fields))
            for place, name in enumerate(facts["properties"])
        }
        return Dataset(
            facts["name"],
            **arrays,
            classes=facts["classes"],
            input_scale=facts["input_scale"],
            ids=ids,
            class_names=None if facts["class_names"] is None else tuple(facts["class_names"]),
            preprocessing=facts["preprocessing"],
            fitted=facts["fitted"],
            properties=properties,
            ranged=tuple(facts["ranged"]),
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, DataError):
        return None


def _map(folder: Path, name: str) -> NDArray[Any]:
    mapped: np.memmap[Any, Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)


def _write(folder: Path, dataset: Dataset) -> None:
    """Write all files elsewhere and move the folder into place, so that a copy is whole or absent."""
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
        try:
            arrays = {name: getattr(dataset, name) for name in (*_ARRAYS, *(() if dataset.ids is None else ("ids",)))}
            for place, known in enumerate(dataset.properties.values()):
                arrays |= {f"property-{part}-{place}": values for part, values in known._asdict().items()}
            for name, array in arrays.items():
                np.save(scratch / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
            facts = {
                "name": dataset.name,
                "classes": dataset.classes,
                "input_scale": dataset.input_scale,
                "ids": dataset.ids is not None,
                "class_names": dataset.class_names,
                "preprocessing": dataset.preprocessing,
                "fitted": dict(dataset.fitted),
                "properties": list(dataset.properties),
                "ranged": list(dataset.ranged),
            }
            (scratch / "facts.json").write_text(json.dumps(facts), "utf-8")
            if folder.exists():  # only a damaged copy is written again
                shutil.rmtree(folder, ignore_errors=True)
            scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
