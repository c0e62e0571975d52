"""Decide how the columns of a table become features: by the schema, and where it is silent by the training records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.data.csv_file import Table
from sottovoce.data.preprocessing import (
    CategoryColumn,
    NumberColumn,
    Preprocessing,
    column_of,
    parse_number,
    read_numbers,
)
from sottovoce.data.schema import Column, Schema

__all__ = ["fit_classes", "fit_columns"]

MOST_CATEGORIES: Final = 1000
MOST_CLASSES: Final = 100
MOST_FRACTIONS: Final = 20  # classes that are fractions, such as 0.5
FEW: Final = 10  # different values that any table may have, however short


def fit_columns(table: Table, schema: Schema, train: NDArray[np.bool_], special: Sequence[str]) -> Preprocessing:
    """Return the preprocessing of all columns but the special ones (label, id, split), without label and classes."""
    for name, said in schema.columns.items():
        column_of(table, name)
        if name in special and said.kind != "ignore":
            raise DataError(
                f"{table.name}: {name!r} is the label, id or split column and no feature; remove it from the schema"
            )
    chosen: list[NumberColumn | CategoryColumn] = []
    fitted, ignored = [], []
    rest = Column("ignore") if schema.others == "ignore" else None
    rows = np.flatnonzero(train)
    for name in table.columns:
        if name in special:
            continue
        column, looked = _fit(table, name, schema.columns.get(name) or rest, frozenset(schema.missing_values), rows)
        if column is None:
            ignored.append(name)
        else:
            chosen.append(column)
        if looked:
            fitted.append(name)
    if not chosen:
        raise DataError(f"{table.name} has no column left to learn from, beside {', '.join(special)}")
    return Preprocessing(
        source=Path(table.name).name,
        columns=tuple(chosen),
        label="",
        classes=(),
        missing_values=schema.missing_values,
        fitted=tuple(fitted),
        ignored=tuple(ignored),
    )


def fit_classes(table: Table, label: str, schema: Schema) -> tuple[tuple[str, ...], bool]:
    """Return the names of the classes in the order of their numbers, and whether they come from the schema.

    Numbers are sorted by value, words by letter; a label that looks like a quantity is refused.
    """
    if schema.classes is not None:
        return schema.classes, True
    names = sorted(set(column_of(table, label)) - set(schema.missing_values))
    numbers = [parse_number(name) for name in names]
    values = [value for value in numbers if value is not None]
    numeric = len(values) == len(names)
    broken = numeric and any(value != int(value) for value in values)
    limit = MOST_FRACTIONS if broken else MOST_CLASSES
    if len(names) > limit or len(names) > max(FEW, table.records / 2):
        kind = "numbers, as a quantity has" if numeric else "words"
        raise DataError(
            f"{table.name}: label {label!r} has {len(names)} different {kind}; sottovoce tells classes apart (at most "
            f"{limit} here), so make classes of them, for example ranges, or name them in [label] classes of a schema"
        )
    if numeric:
        names = [name for _, name in sorted(zip(values, names, strict=True))]
    if not names:
        raise DataError(f"{table.name}: label {label!r} is missing in every record")
    if len(names) == 1:
        names.append(f"not {names[0]}")  # a network needs two classes; that there is one is warned about
    return tuple(names), False


def _fit(
    table: Table, name: str, said: Column | None, empty: frozenset[str], rows: NDArray[np.int64]
) -> tuple[NumberColumn | CategoryColumn | None, bool]:
    """Return how to treat a column (None: leave it out), and whether training records had a say in it."""
    if said is None:
        cells = column_of(table, name)
        present = [cell for row in rows if (cell := cells[row]) not in empty]
        if not present:
            logging.getLogger(__name__).info(
                "%s: column %r is empty and is left out", table.name, name, extra=OF_CLIENTS
            )
            return None, True
        readable = sum(parse_number(cell) is not None for cell in present)
        # A column of numbers with a few typing errors is no column of words; the errors are named when it is read.
        said = Column("number" if readable >= 0.9 * len(present) else "category")
    if said.kind == "ignore":
        return None, False
    return (_number if said.kind == "number" else _category)(table, name, said, empty, rows)


def _number(
    table: Table, name: str, said: Column, empty: frozenset[str], rows: NDArray[np.int64]
) -> tuple[NumberColumn | CategoryColumn, bool]:
    ranged, standard = said.minimum is not None, said.mean is not None
    missing = said.missing if said.missing is not None else "middle" if ranged else "mean"
    looked = not (ranged or standard) or (missing == "mean" and not standard)
    mean, stddev = said.mean, said.stddev
    if looked:
        values = read_numbers(table, name, empty)[rows]
        values = values[~np.isnan(values)]
        if not len(values):
            raise DataError(f"{table.name}: column {name!r} is missing in every train record; ignore it in the schema")
        mean, stddev = float(values.mean()), float(values.std()) or 1.0
    if said.minimum is not None and said.maximum is not None:
        center, scale = said.minimum, said.maximum - said.minimum
    else:
        center, scale = float(mean or 0.0), float(stddev or 1.0)
    fills = {"mean": mean, "middle": center + scale / 2}
    fill = fills.get(missing) if isinstance(missing, str) else missing
    if fill is not None and said.minimum is not None and said.maximum is not None:
        fill = min(max(fill, said.minimum), said.maximum)
    rule = missing if isinstance(missing, str) else f"{missing:g}"
    return NumberColumn(name, center, scale, said.minimum, said.maximum, rule, fill), looked


def _category(
    table: Table, name: str, said: Column, empty: frozenset[str], rows: NDArray[np.int64]
) -> tuple[NumberColumn | CategoryColumn, bool]:
    rule = said.missing if isinstance(said.missing, str) else "zero"
    if said.categories is not None:
        return CategoryColumn(name, said.categories, rule), False
    cells = column_of(table, name)
    found = sorted({cells[row] for row in rows} - empty)
    if len(found) > min(MOST_CATEGORIES, max(5 * FEW, len(rows) / 2)):
        raise DataError(
            f"{table.name}: column {name!r} has {len(found)} different words among {len(rows)} train records, which "
            'looks like a name or free text; in a schema set kind = "ignore" for it, or list its categories'
        )
    if not found:
        raise DataError(f"{table.name}: column {name!r} is missing in every train record; ignore it in the schema")
    return CategoryColumn(name, tuple(found), rule), True
