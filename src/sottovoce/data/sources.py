"""Find, fetch and load data sets by name.

Look-up order: the folder given, `SOTTOVOCE_DATA`, the system's package, the cache. Nothing is downloaded unasked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import Public
from sottovoce.core.validate import nearest
from sottovoce.data.cache import cache_folder, unpacked
from sottovoce.data.catalogue import SOURCES, Form, Source
from sottovoce.data.dataset import Dataset
from sottovoce.data.npz_files import read_own
from sottovoce.data.same_records import Origin, check_open
from sottovoce.data.table import TableKeys, read_own_table
from sottovoce.data.table_files import Source as Files
from sottovoce.data.table_files import named_files, names_table, table_files

VARIABLE = "SOTTOVOCE_DATA"


class Description(NamedTuple):
    """What a data set holds, and where it was found ("embedded", "drawn", a path, or "missing")."""

    name: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    licence: str
    where: str


class _Found(NamedTuple):
    form: Form
    folder: Path

    @property
    def files(self) -> list[Path]:
        return [self.folder / file for file in self.form.files]

    @property
    def path(self) -> Path:
        return self.files[0] if len(self.form.files) == 1 else self.folder


def names() -> list[str]:
    """Return the names that `load` knows."""
    return list(SOURCES)


def is_file(name: Files, folder: Path | str | None = None) -> bool:
    """Tell whether a source names a user's own file, or several, rather than a known data set."""
    if not isinstance(name, str):
        return True
    return name not in SOURCES and (name.endswith(".npz") or os.sep in name or "/" in name or names_table(name, folder))


def is_table(name: Files, folder: Path | str | None = None) -> bool:
    """Tell whether a source is a user's own table, or several."""
    return not (isinstance(name, str) and name in SOURCES) and names_table(name, folder)


def load(
    name: Files,
    folder: Path | str | None = None,
    *,
    download: bool = False,
    table: TableKeys | None = None,
    classes: int | None = None,
) -> Dataset:
    """Load a data set by name, or a user's own npz or csv file by path (relative to `folder` if one is given).

    Several tables with the same columns are a list of paths, a pattern or a folder: one file for each site.
    `table` says how to read a csv file, and `classes` how many there are, which only an npz file does not say.

    >>> load("digits").shape
    (8, 8, 1)
    """
    found = _load(name, folder, download, table, classes)
    if classes is not None and found.classes != classes:
        raise DataError(f"[data] classes is {classes}, but {name!r} has {found.classes}; correct it, or leave it out")
    return found


def _load(
    name: Files, folder: Path | str | None, download: bool, table: TableKeys | None, classes: int | None
) -> Dataset:
    check_open(origin(name, folder))
    if is_table(name, folder):
        return read_own_table(table_files(name, folder), table or TableKeys(), folder)
    name = cast("str", name)
    if table is not None and table.given:
        raise DataError(f"[data] {table.given[0]} is for a table, such as a .csv file, and {name!r} is none; remove it")
    if is_file(name, folder):
        asked = table or TableKeys()
        return read_own(Path(folder or "") / Path(name).expanduser(), classes, asked.kind, asked.label_range)
    if table is not None and table.kind != "class":
        raise DataError(f"the labels of {name!r} are classes; [model] task = 'regression' or 'multilabel' needs others")
    source = _source(name)
    if source.make is not None:
        return _published(source.make())
    found = _find(source, folder)
    if found is None and download:
        fetch(name)
        found = _find(source, folder)
    if found is None:
        raise DataError(_missing(source, folder))
    return _published(unpacked(name, found.files, lambda: found.form.read(found.path)))


def _published(dataset: Dataset) -> Dataset:
    """Return a known data set: how many records it has is public, and so are its test records, which no client gets."""
    return replace(dataset, test_from=Public(f"the test records of {dataset.name}"), counts_from=Public(dataset.name))


def locate(name: Files, folder: Path | str | None = None) -> Path | None:
    """Return the file, or the folder of files, that `load` would read; None if there is none or it is embedded."""
    if is_file(name, folder):
        return next((path for path in named_files(name, folder) if path.exists()), None)
    name = cast("str", name)
    found = _find(_source(name), folder)
    return None if found is None else found.path


def origin(name: Files, folder: Path | str | None = None) -> Origin:
    """Return which files `load` would read; none is opened, and none need be there."""
    if not isinstance(name, str) or name not in SOURCES:
        said = name if isinstance(name, str) else ", ".join(name)
        return Origin(said, named_files(name, folder)) if is_file(name, folder) else Origin(said)
    source = SOURCES[name]
    found = _find(source, folder if folder is None or Path(folder).expanduser().is_dir() else None)
    forms = frozenset(Path(file).name for form in source.forms for file in form.files)
    return Origin(name, () if found is None else tuple(found.files), name, forms)


def describe(folder: Path | str | None = None) -> list[Description]:
    """List every data set that can be used, and where it was found."""
    return [describe_source(source, folder) for source in SOURCES.values()]


def describe_source(source: Source, folder: Path | str | None = None) -> Description:
    """Say what one data set holds, and where it was found."""
    found = _find(source, folder)
    train, test = source.records if found is None or found.form.records is None else found.form.records
    where = str(found.path) if found else "missing" if source.forms else source.home
    return Description(source.name, train, test, source.shape, source.classes, source.licence, where)


def fetch(name: str, *, progress: bool = True) -> Path:
    """Download a data set into the cache, verify it, and return its folder."""
    source = _source(name)
    if not source.remotes:
        reason = source.by_hand or "it is embedded, so there is nothing to fetch"
        raise DataError(f"{name} cannot be fetched: {reason}")
    # rich and the network are needed here only.
    from sottovoce.data.download import download

    target = cache_folder() / name
    for remote in source.remotes:
        download(remote, target, progress=progress)
    return target


def _source(name: str) -> Source:
    if name in SOURCES or ":" in name:
        return SOURCES[name]
    guess = nearest(name, SOURCES)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(SOURCES)}, or the path of an .npz or .csv file"
    raise DataError(f"there is no data set {name!r}; {hint}")


def _find(source: Source, folder: Path | str | None) -> _Found | None:
    if not source.forms:
        return None
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise DataError(f"the data folder {folder} does not exist; give another, or none to search the usual places")
    for place in _places(source, folder):
        for form in source.forms:
            found = _Found(form, place)
            if all(path.is_file() for path in found.files):
                return found
    return None


def _places(source: Source, folder: Path | str | None) -> Iterator[Path]:
    """Yield the folders to search, in order: the one given, the shared one, the system's, the cache."""
    for root in (folder, os.environ.get(VARIABLE)):
        if root:
            base = Path(root).expanduser()
            yield base
            yield base / source.name
            yield from (base / below for below in source.folders)
    if source.system is not None:
        yield source.system
    yield cache_folder() / source.name


def _missing(source: Source, folder: Path | str | None) -> str:
    files = source.forms[0].files
    ways = [f"give the folder that holds {files[0]}{' or its originals' if len(source.forms) > 1 else ''}"]
    if folder is not None:
        ways[0] = f"{ways[0]} ({folder} does not)"
    shared = os.environ.get(VARIABLE)
    ways.append(f"set {VARIABLE} to such a folder" + (f" ({shared} is none)" if shared else ""))
    if source.package:
        ways.append(f"install the Debian package {source.package}")
    ways.append(f"run `sottovoce data fetch {source.name}`" if source.remotes else source.by_hand)
    return f"{source.name} is not on this machine: {'; or '.join(ways)}"
