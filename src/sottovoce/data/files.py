"""Read npz, idx and csv files without trusting what their headers claim.

Memory grows only by bytes that were really read, and every kind of damage is a `DataError` that names the file.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError

CHUNK: Final = 1 << 20
IDX_LIMIT: Final = 1 << 30
TABLE_LIMIT: Final = 1 << 28
_IDX_BYTES: Final = 8  # the idx type code of unsigned bytes

_DAMAGE = (EOFError, OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile, lzma.LZMAError, zlib.error)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Turn any error while reading into one sentence about the file."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except PermissionError:
        raise DataError(f"{path} may not be read; check its permissions") from None
    except (*_DAMAGE, MemoryError, NotImplementedError, RuntimeError, csv.Error) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} is damaged or not what its name says ({reason}); fetch or copy it again") from None


def read_npz(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an npz file, and those of the optional ones that it has; no pickles."""
    with damaged(path), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        wanted = list(names)
        missing = [name for name in wanted if name not in members]
        if missing:
            raise DataError(f"{path} has no array {', '.join(missing)}; it needs {', '.join(wanted)}")
        chosen = wanted + [name for name in optional if name in members]
        return {name: _read_npy(path, name, archive, members[name]) for name in chosen}


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the unsigned bytes of an idx file, plain or gzipped."""
    with damaged(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        opening = stream.read(4)
        if len(opening) < 4 or opening[:3] != bytes((0, 0, _IDX_BYTES)) or not 1 <= opening[3] <= 4:
            raise DataError(f"{path} is not an idx file of unsigned bytes: it begins with {opening!r}")
        sizes = stream.read(4 * opening[3])
        if len(sizes) < 4 * opening[3]:
            raise DataError(f"{path} is truncated inside its header")
        shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
        claimed = math.prod(shape)
        if claimed > IDX_LIMIT:
            raise DataError(f"{path} announces {claimed} bytes; no data set known here has more than {IDX_LIMIT}")
        body = _read_exactly(path, cast(IO[bytes], stream), claimed)
        return np.frombuffer(body, np.uint8).reshape(shape)


def read_table(path: Path, columns: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the named columns of a csv file (plain, .xz, or the one csv in a .zip), row by row."""
    with damaged(path), io.TextIOWrapper(_open_table(path), encoding="utf-8", newline="") as text:
        rows = csv.reader(text)
        header = next(rows, [])
        wanted = list(columns)
        missing = [name for name in wanted if name not in header]
        if missing:
            raise DataError(f"{path} has no column {', '.join(missing)}")
        places = [header.index(name) for name in wanted]
        for row in rows:
            if len(row) != len(header):
                raise DataError(f"{path} line {rows.line_num} has {len(row)} fields, the header {len(header)}")
            yield tuple([row[place] for place in places])


def read_member(path: Path, name: str, *, limit: int) -> bytes:
    """Return one member of a zip file, found by its last name, if it holds at most `limit` bytes."""
    with damaged(path), zipfile.ZipFile(path) as archive:
        found = [info for info in archive.infolist() if Path(info.filename).name == name]
        if not found:
            raise DataError(f"{path} holds no {name}")
        if found[0].file_size > limit:
            raise DataError(f"{path}: {name} announces {found[0].file_size} bytes, at most {limit} were expected")
        with archive.open(found[0]) as stream:
            return bytes(_read_exactly(path, stream, found[0].file_size))


def _open_table(path: Path) -> IO[bytes]:
    if path.suffix == ".xz":
        return cast(IO[bytes], lzma.open(path))
    if path.suffix != ".zip":
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:
        tables = [Path(name).name for name in archive.namelist() if name.endswith(".csv")]
    # The archive of diabetes130 also holds a small table of code names.
    tables = [name for name in tables if name != "IDS_mapping.csv"]
    if len(tables) != 1:
        raise DataError(f"{path} holds {len(tables)} csv files, one was expected")
    return io.BytesIO(read_member(path, tables[0], limit=TABLE_LIMIT))


def _read_npy(path: Path, name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise DataError(f"{path}: {name} has npy version {version}, known are 1.0 and 2.0")
        if dtype.hasobject:
            raise DataError(f"{path}: {name} holds Python objects; save plain numbers (they would run code on loading)")
        if any(size < 0 for size in shape):
            raise DataError(f"{path}: {name} announces the shape {shape}")
        body = _read_exactly(path, stream, math.prod(shape) * dtype.itemsize)
        return np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")


def _read_exactly(path: Path, stream: IO[bytes], size: int) -> bytearray:
    """Return `size` bytes and insist on the end after them; the buffer grows with what comes, not with `size`."""
    body = bytearray()
    # One byte more than announced: reaching the end is also what makes zip and gzip compare their checksums.
    while chunk := stream.read(min(CHUNK, size + 1 - len(body))):
        body += chunk
        if len(body) > size:
            raise DataError(f"{path} is longer than the {size} bytes its header announces")
    if len(body) < size:
        raise DataError(f"{path} is truncated: {len(body)} of {size} announced bytes")
    return body
