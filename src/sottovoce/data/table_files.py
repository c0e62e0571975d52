"""Find the files of a source: one, a list, all that fit a pattern, or all tables of a folder; and read any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import has_magic, iglob
from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.core.errors import DataError, InputError
from sottovoce.data.cells import TextBlocks, pack
from sottovoce.data.csv_file import BLOCK, CsvTable, is_table, read_csv
from sottovoce.data.files import damaged
from sottovoce.data.numerals import Decimal

PARQUET: Final = (".parquet", ".pq")

Source = str | Sequence[str]
"""What `[data] source` may be: a name, a path, a pattern or a folder, or a list of such."""


def names_table(source: Source, folder: Path | str | None = None) -> bool:
    """Tell whether a source is one table or several."""
    if not isinstance(source, str):
        return True
    if is_table(source) or source.lower().endswith(PARQUET):
        return True
    place = Path(folder or "") / Path(source).expanduser()
    return place.is_dir() and any(_tables_in(place))


def named_files(source: Source, folder: Path | str | None = None) -> tuple[Path, ...]:
    """Return the files of a source as `table_files` does; none where no file fits, and no error."""
    try:
        return table_files(source, folder)
    except (DataError, InputError):
        return ()


def table_files(source: Source, folder: Path | str | None = None) -> tuple[Path, ...]:
    """Return the files of a source in the order of their names, or of the list; none is opened.

    A path without a pattern is returned as it is, whether it exists or not.
    """
    if not isinstance(source, str):
        files = tuple(path for one in source for path in table_files(one, folder))
        if not files:
            raise InputError("[data] source is an empty list; name at least one file")
        twice = next((path for path in files if sum(path.resolve() == other.resolve() for other in files) > 1), None)
        if twice is not None:
            raise InputError(f"[data] source names {twice} twice; each file is one site, so remove one")
        return files
    place = Path(folder or "") / Path(source).expanduser()
    if place.is_dir():
        found = tuple(sorted(_tables_in(place)))
        if not found:
            raise DataError(f"the folder {place} holds no table (.csv, .tsv, .parquet)")
        return found
    if has_magic(str(place)) and not place.exists():
        matches = map(Path, iglob(str(place)))  # noqa: PTH207 - the pattern may begin anywhere
        found = tuple(sorted(path for path in matches if _is_one(path)))
        if not found:
            raise DataError(f"no file fits {place}; a pattern such as hospital_*.csv is looked for from here")
        return found
    return (place,)


def read_file(path: Path, decimal: Decimal | None = None) -> CsvTable:
    """Read one table of any kind."""
    if path.suffix.lower() in PARQUET:
        return _read_parquet(path, decimal)
    if path.suffix == ".npz":
        raise DataError(f"{path} is no table; several files of one source must be tables (.csv, .tsv, .parquet)")
    return read_csv(path, decimal=decimal)


def as_text(cell: Any) -> str:
    """Return a value as a CSV file would hold it; None and NaN are empty."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):  # pandas's own
        return ""
    if isinstance(cell, float | np.floating):
        value = float(cell)
        if np.isnan(value):
            return ""
        # A frame holds whole numbers as floats where some are missing.
        return str(int(value)) if abs(value) < 2**53 and value == int(value) else repr(value)
    return str(cell)


def _tables_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if not path.name.startswith(".") and _is_one(path))


def _is_one(path: Path) -> bool:
    return path.is_file() and (is_table(path.name) or path.suffix.lower() in PARQUET)


def _read_parquet(path: Path, decimal: Decimal | None) -> CsvTable:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow: pip install 'sottovoce[parquet]'") from None
    with damaged(path):
        file = parquet.ParquetFile(path)
        parts: dict[str, list[bytes]] = {str(name): [] for name in file.schema_arrow.names}
        counts = []
        for batch in file.iter_batches(max(1, BLOCK // max(1, len(parts)))):
            for name, column in zip(parts, batch.columns, strict=True):
                parts[name].append(pack([as_text(cell).replace("\0", "") for cell in column.to_pylist()]))
            counts.append(batch.num_rows)
    if not sum(counts):
        raise DataError(f"{path} has no records")
    return CsvTable(str(path), {name: TextBlocks(blocks, counts) for name, blocks in parts.items()}, decimal=decimal)
