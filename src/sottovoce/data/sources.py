"""Find, fetch and load data sets by name.

Look-up order: the folder given, `SOTTOVOCE_DATA`, the system's package, the cache. Nothing is downloaded unasked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import Public
from sottovoce.core.validate import nearest
from sottovoce.data.cache import cache_folder, unpacked
from sottovoce.data.catalogue import SOURCES, Form, Source
from sottovoce.data.csv_file import is_table
from sottovoce.data.dataset import Dataset
from sottovoce.data.images import read_digits
from sottovoce.data.leaves import LEAVES, leaves
from sottovoce.data.origin import Origin, check_open
from sottovoce.data.own import read_own
from sottovoce.data.table import TableKeys, read_own_table

__all__ = ["VARIABLE", "Description", "describe", "fetch", "is_file", "load", "locate", "names", "origin"]

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


def is_file(name: str) -> bool:
    """Tell whether a source names a user's own file rather than a known data set."""
    return name not in SOURCES and (name.endswith(".npz") or is_table(name) or os.sep in name or "/" in name)


def load(
    name: str,
    folder: Path | str | None = None,
    *,
    download: bool = False,
    table: TableKeys | None = None,
    classes: int | None = None,
) -> Dataset:
    """Load a data set by name, or a user's own npz or csv file by path (relative to `folder` if one is given).

    `table` says how to read a csv file, and `classes` how many there are, which only an npz file does not say.

    >>> load("digits").shape
    (8, 8, 1)
    """
    found = _load(name, folder, download, table, classes)
    if classes is not None and found.classes != classes:
        raise DataError(f"[data] classes is {classes}, but {name!r} has {found.classes}; correct it, or leave it out")
    return found


def _load(
    name: str, folder: Path | str | None, download: bool, table: TableKeys | None, classes: int | None
) -> Dataset:
    check_open(origin(name, folder))
    if is_table(name) and name not in SOURCES:
        return read_own_table(Path(folder or "") / Path(name).expanduser(), table or TableKeys(), folder)
    if table is not None and table.given:
        raise DataError(f"[data] {table.given[0]} is for a table, such as a .csv file, and {name!r} is none; remove it")
    if name == "digits":
        return _published(read_digits())
    if name == LEAVES:
        return _published(leaves())
    if is_file(name):
        return read_own(Path(folder or "") / Path(name).expanduser(), classes)
    source = _source(name)
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


def locate(name: str, folder: Path | str | None = None) -> Path | None:
    """Return the file, or the folder of files, that `load` would read; None if there is none or it is embedded."""
    if is_file(name):
        path = Path(folder or "") / Path(name).expanduser()
        return path if path.exists() else None
    found = _find(_source(name), folder)
    return None if found is None else found.path


def origin(name: str, folder: Path | str | None = None) -> Origin:
    """Return which files `load` would read; none is opened, and none need be there."""
    if name not in SOURCES:
        return Origin(name, (Path(folder or "") / Path(name).expanduser(),)) if is_file(name) else Origin(name)
    source = SOURCES[name]
    found = _find(source, folder if folder is None or Path(folder).expanduser().is_dir() else None)
    forms = frozenset(Path(file).name for form in source.forms for file in form.files)
    return Origin(name, () if found is None else tuple(found.files), name, forms)


def describe(folder: Path | str | None = None) -> list[Description]:
    """List every data set and where it was found."""
    described = []
    for source in SOURCES.values():
        found = _find(source, folder)
        train, test = source.records if found is None or found.form.records is None else found.form.records
        where = str(found.path) if found else "missing" if source.forms else _home(source.name)
        described.append(Description(source.name, train, test, source.shape, source.classes, source.licence, where))
    return described


def _home(name: str) -> str:
    """Say where a data set without files comes from: it is in a wheel, or drawn from a seed."""
    return "drawn" if name == LEAVES else "embedded"


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
    if name in SOURCES:
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
    """Yield the folders to search, in order; the cache is asked for last, because that imports pooch."""
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
