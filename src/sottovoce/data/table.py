"""Make a data set of a table: of a CSV file, of a data frame, or of any columns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import OF_CLIENTS, Owned, Provenance
from sottovoce.data.csv_file import Table, read_csv
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out
from sottovoce.data.fit import fit_classes, fit_columns
from sottovoce.data.origin import Origin, check_open
from sottovoce.data.preprocessing import Preprocessing, column_of
from sottovoce.data.schema import Schema, read_schema

__all__ = ["TableKeys", "as_table", "read_like", "read_own_table", "table_dataset"]

FEW_OWNERS: Final = 25  # below, a fifth of the owners would be a poor test set: records are set aside instead


Aside = Literal["fifth", "owners", "nothing"]
"""What is set aside for tests where no column says it: a fifth of the records, of the owners if known, or nothing."""


@dataclass(frozen=True)
class TableKeys:
    """The keys of `[data]` that say how to read a table; columns by name, `schema` a file."""

    label: str | None = None
    id: str | None = None
    split: str | None = None
    schema: str | None = None
    aside: Aside = "fifth"

    @property
    def given(self) -> list[str]:
        """Name the keys that are set."""
        return [name for name in ("label", "id", "split", "schema") if getattr(self, name) is not None]


def read_own_table(path: Path, keys: TableKeys, folder: Path | str | None = None) -> Dataset:
    """Read a user's own csv file; the schema's path is relative to `folder` if one is given."""
    if keys.label is None:
        raise DataError(f"{path} is a table: name the column with the classes in [data] label")
    schema = None if keys.schema is None else read_schema(Path(folder or "") / Path(keys.schema).expanduser())
    return _dataset(read_csv(path), keys.label, keys.id, keys.split, schema or Schema(), keys.aside)


def read_like(dataset: Dataset, name: str, folder: Path | str | None = None) -> Dataset:
    """Read another table as `dataset`, which comes from a table too, was read; all records are both train and test."""
    known = Preprocessing.of(dataset.preprocessing or {})
    path = Path(folder or "") / Path(name).expanduser()
    check_open(Origin(name, (path,)))
    table = read_csv(path)
    x, y = known.apply(table), known.class_numbers(table)
    _check_labels(table, known.label, y)
    owners = frozenset(table.columns.get(known.id or "", ())) - {""}
    short = Path(name).name.split(".")[0]
    return replace(dataset, name=short, x_train=x, y_train=y, x_test=x, y_test=y, ids=None, owners=owners)


def table_dataset(
    columns: Mapping[str, Sequence[Any]],
    *,
    label: str,
    id: str | None = None,
    split: str | None = None,
    schema: Schema | Mapping[str, Any] | Path | str | None = None,
    name: str = "table",
    aside: Aside = "fifth",
) -> Dataset:
    """Make a data set of columns of equal length (a dict, or a frame): words, numbers, booleans; None and NaN missing.

    `id` names the column that says who owns a record, `split` one that holds "train" or "test"; without `split` a
    fifth of the records is set aside for tests, by a hash. `schema` is a file, its tables, or a `Schema`.

    >>> few = {"age": [30, 41, None, 58, 66], "sick": [False, True, False, True, True]}
    >>> made = table_dataset(few, label="sick", split=None)
    >>> made.shape, made.class_names, made.fitted_on
    ((1,), ('False', 'True'), 'training records')
    """
    if isinstance(schema, str | Path):
        schema = read_schema(Path(schema))
    elif schema is not None and not isinstance(schema, Schema):
        schema = read_schema(schema)
    return _dataset(as_table(columns, name), label, id, split, schema or Schema(), aside)


def as_table(columns: Mapping[str, Sequence[Any]], name: str = "table") -> Table:
    """Return columns as text, as a CSV file would hold them; None and NaN become empty."""
    texts = {str(column): [_text(cell) for cell in columns[column]] for column in columns}
    lengths = Counter(len(cells) for cells in texts.values())
    if len(lengths) != 1 or 0 in lengths:
        raise DataError(
            f"{name} must have columns of one length and at least one record, got lengths {sorted(lengths)}"
        )
    return Table(name, texts)


def _dataset(table: Table, label: str, owner: str | None, split: str | None, schema: Schema, aside: Aside) -> Dataset:
    special = [name for name in (label, owner, split) if name is not None]
    if len(set(special)) < len(special):
        raise DataError(f"{table.name}: label, id and split must be different columns, got {', '.join(special)}")
    cells = {name: column_of(table, name) for name in special}
    owners = None if owner is None else _owners(table, owner, cells[owner])
    test, how = _test_records(table, None if split is None else cells[split], split, owners, owner, aside)
    fitted = fit_columns(table, schema, ~test, special)
    classes, from_schema = fit_classes(table, label, schema)
    if not from_schema:
        fitted = replace(fitted, fitted=(label, *fitted.fitted))
    made = replace(fitted, label=label, classes=classes, id=owner, split=how)
    y = made.class_numbers(table)
    _check_labels(table, label, y)
    if len(np.unique(y[~test])) == 1:
        logging.getLogger(__name__).warning(
            "%s: every train record has label %r, so there is nothing to learn to tell apart",
            table.name,
            classes[y[~test][0]],
            extra=OF_CLIENTS,
        )
    x = made.apply(table)
    ids = None if owners is None else np.unique(owners, return_inverse=True)[1].astype(np.int64)
    some = test if test.any() else ~test  # a data set needs test records; `untested` takes them away again
    made_set = Dataset(
        name=Path(table.name).name.split(".")[0],
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[some],
        y_test=y[some],
        classes=len(classes),
        ids=None if ids is None else ids[~test],
        owners=frozenset(() if owners is None else owners[~test].tolist()),
        class_names=classes,
        preprocessing=made.describe(),
        test_data=how,
        test_from=_owner(split, owners, test),
    )
    return made_set if test.any() else made_set.untested()


def _owner(split: str | None, owners: NDArray[np.str_] | None, test: NDArray[np.bool_]) -> Provenance | None:
    """Say whose test records are: the clients', if we cut them or an owner has records of both kinds."""
    if split is None:
        return Owned()
    if owners is not None and np.intersect1d(owners[test], owners[~test]).size:
        return Owned("clients: somebody owns train and test records")
    return None


def _check_labels(table: Table, label: str, y: NDArray[np.int64]) -> None:
    if (y < 0).any():
        raise DataError(f"{table.place(int(np.argmin(y)))}: label {label!r} is missing; remove records without a label")


def _owners(table: Table, name: str, cells: Sequence[str]) -> NDArray[np.str_]:
    if "" in cells:
        raise DataError(f"{table.place(list(cells).index(''))}: id {name!r} is missing; every record needs an owner")
    return np.array(cells, np.str_)


def _test_records(
    table: Table,
    cells: Sequence[str] | None,
    split: str | None,
    owners: NDArray[np.str_] | None,
    owner: str | None,
    aside: Aside,
) -> tuple[NDArray[np.bool_], str]:
    """Mark the test records, and say in words how they were chosen."""
    if cells is not None:
        words = [cell.lower() for cell in cells]
        for row, word in enumerate(words):
            if word not in ("train", "test"):
                raise DataError(f'{table.place(row)}: split {split!r} must be "train" or "test", got {cells[row]!r}')
        test, how = np.array([word == "test" for word in words]), f"column {split!r}"
        for word, part in (("test", test), ("train", ~test)):
            if not part.any():
                raise DataError(f"{table.name}: no record has {word!r} in the split column {split!r}")
        return test, how
    if aside == "nothing":
        return np.zeros(table.records, np.bool_), "none"
    if table.records < 5:
        raise DataError(f"{table.name} has {table.records} records, too few to set a fifth aside for tests; add some")
    few = 3 if aside == "owners" else FEW_OWNERS
    if owners is not None and len(np.unique(owners)) >= few:
        return held_out(owners.tolist()), f"a fifth of the owners in {owner!r}, by the SHA-256 of their names"
    if owners is not None and aside == "owners":
        raise DataError(
            f"{table.name} has too few owners in {owner!r} to set a fifth of them aside; add a split column"
        )
    rows = ["\x1f".join(row) for row in zip(*table.columns.values(), strict=True)]
    test = held_out(rows)
    if not test.any() or test.all():
        raise DataError(f"{table.name} has too few different records to set a fifth aside; add a split column")
    return test, "a fifth of the records, by the SHA-256 of their content"


def _text(cell: Any) -> str:
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
