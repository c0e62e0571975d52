"""Read CIFAR-10's own archives: the binary version, and the pickled one without ever running a pickle's code."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import Dataset
from sottovoce.data.files import damaged

BINARY: Final = tuple(
    f"cifar-10-batches-bin/{name}.bin" for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
)
PICKLED: Final = tuple(
    f"cifar-10-batches-py/{name}" for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
)
BATCH_LIMIT: Final = 64 << 20
_PIXELS: Final = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def read_folder(folder: Path) -> Dataset:
    """Read the unpacked batches, binary or pickled, below a folder."""
    names = BINARY if (folder / BINARY[0]).exists() else PICKLED
    batches: dict[str, Batch] = {}
    for name in names:
        path = folder / name
        with damaged(path):
            if path.stat().st_size > BATCH_LIMIT:
                raise DataError(f"{path} has {path.stat().st_size} bytes, a batch at most {BATCH_LIMIT}")
            batches[name] = _parser(name)(path, path.read_bytes())
    return _join(names, batches)


def read_archive(path: Path) -> Dataset:
    """Read `cifar-10-binary.tar.gz` or `cifar-10-python.tar.gz` in one pass, writing nothing to disk."""
    batches: dict[str, Batch] = {}
    with damaged(path):
        try:
            with tarfile.open(path, "r|gz") as archive:
                for member in archive:
                    if member.name not in BINARY + PICKLED:
                        continue
                    stream = archive.extractfile(member)
                    if stream is None or member.size > BATCH_LIMIT:
                        raise DataError(f"{path}: {member.name} is no file of at most {BATCH_LIMIT} bytes")
                    batches[member.name] = _parser(member.name)(path, stream.read())
        except tarfile.TarError as error:
            raise DataError(f"{path} is damaged ({error}); fetch or copy it again") from None
    names = BINARY if BINARY[0] in batches else PICKLED
    missing = [name for name in names if name not in batches]
    if missing:
        raise DataError(f"{path} holds no {', '.join(missing)}")
    return _join(names, batches)


def _join(names: tuple[str, ...], batches: dict[str, Batch]) -> Dataset:
    x_train = np.concatenate([batches[name][0] for name in names[:-1]])
    y_train = np.concatenate([batches[name][1] for name in names[:-1]])
    x_test, y_test = batches[names[-1]]
    return Dataset("cifar10", x_train, y_train, x_test, y_test, classes=10, input_scale=1 / 255)


def _parser(name: str) -> Callable[[Path, bytes], Batch]:
    return _parse_binary if name in BINARY else _parse_pickle


def _parse_binary(path: Path, body: bytes) -> Batch:
    if not body or len(body) % (1 + _PIXELS):
        raise DataError(f"{path}: a batch of {len(body)} bytes is no whole number of {1 + _PIXELS}-byte records")
    records = np.frombuffer(body, np.uint8).reshape(-1, 1 + _PIXELS)
    return _images(records[:, 1:]), records[:, 0].copy()


def _parse_pickle(path: Path, body: bytes) -> Batch:
    try:
        content = _Unpickler(io.BytesIO(body), encoding="bytes").load()
        _, shape, _, fortran, raw = content[b"data"].state
        pixels = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")
        labels = np.array(content[b"labels"], np.int64)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:
        # A hostile or torn pickle can raise anything; none of it may pass as a traceback.
        raise DataError(f"{path} is no CIFAR-10 batch ({type(error).__name__}: {error})") from None
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or labels.shape != pixels.shape[:1]:
        raise DataError(f"{path}: a batch has pixels of shape {pixels.shape} and labels of shape {labels.shape}")
    if labels.size and (labels.min() < 0 or labels.max() > 9):
        raise DataError(f"{path}: labels go from {labels.min()} to {labels.max()}; they must lie in [0, 9]")
    return _images(pixels), labels.astype(np.uint8)


def _images(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn rows of red, green and blue planes into NHWC images."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _Inert:
    """Harmless substitute for numpy's classes: keeps the state that the pickle hands over and does nothing with it."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(*_: Any) -> _Inert:
    return _Inert()


_KNOWN: Final[dict[tuple[str, str], Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Inert,
}


# The unpickler written in Python: the one in C allocates whatever a memo index or a length in the file announces.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise DataError(
                f"the pickle asks for {module}.{name}, which no CIFAR-10 batch needs; it was refused"
            ) from None
