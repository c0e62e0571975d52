"""Turn the columns of a table into float32 features, and write down how, so that it can be done again.

Everything that is needed is in `Preprocessing`, which goes to JSON and back: a run stores it, and `sottovoce predict`
treats new records as the training records were treated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.core.validate import nearest
from sottovoce.data.csv_file import Table

__all__ = ["CategoryColumn", "NumberColumn", "Preprocessing", "column_of", "parse_number", "read_numbers"]

VERSION: Final = 1

Features = NDArray[np.float32]
FittedOn = Literal["training records", "schema"]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: (value - center) / scale, cut off at `low` and `high` where there are such.

    `fill` takes the place of a missing value, before scaling; None: the feature is 0.
    """

    name: str
    center: float
    scale: float
    low: float | None
    high: float | None
    missing: str  # the rule: see `schema.Column`
    fill: float | None

    @property
    def features(self) -> list[str]:
        """Name the features that come out."""
        return [self.name, f"{self.name} is missing"] if self.missing == "category" else [self.name]

    def apply(self, table: Table, empty: frozenset[str]) -> Features:
        """Return the features of every record."""
        values = read_numbers(table, self.name, empty)
        absent = np.isnan(values)
        _check_missing(table, self.name, self.missing, absent)
        if self.low is not None and self.high is not None:
            cut = np.clip(values, self.low, self.high)
            _say(table, self.name, int(np.count_nonzero((cut != values) & ~absent)), "outside its range, cut off there")
            values = cut
        scaled = (values - self.center) / self.scale
        scaled[absent] = 0.0 if self.fill is None else (self.fill - self.center) / self.scale
        columns = [scaled, absent] if self.missing == "category" else [scaled]
        return np.column_stack(columns).astype(np.float32)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of words: one feature a category, 1 where the record has it; an unknown category has none."""

    name: str
    categories: tuple[str, ...]
    missing: str

    @property
    def features(self) -> list[str]:
        """Name the features that come out."""
        known = [f"{self.name}={category}" for category in self.categories]
        return [*known, f"{self.name} is missing"] if self.missing == "category" else known

    def apply(self, table: Table, empty: frozenset[str]) -> Features:
        """Return the features of every record."""
        cells = column_of(table, self.name)
        place = {category: number for number, category in enumerate(self.categories)}
        absent = np.fromiter((cell in empty for cell in cells), np.bool_, len(cells))
        _check_missing(table, self.name, self.missing, absent)
        codes = np.fromiter((place.get(cell, -1) for cell in cells), np.int64, len(cells))
        codes[absent] = len(place) if self.missing == "category" else -1
        _say(
            table,
            self.name,
            int(np.count_nonzero((codes < 0) & ~absent)),
            "in an unknown category, which leaves no trace",
        )
        hot = np.zeros((len(cells), len(self.features)), np.float32)
        rows = np.flatnonzero(codes >= 0)
        hot[rows, codes[rows]] = 1
        return hot


@dataclass(frozen=True)
class Preprocessing:
    """How the records of a table become features and class numbers."""

    source: str
    columns: tuple[NumberColumn | CategoryColumn, ...]
    label: str
    classes: tuple[str, ...]
    missing_values: tuple[str, ...]
    fitted: tuple[str, ...]  # columns of which something was taken from the training records
    ignored: tuple[str, ...] = ()
    id: str | None = None
    split: str = ""  # how the test records were chosen, in words

    @property
    def fitted_on(self) -> FittedOn:
        """Say where scales, categories and classes come from; those of training records are not covered by epsilon."""
        return "training records" if self.fitted else "schema"

    @property
    def features(self) -> list[str]:
        """Name the features, in order."""
        return [name for column in self.columns for name in column.features]

    def apply(self, table: Table) -> Features:
        """Return the features of the records of a table."""
        empty = frozenset(self.missing_values)
        return np.concatenate([column.apply(table, empty) for column in self.columns], axis=1)

    def class_numbers(self, table: Table) -> NDArray[np.int64]:
        """Return the class number of every record; -1 where the label is missing."""
        cells, place = column_of(table, self.label), {name: number for number, name in enumerate(self.classes)}
        numbers = np.empty(len(cells), np.int64)
        for row, cell in enumerate(cells):
            number = place.get(cell, -1)
            if number < 0 and cell not in self.missing_values:
                raise DataError(
                    f"{table.place(row)}: label {self.label!r} must be one of the classes {_few(self.classes)}, "
                    f"got {cell!r}"
                )
            numbers[row] = number
        return numbers

    def describe(self) -> dict[str, Any]:
        """Return everything as JSON; `of` is the way back."""
        kinds = {NumberColumn: "number", CategoryColumn: "category"}
        return {
            "version": VERSION,
            "source": self.source,
            "fitted_on": self.fitted_on,
            "fitted": list(self.fitted),
            "label": self.label,
            "classes": list(self.classes),
            "id": self.id,
            "split": self.split,
            "missing_values": list(self.missing_values),
            "ignored": list(self.ignored),
            "columns": [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns],
            "features": self.features,
        }

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Preprocessing:
        """Read what `describe` wrote."""
        if described.get("version") != VERSION:
            raise DataError(f"preprocessing has version {described.get('version')!r}; {VERSION} is known here")
        try:
            return cls(
                source=str(described["source"]),
                columns=tuple(_column(column) for column in described["columns"]),
                label=str(described["label"]),
                classes=tuple(described["classes"]),
                missing_values=tuple(described["missing_values"]),
                fitted=tuple(described["fitted"]),
                ignored=tuple(described["ignored"]),
                id=described["id"],
                split=str(described["split"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"preprocessing is damaged: {type(error).__name__}: {error}") from None


def column_of(table: Table, name: str) -> Sequence[str]:
    """Return a column by name, or say which was meant."""
    if name in table.columns:
        return table.columns[name]
    guess = nearest(name, table.columns)
    hint = f"did you mean {guess!r}?" if guess else f"it has {_few(tuple(table.columns))}"
    raise DataError(f"{table.name} has no column {name!r}; {hint}")


def parse_number(cell: str) -> float | None:
    """Return a cell as a finite number, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def read_numbers(table: Table, name: str, empty: frozenset[str]) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where a cell is missing; anything else is an error that says where it is."""
    cells = column_of(table, name)
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        value = math.nan if cell in empty else parse_number(cell)
        if value is None:
            raise DataError(
                f"{table.place(row)}: column {name!r} must hold finite numbers, got {cell!r}; mend the cell, or in a "
                'schema add it to missing_values or set kind = "category"'
            )
        values[row] = value
    return values


def _column(described: Mapping[str, Any]) -> NumberColumn | CategoryColumn:
    fields = {key: value for key, value in described.items() if key != "kind"}
    if described["kind"] == "number":
        return NumberColumn(**fields)
    return CategoryColumn(**{**fields, "categories": tuple(fields["categories"])})


def _check_missing(table: Table, name: str, rule: str, absent: NDArray[np.bool_]) -> None:
    if rule == "refuse" and absent.any():
        row = int(np.flatnonzero(absent)[0])
        raise DataError(
            f'{table.place(row)}: column {name!r} is missing, and the schema says missing = "refuse"; '
            "mend the record or change the schema"
        )


def _say(table: Table, name: str, count: int, what: str) -> None:
    if count:
        logging.getLogger(__name__).info(
            "%s: column %r: %d of %d cells %s", table.name, name, count, table.records, what, extra=OF_CLIENTS
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
