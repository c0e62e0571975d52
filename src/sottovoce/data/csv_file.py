"""Read a whole table of text: csv or tsv, plain, .gz, .xz or the one table in a .zip."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zipfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from sottovoce.core.errors import DataError
from sottovoce.data.files import damaged

__all__ = ["SUFFIXES", "Table", "is_table", "read_csv"]

SUFFIXES: Final = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv") for packed in ("", ".gz", ".xz", ".zip"))
LIMIT: Final = 1 << 28  # bytes of text; Python needs about ten times as much to hold it


@dataclass(frozen=True)
class Table:
    """Columns by name, all of one length, with the place of each row for messages."""

    name: str
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int] | None = None  # of the file, where there is one

    @property
    def records(self) -> int:
        """Count the rows."""
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """Say where a row is."""
        return f"{self.name} row {row + 1}" if self.lines is None else f"{self.name} line {self.lines[row]}"


def is_table(name: str) -> bool:
    """Tell whether a file name is that of a table."""
    return name.lower().endswith(SUFFIXES)


def read_csv(path: Path, limit: int = LIMIT) -> Table:
    """Read all rows; the first line names the columns.

    A column without a name (the row numbers that some programs write) is left out. If the header has no comma, a
    semicolon or a tab may separate the fields.
    """
    with damaged(path), _text(path, limit) as text:
        try:
            return _rows(path, text)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8") from None


def _rows(path: Path, text: io.TextIOWrapper) -> Table:
    first = text.readline()
    rows = csv.reader(_after(first, text), delimiter=_delimiter(path, first), strict=True)
    header = [name.strip() for name in next(rows, [])]
    named = [(place, name) for place, name in enumerate(header) if name]
    if not named:
        raise DataError(f"{path} is empty or begins with an empty line; its first line must name the columns")
    names = [name for _, name in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{path} has two columns {twice!r}; rename one")
    columns: list[list[str]] = [[] for _ in named]
    pools: list[dict[str, str]] = [{} for _ in named]  # equal cells share one string
    lines = array("q")
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{path} line {rows.line_num} has {len(row)} fields, the header {len(header)}; "
                "mend the line, and put quotes around fields that hold the separator"
            )
        lines.append(rows.line_num)
        for column, pool, (place, _) in zip(columns, pools, named, strict=True):
            cell = row[place].strip()
            column.append(pool.setdefault(cell, cell))
    if not lines:
        raise DataError(f"{path} has a header and no records")
    return Table(str(path), dict(zip(names, columns, strict=True)), lines)


def _after(first: str, text: io.TextIOWrapper) -> Iterator[str]:
    yield first
    yield from text


def _delimiter(path: Path, header: str) -> str:
    if ".tsv" in path.suffixes[-2:]:
        return "\t"
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


@contextmanager
def _text(path: Path, limit: int) -> Iterator[io.TextIOWrapper]:
    """Open a file as text and refuse to read more than `limit` bytes of it, unpacked."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            tables = [name for name in archive.namelist() if is_table(name)]
            if len(tables) != 1:
                raise DataError(f"{path} holds {len(tables)} csv files, one was expected")
            with archive.open(tables[0]) as member, _limited(path, member, limit) as text:
                yield text
        return
    with path.open("rb") as file, _limited(path, _unpacked(path.suffix, file), limit) as text:
        yield text


def _unpacked(suffix: str, file: IO[bytes]) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    return cast(IO[bytes], lzma.LZMAFile(file)) if suffix == ".xz" else file


def _limited(path: Path, stream: IO[bytes], limit: int) -> io.TextIOWrapper:
    reader = io.BufferedReader(_Limited(path, stream, limit), 1 << 16)
    return io.TextIOWrapper(reader, encoding="utf-8-sig", newline="")


class _Limited(io.RawIOBase):
    """Stream that raises once more than `limit` bytes were read, whatever a header announced."""

    def __init__(self, path: Path, stream: IO[bytes], limit: int) -> None:
        super().__init__()
        self._path, self._stream, self._limit, self._left = path, stream, limit, limit

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        chunk = self._stream.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise DataError(
                f"{self._path} holds more than {self._limit / 2**20:.4g} MiB of text, too much to be read as a table; "
                "store its features as float32 in an npz file (docs/data.md)"
            )
        buffer[: len(chunk)] = chunk
        return len(chunk)
