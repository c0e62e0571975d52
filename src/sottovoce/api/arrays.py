"""Turn a user's records and labels into arrays that every room reads the same way, or refuse them in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.target import Kind

Labels = tuple[Any, ...]  # the classes as the user names them, in the order of their numbers


class Pair(NamedTuple):
    """Records and their labels, as the user gave them."""

    x: NDArray[Any]
    y: NDArray[Any]


def is_torch_dataset(data: object) -> bool:
    """Tell whether something is a map-style torch Dataset: it has a length, and items by number."""
    if isinstance(data, str | bytes | dict | tuple | list | np.ndarray) or hasattr(data, "iloc"):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "__array__")


def pair(data: Any, where: str, kind: Kind = "class") -> Pair:
    """Return records and labels from an (x, y) pair or a torch Dataset of (x, y) items."""
    if is_torch_dataset(data):
        return _read_torch(data, where, kind)
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise DataError(f"{where} must be an (x, y) pair or a torch Dataset, got {_kind(data)}")
    x, y = _array(data[0], f"{where}: x"), _array(data[1], f"{where}: y")
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise DataError(f"{where}: x has {_count(x)} records and y {_count(y)} labels; each record needs one label")
    if kind == "answers":
        if y.ndim != 2:
            raise DataError(
                f"{where}: y must hold a row of answers a record for task='multilabel', got shape {y.shape}"
            )
        return Pair(x[:, np.newaxis] if x.ndim == 1 else x, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        ways = "of one-hot rows take argmax(1); for several answers a record set task='multilabel'"
        raise DataError(f"{where}: y must hold one label a record, got shape {y.shape}; {ways}")
    return Pair(x[:, np.newaxis] if x.ndim == 1 else x, y)


def inputs(x: NDArray[Any], where: str) -> tuple[NDArray[Any], float]:
    """Return records as they are stored, and their scale: uint8 images from 0 to 1, all else as float32 or integers."""
    if x.dtype == np.bool_:
        x = x.astype(np.float32)
    if np.issubdtype(x.dtype, np.integer):
        return x, 1 / 255 if x.dtype == np.uint8 and x.ndim > 2 else 1.0
    if not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"{where}: x must hold numbers, got {x.dtype}; for columns of words give a pandas frame")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(x, np.float32)
    bad = values.size - int(np.count_nonzero(np.isfinite(values)))
    if bad:
        raise DataError(f"{where}: x has {bad} of {values.size} values that are NaN or infinite; fill or remove them")
    return values, 1.0


def prepare(x: NDArray[Any], *, tokens: bool, channels_first: bool, named: bool) -> NDArray[Any]:
    """Return stored records in the form that a model reads.

    A torch module gets what the user gave. The named networks read images as (height, width, channels): a missing
    channel axis is added, and images of a torch Dataset, whose channels come first, are turned. Integers that are
    neither images nor token ids become float32 features.
    """
    if np.issubdtype(x.dtype, np.integer) and not tokens and not (x.dtype == np.uint8 and x.ndim > 2):
        x = x.astype(np.float32)
    if not named or tokens:
        return x
    if x.ndim == 3:
        return x[..., np.newaxis]
    if x.ndim == 4 and channels_first and x.shape[1] < x.shape[3]:
        return np.ascontiguousarray(np.moveaxis(x, 1, 3))
    return x


def number_labels(
    parts: Sequence[NDArray[Any]], classes: Sequence[Any] | int | None
) -> tuple[list[NDArray[np.int64]], Labels]:
    """Return the class numbers of each part, and the classes in the user's words.

    Integers from 0 are their own numbers; booleans and texts are sorted, unless `classes` gives their order (a number
    means 0, 1, ...).
    """
    if isinstance(classes, int):
        classes = range(classes)
    whole = np.concatenate([part.astype(object) if part.dtype.kind in "OUS" else part for part in parts])
    if classes is None:
        classes = _found(whole)
    place = {_plain(label): number for number, label in enumerate(classes)}
    if len(place) < len(classes) or len(classes) < 2:
        raise DataError(f"classes must be at least two different labels, got {list(classes)!r}")
    numbered = []
    for part in parts:
        present, inverse = np.unique(part, return_inverse=True)
        for label in present:
            if _plain(label) not in place:
                raise DataError(f"label {_plain(label)!r} is none of the classes {list(place)[:8]!r}")
        numbers = np.array([place[_plain(label)] for label in present], np.int64)
        numbered.append(numbers[inverse])
    return numbered, tuple(place)


def label_values(part: NDArray[Any], where: str) -> NDArray[Any]:
    """Return labels that are numbers, or refuse texts and what is not finite."""
    if part.dtype.kind not in "uifb":
        raise DataError(f"{where}: task='regression' needs labels that are numbers, got {_plain(part.flat[0])!r}")
    values = part.astype(np.float64)
    if bad := int(np.count_nonzero(~np.isfinite(values))):
        raise DataError(f"{where}: {bad} of {len(values)} labels are NaN or infinite; remove these records")
    return values


def label_answers(part: NDArray[Any], where: str) -> NDArray[Any]:
    """Return rows of yes-or-no answers as 0 and 1."""
    if part.dtype.kind not in "uifb" or not np.isin(part, (0, 1)).all():
        raise DataError(f"{where}: task='multilabel' needs rows of 0 and 1 as labels, got {_plain(part.flat[0])!r}")
    return part.astype(np.int64)


def fifth(y: NDArray[Any], rng: Generator, owners: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Mark a fifth of the records for tests, classes in proportion; no owner loses the last record."""
    if len(y) < 5:
        raise DataError(f"{len(y)} records are too few to set a fifth aside for tests; give test=(x_test, y_test)")
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order] if y.ndim == 1 else y[order].sum(1), kind="stable")]
    # Every fifth record of the records sorted by class; the place to start is random.
    turns = np.arange(len(y)) + int(rng.integers(5))
    chosen = order[turns % 5 == 0]
    test = np.zeros(len(y), np.bool_)
    left = None if owners is None else np.bincount(owners)
    for record in chosen:
        if left is not None and owners is not None:
            if left[owners[record]] == 1:
                continue
            left[owners[record]] -= 1
        test[record] = True
    if not test.any():
        raise DataError("every client has one record, so none can be set aside for tests; give test=(x_test, y_test)")
    return test


def fifth_of_owners(owners: NDArray[np.int64], rng: Generator) -> NDArray[np.bool_]:
    """Mark all records of a fifth of the owners for tests."""
    people = np.unique(owners)
    if len(people) < 3:
        raise DataError(f"{len(people)} owners are too few to set a fifth aside for tests; give test=(x_test, y_test)")
    chosen = rng.choice(people, round(len(people) / 5), replace=False, shuffle=False)
    return np.isin(owners, chosen)


def _read_torch(data: Any, where: str, kind: Kind) -> Pair:
    if not len(data):
        raise DataError(f"{where} is empty")
    tensors = getattr(data, "tensors", None)  # of a TensorDataset: all at once
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return pair(tensors, where, kind)
    xs, ys = [], []
    for number in range(len(data)):
        item = data[number]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise DataError(f"{where}: item {number} must be an (x, y) pair, got {_kind(item)}")
        xs.append(np.asarray(item[0]))
        ys.append(np.asarray(item[1]).item() if np.size(item[1]) == 1 else item[1])
    shapes = {x.shape for x in xs}
    if len(shapes) > 1:
        raise DataError(f"{where}: all records must have one shape, got {sorted(shapes)[:3]}")
    return pair((np.stack(xs), ys), where, kind)


def _found(labels: NDArray[Any]) -> Sequence[Any]:
    if labels.dtype == np.bool_:
        return (False, True)
    if np.issubdtype(labels.dtype, np.floating) and (labels == labels.astype(np.int64)).all():
        labels = labels.astype(np.int64)
    if np.issubdtype(labels.dtype, np.integer):
        present = np.unique(labels)
        if present[0] < 0 or 2 * len(present) < 1 + int(present[-1]):
            raise DataError(
                f"labels must be class numbers from 0 with few gaps, got {len(present)} different ones from "
                f"{present[0]} to {present[-1]}; name them with classes={present[:3].tolist()}..."
            )
        return range(max(2, 1 + int(present[-1])))
    if labels.dtype == object and all(isinstance(label, str) for label in labels):
        return sorted(set(labels))
    raise DataError(
        f"labels must be integers, booleans or texts, got {_plain(labels[0])!r}; to learn numbers set task='regression'"
    )


def _plain(label: Any) -> Any:
    """Return a label as a plain Python value; 1.0 and 1 are one label."""
    value = label.item() if isinstance(label, np.generic) else label
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _array(values: Any, where: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{where} is no array: {error}") from None


def _count(array: NDArray[Any]) -> int:
    return len(array) if array.ndim else 0


def _kind(data: object) -> str:
    size = f" of {len(data)}" if isinstance(data, tuple | list) else ""
    return f"a {type(data).__name__}{size}"
