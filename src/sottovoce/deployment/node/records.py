"""Read a node's own records: an npz file, a table, or what a Python function returns; nobody else ever sees them."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.config.tables import DataTable
from sottovoce.core.errors import DataError, InputError
from sottovoce.core.files import PRIVATE, replace_file, write_new
from sottovoce.data import Dataset, TableKeys
from sottovoce.data.files import read_npz
from sottovoce.data.table import SiteRows, read_own_table, read_site_table
from sottovoce.models import Shard

_BLOCK: Final = 1 << 20  # bytes


def read_own_records(source: str, label: str | None, table: DataTable, shape: Dataset) -> Shard:
    """Return the records of a node, checked against `[data]`; `shape` is a data set of the run's shape and classes.

    `source` is an npz file with x and y, a csv file (`label` names the column with the classes), or `module:function`
    that returns x and y. Both may have a third array: the person whom each record is about.
    """
    persons: Any = None
    path = Path(source).expanduser()
    name, colon, function = source.rpartition(":")
    if path.suffix == ".npz":
        arrays = read_npz(path, ("x", "y"), ("persons",))
        x, y, persons = arrays["x"], arrays["y"], arrays.get("persons")
    elif colon and not path.exists() and name.replace(".", "").isidentifier() and function.isidentifier():
        x, y, persons = _called(source, name, function)
    elif path.exists():
        x, y, persons = _table(path, label or table.label, table, shape)
    else:
        raise DataError(f"{source} does not exist; --data wants an npz file, a csv file or module:function")
    if label is not None and path.suffix == ".npz":
        raise InputError(f"--label is of tables, and {source} is none; remove it")
    try:
        x, y = np.asarray(x), np.asarray(y)
    except ValueError:
        raise DataError(f"{source}: x and y must be arrays, whose rows are equally long") from None
    return _checked(source, x, y, shape)._replace(persons=_numbered(source, persons, len(y)))


def _numbered(source: str, persons: Any, records: int) -> NDArray[np.int64] | None:
    """Return a number for the person of each record; None where persons are not told."""
    if persons is None:
        return None
    names = np.asarray(persons)
    if names.shape != (records,) or names.dtype.kind not in "uiUS":
        raise DataError(
            f"{source}: persons must be one whole number or word a record, got {names.dtype} of shape {names.shape}"
        )
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def check_unchanged(state: Path, keys: Path, source: str) -> None:
    """Raise if a node's file is another than the one that it began an experiment with.

    What is kept of it is a hash that is keyed with a secret of the site, and nobody else sees it.
    """
    path, kept, secret = Path(source).expanduser(), state / "records", keys / "records.secret"
    if not path.is_file():
        return  # a function gives them
    if not secret.exists():
        write_new(secret, os.urandom(32), PRIVATE)
    hashed = hmac.new(secret.read_bytes(), digestmod=hashlib.sha256)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
    if not kept.exists():
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(kept, hashed.hexdigest() + "\n")
    elif kept.read_text(encoding="ascii").strip() != hashed.hexdigest():
        raise InputError(
            f"{source} is not what it was when this node began the experiment; restore the file, or agree on another "
            "experiment with all sites"
        )


def _called(source: str, module: str, function: str) -> tuple[Any, Any, Any]:
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - as python itself would look for it
        sys.path.insert(0, here)
    try:
        call = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--data {source}: {error}") from None
    returned = call()
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise DataError(f"--data {source} must return two arrays, x and y, got {type(returned).__name__}")
    return returned[0], returned[1], returned[2] if len(returned) == 3 else None


def _table(path: Path, label: str | list[str] | None, table: DataTable, shape: Dataset) -> SiteRows:
    if label is None:
        raise InputError(f"{path} is a table: name the column with the label with --label")
    target = shape.target
    keys = TableKeys(
        label=label if isinstance(label, str) else tuple(label),
        id=table.id,
        person=table.person,
        split=table.split,
        schema=table.schema,
        decimal=table.decimal,
        aside="nothing",
        kind=target.kind,
        label_range=None if target.low is None or target.high is None else (target.low, target.high),
    )
    if shape.preprocessing is not None:
        return read_site_table(path, keys, table.folder, centred=table.centred)
    made = read_own_table(path, replace(keys, id=None, split=None), table.folder)
    if made.fitted_on != "schema":
        raise DataError(
            f"{path}: its columns would be read differently on every node; give [data] schema a file with the range of "
            "each number, the categories of each word and the classes"
        )
    if table.centred:
        made = made.centred()
    return SiteRows(made.x_train, made.y_train, made.persons)


def _checked(source: str, x: NDArray[Any], y: NDArray[Any], shape: Dataset) -> Shard:
    """Return the records if they are what every node of the run must have; say what is not so in one sentence."""
    ranks = (1, 2) if shape.target.kind == "answers" else (1,)
    if x.ndim < 1 or y.ndim not in ranks or len(x) != len(y) or not len(y):
        raise DataError(
            f"{source}: x has shape {x.shape} and y {y.shape}; each record needs one label, and there must be some"
        )
    found = x.shape[1:]
    if len(shape.shape) == 3 and shape.shape[2] == 1 and found == shape.shape[:2]:
        x, found = x[..., np.newaxis], shape.shape
    if found != shape.shape:
        raise DataError(f"{source}: a record has shape {list(found)}, the run's have {list(shape.shape)} ([data])")
    wanted = shape.x_train.dtype
    if wanted.kind in "ui":
        if x.dtype.kind not in "ui" or (x.size and not (x.min() >= 0 and x.max() <= np.iinfo(wanted).max)):
            raise DataError(f"{source}: x is {x.dtype}, the run's records are whole numbers of type {wanted}")
    elif x.dtype.kind not in "uif" or not _finite_as(x, wanted):
        raise DataError(f"{source}: x is {x.dtype}, or not finite; the run's records are numbers of type {wanted}")
    if shape.target.kind != "class":
        y = y.astype(np.float64) if shape.target.kind == "number" and y.dtype.kind in "ui" else y
        shape.target.check(f"{source}:", y, shape.classes)
        return Shard(np.ascontiguousarray(x, dtype=wanted), shape.target.stored(y))
    if y.dtype.kind not in "ui" or not (y.min() >= 0 and y.max() < shape.classes):
        told = f"{y.dtype} from {y.min()} to {y.max()}" if y.dtype.kind in "uif" else f"{y.dtype}"
        raise DataError(f"{source}: labels must be whole numbers in [0, {shape.classes - 1}], got {told}")
    return Shard(np.ascontiguousarray(x, dtype=wanted), y.astype(np.int64))


def _finite_as(x: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(x.astype(wanted, copy=False)).all())
