"""Read what a user calls data: a name, arrays, a frame, a torch Dataset, or a list with one for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.api.arrays import (
    Labels,
    Pair,
    fifth,
    fifth_of_owners,
    inputs,
    is_torch_dataset,
    label_answers,
    label_values,
    number_labels,
    pair,
    prepare,
)
from sottovoce.core.errors import DataError, InputError
from sottovoce.core.provenance import Owned, Provenance
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.core.target import CLASSES, Kind, Target
from sottovoce.data import (
    Aside,
    Dataset,
    Shards,
    Source,
    TableKeys,
    as_table,
    is_file,
    is_table,
    load,
    table_dataset,
    table_files,
)
from sottovoce.data.dataset import NO_TEST
from sottovoce.data.npz_files import COUNTED, RANGE, label_target

_SPLIT = 9  # the stream that sets test records aside; the run itself draws from 0 and 1


@dataclass(frozen=True)
class Columns:
    """How a table is read, or what is known beside the arrays: the keyword arguments of `simulate`."""

    label: str | Sequence[str] | None = None
    id: Any = None  # the column with the owners, or their numbers, one a record
    person: Any = None  # the column that says whom a record is about, or their numbers, one a record
    split: str | None = None
    subgroup: str | None = None
    schema: Any = None
    classes: Sequence[Any] | int | None = None  # the labels in order, or how many there are of 0, 1, ...
    kind: Kind = "class"  # what a label is
    label_range: tuple[float, float] | None = None  # of labels that are numbers, if it is public

    def refuse(self, what: str, *allowed: str) -> None:
        """Raise if an argument is given that this kind of data has no use for."""
        for name in ("label", "id", "person", "split", "subgroup", "schema", "classes"):
            if name not in allowed and getattr(self, name) is not None:
                raise InputError(f"{name}= is for another kind of data than {what}; remove it")


@dataclass(frozen=True)
class Reader:
    """What the model asks of the data."""

    named: bool  # one of our networks; else a torch module, which gets records as they are
    tokens: bool  # integers are token ids


@dataclass(frozen=True, eq=False)
class Loaded:
    """Data that is ready for a run; `tables` are the keys of `[data]`."""

    dataset: Dataset
    tables: dict[str, Any]
    classes: Labels
    given: bool = True  # as objects: the run cannot load it by name
    partition: Shards | None = None
    sites: int = 1  # files or frames, each with the records of one site

    @property
    def untested(self) -> bool:
        """Tell whether there are no test records."""
        return self.dataset.test_data == NO_TEST


def read(
    data: Any,
    reader: Reader,
    *,
    test: Any,
    columns: Columns,
    seed: int,
    folder: str | None = None,
    aside: Aside = "fifth",
) -> Loaded:
    """Read any kind of data, and check it; `folder` is where a name or a file is looked for.

    `aside` is what is cut for tests where no test records are given.
    """
    if isinstance(data, str | Path):
        return _named(str(data), test, columns, folder, aside)
    if isinstance(data, list) and data and all(isinstance(one, str | Path) for one in data):
        return _named([str(one) for one in data], test, columns, folder, aside)
    if isinstance(data, Dataset):
        columns.refuse("a Dataset")
        _no_test(test, "a Dataset")
        if data.target.kind != columns.kind:
            raise InputError(f"task= does not fit the labels of {data.name}, whose target says {data.target.kind!r}")
        return Loaded(data, {"source": data.name}, _names(data))
    if _is_frame(data):
        return _frame([data], test, columns, aside)
    if isinstance(data, list) and data and all(map(_is_frame, data)):
        return _frame(data, test, columns, aside)
    columns.refuse("arrays", "id", "person", "classes")
    if isinstance(data, tuple) and len(data) == 4:
        _no_test(test, "(x, y, x_test, y_test)")
        data, test = data[:2], data[2:]
    if isinstance(data, list):
        if columns.id is not None:
            raise InputError(
                "id= is not for a list with one data set for each client, whose owners are known; remove it"
            )
        return _clients(data, reader, test, columns, seed, aside)
    if isinstance(data, tuple) or is_torch_dataset(data):
        kind = "arrays" if isinstance(data, tuple) else "torch-dataset"
        return _arrays(
            [pair(data, "data", columns.kind)], kind, reader, test, columns, seed, is_torch_dataset(data), aside
        )
    raise DataError(
        "data must be a name, (x, y) or (x, y, x_test, y_test) arrays, a pandas frame, a torch Dataset, or a list with "
        f"one (x, y) pair, Dataset, frame or table file for each client, got {type(data).__name__}"
    )


def _is_frame(data: Any) -> bool:
    return hasattr(data, "iloc") or isinstance(data, Mapping)


def _named(source: Source, test: Any, columns: Columns, folder: str | None, aside: Aside) -> Loaded:
    columns.refuse(repr(source), "label", "id", "person", "split", "subgroup", "schema", "classes")
    if not is_file(source, folder) or not isinstance(test, str | Path):
        _no_test(test, f"{source!r}; of a file name another in test=")
    classes = _counted(columns.classes, source)
    words = {name: getattr(columns, name) for name in ("label", "id", "person", "split", "subgroup", "schema")}
    keys: dict[str, Any] = {}
    for name, word in words.items():
        if name == "label" and columns.kind == "answers" and isinstance(word, list | tuple):
            keys[name] = tuple(map(str, word))
            continue
        if word is not None and not isinstance(word, str | Path):
            raise InputError(f"{name}= must be a text for the file {source!r}, got {type(word).__name__}")
        keys |= {} if word is None else {name: str(word)}
    kind, bounds = columns.kind, columns.label_range
    table = TableKeys(**keys, aside="nothing" if test is not None else aside, kind=kind, label_range=bounds)
    dataset = load(source, folder, table=table, classes=classes)
    named: dict[str, Any] = {} if classes is None else {"classes": classes}
    keys = {name: list(word) if isinstance(word, tuple) else word for name, word in keys.items()}
    if test is not None:
        dataset = replace(dataset, test_data=str(test))
        named["test"] = str(test)
    sites = len(table_files(source, folder)) if is_table(source, folder) and "id" not in keys else 1
    return Loaded(dataset, {"source": source, **keys, **named}, _names(dataset), given=False, sites=sites)


def _counted(classes: Sequence[Any] | int | None, source: Source) -> int | None:
    """Return how many classes were declared for a file, whose labels are the numbers from 0."""
    if classes is None or isinstance(classes, int):
        return classes
    if list(classes) != list(range(len(classes))):
        raise InputError(f"classes= of the file {source!r} is their number, or range(number); its labels are numbers")
    return len(classes)


def _frame(frames: list[Any], test: Any, columns: Columns, aside: Aside) -> Loaded:
    """Read frames, or dicts of columns, one a site; preprocessing and test records are those of CSV files."""
    columns.refuse("a frame", "label", "id", "person", "split", "subgroup", "schema")
    _no_test(test, "a frame: name a column with split=")
    if columns.label is None:
        raise InputError('a frame needs the name of its label column: label="..."')
    if columns.kind != "answers" and not isinstance(columns.label, str):
        raise InputError(f"label= names one column, got {columns.label!r}; several are for task='multilabel'")
    dataset = table_dataset(
        frames if len(frames) > 1 else frames[0],
        label=columns.label,
        id=columns.id,
        person=columns.person,
        split=columns.split,
        subgroup=columns.subgroup,
        schema=columns.schema,
        name="frame",
        aside=aside,
        kind=columns.kind,
        label_range=columns.label_range,
    )
    if columns.kind != "class":
        return Loaded(dataset, {"source": "frame"}, _names(dataset), sites=len(frames) if columns.id is None else 1)
    # A table is read as text; predictions are told as the user's frame has them.
    values = list(dict.fromkeys(value for frame in frames for value in frame[columns.label]))
    texts = as_table({"label": values}).columns["label"]
    given = {
        text: value.item() if isinstance(value, np.generic) else value
        for text, value in zip(texts, values, strict=True)
    }
    labels = tuple(given.get(name, name) for name in dataset.class_names or ())
    return Loaded(dataset, {"source": "frame"}, labels, sites=len(frames) if columns.id is None else 1)


def _clients(parts: list[Any], reader: Reader, test: Any, columns: Columns, seed: int, aside: Aside) -> Loaded:
    if aside == "owners" and test is None:
        raise InputError("test_public=True with a list of clients: give the clients that are public in test= instead")
    pairs = []
    for number, part in enumerate(parts):
        pairs.append(pair(part, f"client {number}", columns.kind))
        if not len(pairs[-1].y):
            raise DataError(f"client {number} has no records; leave it out of the list")
        if pairs[-1].x.shape[1:] != pairs[0].x.shape[1:]:
            raise DataError(
                f"client {number} has records of shape {pairs[-1].x.shape[1:]}, client 0 of {pairs[0].x.shape[1:]}"
            )
    if not pairs:
        raise DataError("data is an empty list; give one (x, y) pair or Dataset for each client")
    return _arrays(pairs, "clients", reader, test, columns, seed, is_torch_dataset(parts[0]), aside)


def _arrays(
    parts: list[Pair],
    source: str,
    reader: Reader,
    test: Any,
    columns: Columns,
    seed: int,
    channels_first: bool,
    aside: Aside,
) -> Loaded:
    """Join the parts, number the labels, and set test records aside if there are none."""
    listed = source == "clients"
    whole = Pair(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
    if not len(whole.y):
        raise DataError("data has no records")
    owners = _numbered("id", columns.id, whole)
    if listed:
        owners = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
    persons = _numbered("person", columns.person, whole)
    held = None if test is None else pair(test, "test", columns.kind)
    if held is not None and held.x.shape[1:] != whole.x.shape[1:]:
        raise DataError(f"test has records of shape {held.x.shape[1:]}, the data of {whole.x.shape[1:]}")
    numbers, classes, target = _labels([whole.y] if held is None else [whole.y, held.y], columns)
    x, scale = inputs(whole.x, "data")
    whose: Provenance | None = Owned()
    if held is None and aside == "nothing":
        y, x_test, y_test, how = numbers[0], x[:1], numbers[0][:1], ""  # `untested` takes them away again
    elif held is None:
        rng = Seeds(seed).world.get(Purpose.SPLIT, _SPLIT)
        whom = owners if persons is None and aside == "owners" else persons
        if whom is not None:
            chosen = fifth_of_owners(whom, rng)
            how = f"a fifth of the {'owners' if persons is None else 'persons'}, set aside at random with seed {seed}"
        else:
            chosen = fifth(numbers[0], rng, owners if listed else None)
            count = int(np.count_nonzero(chosen))
            how = f"a fifth of the records ({count}), classes in proportion, set aside at random with seed {seed}"
        x_test, y_test, x, y = x[chosen], numbers[0][chosen], x[~chosen], numbers[0][~chosen]
        owners, persons = (None if names is None else names[~chosen] for names in (owners, persons))
    else:
        (x_test, test_scale), (y, y_test) = inputs(held.x, "test"), numbers
        if test_scale != scale:
            raise DataError(
                f"the data is {whole.x.dtype} and test {held.x.dtype}; give both as images or both as numbers"
            )
        how, whose = f"given ({len(y_test)} records)", None
    x, x_test = (
        prepare(part, tokens=reader.tokens, channels_first=channels_first, named=reader.named) for part in (x, x_test)
    )
    dataset = Dataset(
        name=source,
        x_train=x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        classes=len(classes),
        input_scale=scale,
        ids=owners,
        persons=persons,
        target=target,
        class_names=None
        if columns.kind == "number" or (isinstance(classes[0], int) and not isinstance(classes[0], bool))
        else tuple(map(str, classes)),
        test_data=how,
        test_from=whose,
    )
    if held is None and aside == "nothing":
        dataset = dataset.untested()
    if columns.kind == "number" and columns.label_range is None:
        dataset = replace(dataset, fitted={RANGE: "give it in label_range=(low, high)"})
    if columns.kind == "class" and columns.classes is None and not isinstance(classes[0], bool):
        what = "the names of the classes" if isinstance(classes[0], str) else COUNTED
        dataset = replace(dataset, fitted={what: "give them in classes=[...]"})
    if not listed:
        return Loaded(dataset, {"source": source}, classes)
    sizes = np.bincount(owners, minlength=len(parts)) if owners is not None else np.zeros(0, np.int64)
    shards = Shards(np.arange(len(y)), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    tables = {"source": source, "clients": len(parts), "partition": "by-id"}
    return Loaded(dataset, tables, classes, partition=shards)


def _labels(parts: list[NDArray[Any]], columns: Columns) -> tuple[list[NDArray[Any]], Labels, Target]:
    """Return the labels of each part as they are stored, the classes or answers by name, and what a label is."""
    if columns.kind == "class":
        numbers, classes = number_labels(parts, columns.classes)
        return [*numbers], classes, CLASSES
    names = ("labels of data", "labels of test")
    if columns.kind == "number":
        values = [label_values(part, where) for part, where in zip(parts, names, strict=False)]
        target, _ = label_target("number", values[0], columns.label_range)
        return [target.stored(part) for part in values], ("value",), target
    rows = [label_answers(part, where) for part, where in zip(parts, names, strict=False)]
    given = columns.classes
    answers = tuple(range(rows[0].shape[1])) if given is None or isinstance(given, int) else tuple(given)
    if any(part.shape[1] != len(answers) for part in rows):
        raise DataError(f"classes= names {len(answers)} answers, but a row of labels has {rows[0].shape[1]}")
    return [*rows], answers, Target("answers")


def _numbered(name: str, given: Any, whole: Pair) -> NDArray[np.int64] | None:
    """Return a number for each owner, or person, of an array with one for each record."""
    if given is None:
        return None
    names = np.asarray(given)
    if names.shape != whole.y.shape[:1]:
        whom = "owner" if name == "id" else "person"
        raise DataError(f"{name}= has shape {names.shape}, but there are {len(whole.y)} records; each needs one {whom}")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _names(dataset: Dataset) -> Labels:
    return tuple(range(dataset.classes)) if dataset.class_names is None else dataset.class_names


def _no_test(test: Any, what: str) -> None:
    if test is not None:
        raise InputError(f"test= is for arrays and torch Datasets, not for {what}")
