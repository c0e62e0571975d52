"""Read a user's own npz file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.core.target import Kind, Target
from sottovoce.data.dataset import Dataset
from sottovoce.data.files import read_npz
from sottovoce.data.raw import text_rows

COUNTED: Final = "the number of classes"
RANGE: Final = "the range of the labels"


def read_own(
    path: Path,
    classes: int | None = None,
    kind: Kind = "class",
    label_range: tuple[float, float] | None = None,
) -> Dataset:
    """Read x_train, y_train, x_test, y_test and, if there, ids (the owner of each train record) from an npz file.

    uint8 of three or four axes are images, uint16 of two are tokens, floats are features, strings
    are texts. Classes are as many as are
    declared; otherwise they are counted, which the labels of the clients then tell (`Dataset.fitted`). Labels of the
    kind "number" are floats, those of the kind "answers" rows of 0 and 1.
    """
    arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"), optional=("ids",))
    x_train, x_test = (_inputs(path, part, arrays[part]) for part in ("x_train", "x_test"))
    y_train, y_test = (_labels(path, part, arrays[part], kind) for part in ("y_train", "y_test"))
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y) or not len(y):
            raise DataError(
                f"{path}: x_{part} has {len(x)} records and y_{part} {len(y)}; they must agree and not be 0"
            )
    if x_train.dtype != x_test.dtype:
        raise DataError(f"{path}: x_train has type {x_train.dtype}, x_test {x_test.dtype}")
    target, fitted = label_target(kind, y_train, label_range)
    if kind == "class":
        counted = _count_classes(path, y_train, y_test, classes)
        fitted = {} if classes is not None else {COUNTED: "say it in [data] classes"}
    else:
        counted = 1 if kind == "number" else y_train.shape[1]
        y_train, y_test = target.stored(y_train), target.stored(y_test)
    return Dataset(
        name=path.stem,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=counted,
        input_scale=1 / 255 if x_train.dtype == np.uint8 and x_train.ndim > 2 else 1.0,
        target=target,
        fitted=fitted,
        ids=_integers(path, "ids", arrays["ids"]) if "ids" in arrays else None,
    )


def label_target(kind: Kind, y: NDArray[Any], label_range: tuple[float, float] | None) -> tuple[Target, dict[str, str]]:
    """Return what labels in an array are, and what of it was taken from them."""
    if kind != "number":
        return Target(kind), {}
    if label_range is not None:
        return Target.between(*label_range), {}
    return Target.fitted(y), {RANGE: "say it in [data] label_range"}


def read_records(path: Path, kind: Kind = "class") -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read records to predict, and their labels if there are any: `x` and `y`, else `x_test` and `y_test`."""
    arrays = read_npz(path, (), optional=("x", "y", "x_test", "y_test"))
    found = next((name for name in ("x", "x_test") if name in arrays), None)
    if found is None:
        raise DataError(f"{path} has no array x; it needs x, and y where labels are known")
    records, labels = _inputs(path, found, arrays[found]), arrays.get(found.replace("x", "y", 1))
    if labels is None:
        return records, None
    numbers = _labels(path, found.replace("x", "y", 1), labels, kind)
    if len(numbers) != len(records):
        raise DataError(f"{path}: {found} has {len(records)} records and {len(numbers)} labels; they must agree")
    return records, numbers


def _count_classes(path: Path, y_train: NDArray[np.int64], y_test: NDArray[np.int64], declared: int | None) -> int:
    """Return 1 + the largest label, or what was declared; refuse labels that are no class numbers.

    Warn of a single class.
    """
    present = np.union1d(y_train, y_test)
    classes = max(2, 1 + int(present[-1])) if declared is None else declared
    if present[-1] >= classes:
        raise DataError(f"{path}: labels go up to {present[-1]}, but [data] classes is {classes}; they begin at 0")
    if declared is None and present[0] >= 0 and 2 * len(present) < classes:  # negative labels are refused by Dataset
        raise DataError(
            f"{path}: labels must be class numbers from 0 with few gaps, got {len(present)} different labels up to "
            f"{present[-1]}, which would make {classes} classes; number them with np.unique(y, return_inverse=True)"
        )
    if y_train.min() == y_train.max():
        logging.getLogger(__name__).warning(
            "%s: every train record has label %d, so there is nothing to learn to tell apart",
            path,
            y_train[0],
            extra=OF_CLIENTS,
        )
    return classes


def _inputs(path: Path, part: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        return x[..., np.newaxis] if x.ndim == 3 else x
    if x.dtype == np.uint16 and x.ndim == 2:
        return x
    if x.dtype.kind in "US" and x.ndim == 1:
        return text_rows(x.tolist())
    if np.issubdtype(x.dtype, np.floating) and x.ndim in (2, 4):
        with np.errstate(over="ignore"):
            features = x.astype(np.float32, copy=False)
        bad = features.size - int(np.count_nonzero(np.isfinite(features)))
        if bad:
            raise DataError(f"{path}: {part} has {bad} of {features.size} values that are not finite in float32")
        return features
    raise DataError(
        f"{path}: {part} is {x.dtype} of shape {x.shape}; images are uint8 (records, height, width[, channels]), "
        "tokens uint16 (records, length), features float32 (records, features), texts an array of strings"
    )


def _labels(path: Path, part: str, values: NDArray[Any], kind: Kind) -> NDArray[Any]:
    if kind == "class":
        return _integers(path, part, values)
    if kind == "answers":
        if values.ndim != 2 or values.dtype.kind not in "uib" or not np.isin(values, (0, 1)).all():
            raise DataError(f"{path}: {part} must be rows of 0 and 1, got {values.dtype} of shape {values.shape}")
        return values.astype(np.int64)
    if values.dtype.kind not in "uif" or (values.ndim != 1 and values.shape[1:] != (1,)):
        raise DataError(f"{path}: {part} must be numbers, one a record, got {values.dtype} of shape {values.shape}")
    numbers = values.reshape(-1).astype(np.float64)
    if bad := int(np.count_nonzero(~np.isfinite(numbers))):
        raise DataError(f"{path}: {part} has {bad} of {len(numbers)} values that are NaN or infinite; remove them")
    return numbers


def _integers(path: Path, part: str, values: NDArray[Any]) -> NDArray[np.int64]:
    if not np.issubdtype(values.dtype, np.integer) or (values.ndim != 1 and values.shape[1:] != (1,)):
        raise DataError(f"{path}: {part} must be integers, one a record, got {values.dtype} of shape {values.shape}")
    return values.reshape(-1).astype(np.int64)
