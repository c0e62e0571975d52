"""Read a whole table of text: csv or tsv, plain, .gz, .xz or the one table in a .zip; and several of them as one.

Separators (comma, semicolon, tab, bar) and encodings (UTF-8, Latin-1, UTF-16 with a mark) are recognised, or the
file is refused with the line. A long table is kept packed, so that a file of 1 GB needs less memory than its size.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import logging
import lzma
import re
import time
import zipfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from sottovoce.core.errors import DataError
from sottovoce.core.validate import nearest
from sottovoce.data.cells import TextBlocks, joined, pack
from sottovoce.data.files import damaged
from sottovoce.data.numerals import Decimal, Marks, parse_number

SUFFIXES: Final = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv") for packed in ("", ".gz", ".xz", ".zip"))
LIMIT: Final = 1 << 32  # bytes of text
BLOCK: Final = 1 << 18  # cells that are held unpacked

_SEPARATORS: Final = (",", ";", "\t", "|")
_SAMPLE: Final = 50  # lines by which the separator is chosen
_NOT_LATIN: Final = re.compile("[\x80-\x9f]|[\xc2-\xf4][\x80-\xbf]")  # control characters, or UTF-8 read as Latin-1
_PATIENCE: Final = 5.0  # seconds between two words about progress


@dataclass(frozen=True)
class CsvTable:
    """Columns by name, all of one length, with the place of each row for messages.

    `parts` are the tables that were joined, in order; empty: it is one. `decimal` is the declared decimal mark; None:
    it follows from the cells of each column and file.
    """

    name: str
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int] | None = None  # of the file, where there is one
    parts: tuple[CsvTable, ...] = field(default=(), repr=False)
    decimal: Decimal | None = None

    @property
    def records(self) -> int:
        """Count the rows."""
        return len(next(iter(self.columns.values()), ()))

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(part.records for part in self.parts))

    @cached_property
    def _marks(self) -> Marks:
        return Marks(self.columns)

    def decimal_of(self, column: str) -> Decimal | None:
        """Return the decimal mark of a column of one file; None: its cells leave two meanings open."""
        return self.decimal or self._marks.of(column)

    def place(self, row: int) -> str:
        """Say where a row is."""
        if self.parts:
            number = bisect_right(self._ends, row)
            return self.parts[number].place(row - self._ends[number] + self.parts[number].records)
        return f"{self.name} row {row + 1}" if self.lines is None else f"{self.name} line {self.lines[row]}"


def is_table(name: str) -> bool:
    """Tell whether a file name is that of a table."""
    return name.lower().endswith(SUFFIXES)


def join(tables: Sequence[CsvTable], name: str) -> CsvTable:
    """Return several tables with the same columns, in any order, as one."""
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    for other in tables[1:]:
        _check_equal(first, other)
    columns = {column: joined(table.columns[column] for table in tables) for column in first.columns}
    return CsvTable(name, columns, parts=tuple(tables))


def read_csv(path: Path, limit: int = LIMIT, decimal: Decimal | None = None) -> CsvTable:
    """Read all rows; the first line names the columns.

    A column without a name (the row numbers that some programs write) is left out.
    """
    with damaged(path):
        try:
            return _rows(path, limit, decimal, None)
        except UnicodeDecodeError:
            logging.getLogger(__name__).info("%s is not UTF-8; it is read as Latin-1", path)
            return _rows(path, limit, decimal, "latin-1")


class _Header(NamedTuple):
    width: int
    places: list[int]
    names: list[str]


def _rows(path: Path, limit: int, decimal: Decimal | None, encoding: str | None) -> CsvTable:
    with _text(path, limit, encoding) as text:
        lines = _checked(path, text) if encoding == "latin-1" else iter(text)
        sample = list(itertools.islice(lines, _SAMPLE))
        skipped = 0
        separator = ""
        if sample and (told := re.fullmatch(r'"?sep=(.)"?\s*', sample[0])):  # written by spreadsheets
            separator, skipped = told[1], 1
        separator = separator or _separator(path, sample)
        rows = csv.reader(itertools.chain(sample[skipped:], lines), delimiter=separator, strict=True)
        header = _header(path, next(rows, []))
        size = max(1, BLOCK // header.width)
        columns: list[list[Sequence[str] | bytes]] = [[] for _ in header.names]
        counts: list[int] = []
        numbers = array("q")
        while block := _block(path, rows, header, size, skipped, numbers):
            for place, cells in enumerate(zip(*block, strict=True)):
                stripped = [cell.strip() for cell in cells]
                if "\0" in "".join(stripped):
                    row = next(row for row, cell in enumerate(stripped, len(numbers) - len(block)) if "\0" in cell)
                    raise DataError(f"{path} line {numbers[row]} holds a zero byte, so it is no text; save it anew")
                columns[place].append(stripped if not counts and len(block) < size else pack(stripped))
            counts.append(len(block))
    if not counts:
        raise DataError(f"{path} has a header and no records")
    made: dict[str, Sequence[str]] = {}
    for name, parts in zip(header.names, columns, strict=True):
        made[name] = parts[0] if isinstance(parts[0], list) else TextBlocks(parts, counts)
    return CsvTable(str(path), made, numbers, decimal=decimal)


def _block(
    path: Path, rows: Any, header: _Header, size: int, skipped: int, numbers: array[int]
) -> list[tuple[str, ...]]:
    """Return the next rows, without columns that have no name; add the lines at which they end."""
    block: list[tuple[str, ...]] = []
    try:
        for row in rows:
            if not row:
                continue
            if len(row) != header.width:
                raise DataError(
                    f"{path} line {rows.line_num + skipped} has {len(row)} fields, the header {header.width}; "
                    "mend the line, and put quotes around fields that hold the separator"
                )
            numbers.append(rows.line_num + skipped)
            block.append(
                tuple(row) if len(header.places) == header.width else tuple(row[place] for place in header.places)
            )
            if len(block) == size:
                break
    except csv.Error as error:
        line = (numbers[-1] if numbers else skipped + 1) + 1
        raise DataError(
            f"{path} line {line}: a field that begins with a quote must end with one, and a quote inside it is written "
            f"twice ({error}); mend the line"
        ) from None
    return block


def _header(path: Path, fields: Sequence[str]) -> _Header:
    header = [" ".join(name.split()) for name in fields]  # a name may have a line break in it
    named = [(place, name) for place, name in enumerate(header) if name]
    if not named:
        raise DataError(f"{path} is empty or begins with an empty line; its first line must name the columns")
    names = [name for _, name in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{path} has two columns {twice!r}; rename one")
    if any("." in name or "," in name for name in names) and all(parse_number(name) is not None for name in names):
        raise DataError(f"{path} line 1 holds numbers only and looks like a record; put a line above it with the names")
    return _Header(len(header), [place for place, _ in named], names)


def _separator(path: Path, sample: Sequence[str]) -> str:
    """Return what separates the fields: it stands in the header, and cuts the first lines into as many fields."""
    if ".tsv" in path.suffixes[-2:]:
        return "\t"
    there = [mark for mark in _SEPARATORS if sample and mark in sample[0]]
    fitting = [mark for mark in there if _equal_widths(sample, mark)]
    if len(fitting) > 1:
        marks = " and ".join(repr(mark) for mark in fitting)
        raise DataError(f"{path} line 1 can be cut at {marks}; put quotes around names that hold a separator")
    return next(iter([*fitting, *there]), ",")


def _equal_widths(sample: Sequence[str], mark: str) -> bool:
    # The last line of a sample may be the first of a field with line breaks, which is no error here.
    try:
        widths = [len(row) for row in csv.reader(sample, delimiter=mark) if row]
    except csv.Error:
        return False
    whole = widths[:-1] if len(sample) == _SAMPLE else widths
    return bool(widths) and widths[0] > 1 and len(set(whole)) == 1


def _check_equal(first: CsvTable, other: CsvTable) -> None:
    """Raise unless both tables have the same columns; name every one that only one of them has."""
    missing = [name for name in first.columns if name not in other.columns]
    extra = [name for name in other.columns if name not in first.columns]
    if not missing and not extra:
        return
    hints = [f"{name!r} may be {guess!r}" for name in missing if (guess := nearest(name, extra))]
    said = [f"lacks {_few(missing)}"] * bool(missing) + [f"has {_few(extra)} beside"] * bool(extra)
    raise DataError(
        f"{other.name} {' and '.join(said)}: all files of one source need the columns of {first.name}"
        f"{'; ' + ', '.join(hints[:3]) if hints else ''}; rename or add columns"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _checked(path: Path, text: Iterator[str]) -> Iterator[str]:
    """Pass lines of Latin-1 on, and stop at one that is neither that nor UTF-8."""
    for number, line in enumerate(text, 1):
        if wrong := _NOT_LATIN.search(line):
            raise DataError(
                f"{path} line {number} is neither UTF-8 nor Latin-1 text (near {line[: wrong.start()][-12:]!r}); save "
                "the file as UTF-8"
            )
        yield line


@contextmanager
def _text(path: Path, limit: int, encoding: str | None) -> Iterator[io.TextIOWrapper]:
    """Open a file as text and refuse to read more than `limit` bytes of it, unpacked."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as archive:
                tables = [name for name in archive.namelist() if is_table(name)]
                if len(tables) != 1:
                    raise DataError(f"{path} holds {len(tables)} csv files, one was expected")
                with archive.open(tables[0]) as member, _limited(path, member, limit, encoding, file, size) as text:
                    yield text
            return
        with _limited(path, _unpacked(path.suffix.lower(), file), limit, encoding, file, size) as text:
            yield text


def _unpacked(suffix: str, file: IO[bytes]) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    return cast(IO[bytes], lzma.LZMAFile(file)) if suffix == ".xz" else file


def _limited(
    path: Path, stream: IO[bytes], limit: int, encoding: str | None, file: IO[bytes], size: int
) -> io.TextIOWrapper:
    reader = io.BufferedReader(_Limited(path, stream, limit, file, size), 1 << 20)
    if encoding is None:
        wide = reader.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if wide else "utf-8-sig"
    return io.TextIOWrapper(reader, encoding=encoding, newline="")


class _Limited(io.RawIOBase):
    """Stream that raises once more than `limit` bytes were read, whatever a header announced, and tells of progress."""

    def __init__(self, path: Path, stream: IO[bytes], limit: int, file: IO[bytes], size: int) -> None:
        super().__init__()
        self._path, self._stream, self._limit, self._left = path, stream, limit, limit
        self._file, self._size, self._told = file, size, time.monotonic()

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
        if time.monotonic() - self._told > _PATIENCE:
            self._told = time.monotonic()
            done = 100 * self._file.tell() // max(1, self._size)
            logging.getLogger(__name__).info("reading %s: %d %%", self._path.name, min(done, 100))
        buffer[: len(chunk)] = chunk
        return len(chunk)
