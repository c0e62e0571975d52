"""Read a node's own records: an npz file, a table, or what a Python function returns; nobody else ever sees them."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.data import Dataset, TableKeys
from sottovoce.data.files import read_npz
from sottovoce.data.table import read_own_table
from sottovoce.experiment.tables import DataTable
from sottovoce.models import Shard

__all__ = ["read_own_records"]


def read_own_records(source: str, label: str | None, table: DataTable, shape: Dataset) -> Shard:
    """Return the records of a node, checked against `[data]`; `shape` is a data set of the run's shape and classes.

    `source` is an npz file with x and y, a csv file (`label` names the column with the classes), or `module:function`
    that returns x and y.
    """
    path = Path(source).expanduser()
    name, colon, function = source.rpartition(":")
    if path.suffix == ".npz":
        arrays = read_npz(path, ("x", "y"))
        x, y = arrays["x"], arrays["y"]
    elif colon and not path.exists() and name.replace(".", "").isidentifier() and function.isidentifier():
        x, y = _called(source, name, function)
    elif path.exists():
        x, y = _table(path, label or table.label, table)
    else:
        raise DataError(f"{source} does not exist; --data wants an npz file, a csv file or module:function")
    if label is not None and path.suffix == ".npz":
        raise InputError(f"--label is of tables, and {source} is none; remove it")
    try:
        x, y = np.asarray(x), np.asarray(y)
    except ValueError:
        raise DataError(f"{source}: x and y must be arrays, whose rows are equally long") from None
    return _checked(source, x, y, shape)


def _called(source: str, module: str, function: str) -> tuple[Any, Any]:
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - as python itself would look for it
        sys.path.insert(0, here)
    try:
        call = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--data {source}: {error}") from None
    returned = call()
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise DataError(f"--data {source} must return two arrays, x and y, got {type(returned).__name__}")
    return returned[0], returned[1]


def _table(path: Path, label: str | None, table: DataTable) -> tuple[NDArray[Any], NDArray[Any]]:
    if label is None:
        raise InputError(f"{path} is a table: name the column with the classes with --label")
    made = read_own_table(path, TableKeys(label=label, schema=table.schema), table.folder)
    if made.fitted_on != "schema":
        raise DataError(
            f"{path}: its columns would be read differently on every node; give [data] schema a file with the range of "
            "each number, the categories of each word and the classes"
        )
    return np.concatenate([made.x_train, made.x_test]), np.concatenate([made.y_train, made.y_test])


def _checked(source: str, x: NDArray[Any], y: NDArray[Any], shape: Dataset) -> Shard:
    """Return the records if they are what every node of the run must have; say what is not so in one sentence."""
    if x.ndim < 1 or y.ndim != 1 or len(x) != len(y) or not len(y):
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
    if y.dtype.kind not in "ui" or not (y.min() >= 0 and y.max() < shape.classes):
        told = f"{y.dtype} from {y.min()} to {y.max()}" if y.dtype.kind in "uif" else f"{y.dtype}"
        raise DataError(f"{source}: labels must be whole numbers in [0, {shape.classes - 1}], got {told}")
    return Shard(np.ascontiguousarray(x, dtype=wanted), y.astype(np.int64))


def _finite_as(x: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(x.astype(wanted, copy=False)).all())
