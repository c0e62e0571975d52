"""Turn the columns of a table into float32 features, and write down how, so that it can be done again.

Everything that is needed is in `Preprocessing`, which goes to JSON and back: a run stores it, and `sottovoce predict`
treats new records as the training records were treated.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.core.target import CLASSES, Kind, Target
from sottovoce.core.validate import nearest
from sottovoce.data.blind import KNOTS, SHARE, hashed, octaves
from sottovoce.data.cells import blocks, chosen
from sottovoce.data.compact import CompactColumn, CompactFeatures
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.numerals import COMMA, POINT, Decimal, has_unit, looks_numeric, notation, parse_number
from sottovoce.data.schema import Column, Schema

VERSION: Final = 1

_MARKS: Final = {POINT: "decimal points", COMMA: "decimal commas"}

_AT_ONCE: Final = 1 << 22  # features that are made together
LARGE: Final = 1 << 28  # bytes: features that would take more are held compact

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

    @property
    def most(self) -> int:
        """Return how many features of a record may be other than zero."""
        return len(self.features)

    @property
    def constant(self) -> float | None:
        """Return the one value of features that are not zero; None: they have several."""
        return None

    def blocks(self, table: CsvTable, empty: frozenset[str]) -> Iterator[Features]:
        """Yield the features of every record, some records at a time."""
        values = read_numbers(table, self.name, empty)
        absent = np.isnan(values)
        _check_missing(table, self.name, self.missing, absent)
        if self.low is not None and self.high is not None:
            outside = int(np.count_nonzero(values < self.low)) + int(np.count_nonzero(values > self.high))
            _say(table, self.name, outside, "outside its range, cut off there")
            np.clip(values, self.low, self.high, out=values)
        values -= self.center  # in place: a long column is held once
        values /= self.scale
        values[absent] = 0.0 if self.fill is None else (self.fill - self.center) / self.scale
        for rows in _pieces(len(values), len(self.features)):
            scaled = values[rows].astype(np.float32)
            yield np.column_stack([scaled, absent[rows]]) if self.missing == "category" else scaled[:, np.newaxis]


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

    @property
    def most(self) -> int:
        """Return how many features of a record may be other than zero."""
        return 1

    @property
    def constant(self) -> float | None:
        """Return the one value of features that are not zero."""
        return 1.0

    def blocks(self, table: CsvTable, empty: frozenset[str]) -> Iterator[NDArray[np.uint8]]:
        """Yield the features of every record, some records at a time: 0 or 1."""
        cells = column_of(table, self.name)
        place = {category: number for number, category in enumerate(self.categories)}
        absent = np.fromiter((cell in empty for cell in cells), np.bool_, len(cells))
        _check_missing(table, self.name, self.missing, absent)
        codes = np.fromiter((place.get(cell, -1) for cell in cells), np.int32, len(cells))
        codes[absent] = len(place) if self.missing == "category" else -1
        _say(
            table,
            self.name,
            int(np.count_nonzero((codes < 0) & ~absent)),
            "in an unknown category, which leaves no trace",
        )
        for rows in _pieces(len(codes), width := len(self.features)):
            some = codes[rows]
            hot = np.zeros((len(some), width), np.uint8)
            known = np.flatnonzero(some >= 0)
            hot[known, some[known]] = 1
            yield hot


@dataclass(frozen=True)
class OctaveColumn:
    """A column of numbers whose range nobody knows: one feature for each power of two (`blind.octaves`)."""

    name: str
    missing: str

    @property
    def features(self) -> list[str]:
        """Name the features that come out."""
        near = [f"{self.name} near {knot:g}" for knot in KNOTS]
        return [*near, f"{self.name} is missing"] if self.missing == "category" else near

    @property
    def most(self) -> int:
        """Return how many features of a record may be other than zero."""
        return 2

    @property
    def constant(self) -> float | None:
        """Return the one value of features that are not zero; None: they have several."""
        return None

    def blocks(self, table: CsvTable, empty: frozenset[str]) -> Iterator[Features]:
        """Yield the features of every record, some records at a time."""
        values = read_numbers(table, self.name, empty)
        absent = np.isnan(values)
        _check_missing(table, self.name, self.missing, absent)
        for rows in _pieces(len(values), len(self.features)):
            near = octaves(values[rows])
            if self.missing == "category":
                near = np.column_stack([near, absent[rows]]).astype(np.float32)
            yield near


@dataclass(frozen=True)
class BucketColumn:
    """A column of words of which nobody has a list: one feature for each bucket (`blind.hashed`)."""

    name: str
    buckets: int
    missing: str

    @property
    def features(self) -> list[str]:
        """Name the features that come out."""
        known = [f"{self.name} in bucket {number}" for number in range(self.buckets)]
        return [*known, f"{self.name} is missing"] if self.missing == "category" else known

    @property
    def most(self) -> int:
        """Return how many features of a record may be other than zero."""
        return 2

    @property
    def constant(self) -> float | None:
        """Return the one value of features that are not zero; None: they have several."""
        return None if self.missing == "category" else SHARE

    def blocks(self, table: CsvTable, empty: frozenset[str]) -> Iterator[Features]:
        """Yield the features of every record, some records at a time."""
        cells = column_of(table, self.name)
        absent = np.fromiter((cell in empty for cell in cells), np.bool_, len(cells))
        _check_missing(table, self.name, self.missing, absent)
        words = iter(cells)
        for rows in _pieces(len(cells), len(self.features)):
            features = hashed(list(islice(words, rows.stop - rows.start)), self.buckets, empty)
            if self.missing == "category":
                features = np.column_stack([features, absent[rows]]).astype(np.float32)
            yield features


def _pieces(records: int, width: int) -> Iterator[slice]:
    """Yield the places of records, as many at a time as are made together."""
    step = max(1, _AT_ONCE // width)
    return (slice(start, min(start + step, records)) for start in range(0, records, step))


TableColumn = NumberColumn | CategoryColumn | OctaveColumn | BucketColumn
_KINDS: Final[dict[type[TableColumn], str]] = {
    NumberColumn: "number",
    CategoryColumn: "category",
    OctaveColumn: "octaves",
    BucketColumn: "buckets",
}


@dataclass(frozen=True)
class Preprocessing:
    """How the records of a table become features and class numbers."""

    source: str
    columns: tuple[TableColumn, ...]
    label: str
    classes: tuple[str, ...]
    missing_values: tuple[str, ...]
    fitted: tuple[str, ...]  # columns of which something was taken from the training records
    ignored: tuple[str, ...] = ()
    id: str | None = None
    split: str = ""  # how the test records were chosen, in words
    target: Target = CLASSES
    answers: tuple[str, ...] = ()  # the columns of a label that is several yes-or-no answers

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Name the columns of the label."""
        return self.answers or (self.label,)

    @property
    def fitted_on(self) -> FittedOn:
        """Say where scales, categories and classes come from; those of training records are not covered by epsilon."""
        return "training records" if self.fitted else "schema"

    @property
    def ranged(self) -> tuple[int, ...]:
        """Return the places of the features that are numbers, scaled from a range to [0, 1]."""
        starts = np.cumsum([0, *(len(column.features) for column in self.columns)])
        found = zip(self.columns, starts.tolist(), strict=False)
        return tuple(
            start for column, start in found if isinstance(column, NumberColumn) and column.center == column.low
        )

    def centred(self) -> Preprocessing:
        """Return the same with numbers of a range scaled to [-1, 1] instead of [0, 1]."""
        columns = [
            replace(
                column,
                center=column.center + column.scale / 2,
                scale=column.scale / 2,
                fill=column.low if column.fill is None else column.fill,
            )
            if isinstance(column, NumberColumn) and column.center == column.low
            else column
            for column in self.columns
        ]
        return replace(self, columns=tuple(columns))

    @property
    def features(self) -> list[str]:
        """Name the features, in order."""
        return [name for column in self.columns for name in column.features]

    def apply(self, table: CsvTable) -> Features:
        """Return the features of the records of a table."""
        return self.apply_to(table, np.ones(table.records, np.bool_))[0]

    def apply_to(self, table: CsvTable, *parts: NDArray[np.bool_]) -> list[Features]:
        """Return the features of each part of the records; column by column, so that no copy of all is held."""
        empty, first, width = frozenset(self.missing_values), 0, len(self.features)
        features = [np.empty((int(np.count_nonzero(part)), width), np.float32) for part in parts]
        for column in self.columns:
            wide = len(column.features)
            for number, start, block in _parted(column.blocks(table, empty), parts):
                features[number][start : start + len(block), first : first + wide] = block
            first += wide
        return features

    def held(self, table: CsvTable, *parts: NDArray[np.bool_]) -> list[Any]:
        """Return the features as `apply_to` does, or compact where they would be large."""
        records = [int(np.count_nonzero(part)) for part in parts]
        if 4 * len(self.features) * sum(records) <= LARGE:
            return list(self.apply_to(table, *parts))
        empty, columns = frozenset(self.missing_values), []
        for column in self.columns:
            kept = [CompactColumn.empty(count, len(column.features), column.most, column.constant) for count in records]
            for number, start, block in _parted(column.blocks(table, empty), parts):
                kept[number].store(start, block)
            columns.append(kept)
        return [
            CompactFeatures(tuple(column), count)
            for column, count in zip(zip(*columns, strict=True), records, strict=True)
        ]

    def labels(self, table: CsvTable) -> NDArray[Any]:
        """Return the label of every record; where it is missing, -1 of a class or an answer, NaN of a number."""
        empty = frozenset(self.missing_values)
        if self.target.kind == "number":
            return self.target.stored(_label_values(table, self.label, empty))
        if self.target.kind == "answers":
            return np.column_stack([_yes_or_no(table, name, empty) for name in self.answers])
        return self._class_numbers(table)

    def _class_numbers(self, table: CsvTable) -> NDArray[np.int64]:
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
            "columns": [{"kind": _KINDS[type(column)], **asdict(column)} for column in self.columns],
            "features": self.features,
            **({} if self.target.kind == "class" else {"target": self.target.describe(), "answers": [*self.answers]}),
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
                target=Target.of(described.get("target")),
                answers=tuple(described.get("answers", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"preprocessing is damaged: {type(error).__name__}: {error}") from None


def _parted(
    made: Iterable[NDArray[Any]], parts: Sequence[NDArray[np.bool_]]
) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Yield of each block of rows what belongs to each part: the part's number, where it begins there, and the rows."""
    done, row = [0] * len(parts), 0
    for block in made:
        for number, part in enumerate(parts):
            some = block[part[row : row + len(block)]]
            yield number, done[number], some
            done[number] += len(some)
        row += len(block)


def column_of(table: CsvTable, name: str) -> Sequence[str]:
    """Return a column by name, or say which was meant."""
    if name in table.columns:
        return table.columns[name]
    guess = nearest(name, table.columns)
    hint = f"did you mean {guess!r}?" if guess else f"it has {_few(tuple(table.columns))}"
    raise DataError(f"{table.name} has no column {name!r}; {hint}")


def read_numbers(table: CsvTable, name: str, empty: frozenset[str]) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where a cell is missing; anything else is an error that says where it is."""
    column_of(table, name)
    values, first = np.empty(table.records), 0
    for part in table.parts or (table,):
        _fill_numbers(part, name, empty, values[first : first + part.records])
        first += part.records
    return values


def _fill_numbers(table: CsvTable, name: str, empty: frozenset[str], values: NDArray[np.float64]) -> None:
    cells, first = table.columns[name], 0
    decimal = table.decimal_of(name)
    if decimal is None:
        row = notation(cells).doubtful or 0
        raise DataError(
            f"{table.place(row)}: column {name!r} holds {cells[row]!r}, which is {parse_number(cells[row]):.12g} or "
            f"{parse_number(cells[row], COMMA):.12g}; say which mark begins the decimals: [data] decimal = "
            '"." or ","'
        )
    for block in blocks(cells):
        there = [cell not in empty for cell in block]
        quick = _quick(list(compress(block, there)), decimal)
        some = np.full(len(block), np.nan)
        if quick is not None:
            some[there] = quick
        else:
            some[:] = [_value(table, name, first + place, cell, decimal, empty) for place, cell in enumerate(block)]
        values[first : first + len(block)] = some
        first += len(block)


def _quick(block: Sequence[str], decimal: Decimal) -> list[float] | None:
    """Return plain numbers fast; None: a cell needs a closer look."""
    try:
        values = list(map(float, block)) if decimal == POINT else None
    except ValueError:
        return None
    # float() reads more than we do: nan, inf, 1_000 and digits of other scripts.
    if values is None or not np.isfinite(values).all() or any("_" in cell or not cell.isascii() for cell in block):
        return None
    return values


def _value(table: CsvTable, name: str, row: int, cell: str, decimal: Decimal, empty: frozenset[str]) -> float:
    value = math.nan if cell in empty else parse_number(cell, decimal)
    if value is None:
        other = COMMA if decimal == POINT else POINT
        hint = ""
        if parse_number(cell, other) is not None:
            hint = f" (a number with {_MARKS[other]}, but this column of the file has {_MARKS[decimal]})"
        raise DataError(
            f"{table.place(row)}: column {name!r} must hold finite numbers, got {cell!r}{hint}; mend the cell, or in a "
            'schema add it to missing_values or set kind = "category"'
        )
    return value


def _column(described: Mapping[str, Any]) -> TableColumn:
    fields = {key: value for key, value in described.items() if key != "kind"}
    if described["kind"] == "category":
        return CategoryColumn(**{**fields, "categories": tuple(fields["categories"])})
    return {kind: column for column, kind in _KINDS.items()}[described["kind"]](**fields)


def _check_missing(table: CsvTable, name: str, rule: str, absent: NDArray[np.bool_]) -> None:
    if rule == "refuse" and absent.any():
        row = int(np.flatnonzero(absent)[0])
        raise DataError(
            f'{table.place(row)}: column {name!r} is missing, and the schema says missing = "refuse"; '
            "mend the record or change the schema"
        )


def _say(table: CsvTable, name: str, count: int, what: str) -> None:
    if count:
        logging.getLogger(__name__).info(
            "%s: column %r: %d of %d cells %s", table.name, name, count, table.records, what, extra=OF_CLIENTS
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


MOST_CATEGORIES: Final = 1000
MOST_CLASSES: Final = 100
MOST_FRACTIONS: Final = 20  # classes that are fractions, such as 0.5
NUMERIC: Final = 0.9  # share of its cells that makes a column one of numbers
FEW: Final = 10  # different values that any table may have, however short


def declared(
    schema: Schema, source: str, labels: Sequence[str], special: Sequence[str] = (), kind: Kind = "class"
) -> Preprocessing:
    """Return the preprocessing that a schema fixes by itself, features in its order; no table is read.

    Raises if something would have to be taken from records: each would find something else.
    """
    columns: list[TableColumn] = []
    for name, said in schema.columns.items():
        _check_special(source, name, said, special)
        if said.kind == "ignore":
            continue
        number = said.kind == "number"
        if not (_scaled(said) if number else said.categories is not None or said.buckets is not None):
            lacks = "minimum and maximum" if number else "categories"
            raise DataError(
                f"[columns.{name}] of the schema of {source} leaves something to the records, and those of every site "
                f"differ; set {lacks}{', and missing other than mean' if said.missing == 'mean' else ''}"
            )
        columns.append(_number_column(name, said, said.mean, said.stddev) if number else _category_column(name, said))
    label = ", ".join(labels)
    classes, target = tuple(labels), Target(kind)
    if kind == "class":
        if schema.classes is None:
            raise DataError(f"the schema of {source} does not name the classes of {label!r}; set [label] classes")
        classes = schema.classes
    if kind == "number":
        if schema.label_range is None:
            raise DataError(f"the schema of {source} has no range of {label!r}; set [label] minimum and maximum")
        target = Target.between(*schema.label_range)
    if not columns:
        raise DataError(f"the schema of {source} has no column to learn from")
    guessed = [name for name, said in schema.columns.items() if said.guessed]
    return Preprocessing(
        source=source,
        columns=tuple(columns),
        label=label,
        classes=classes,
        target=target,
        answers=classes if kind == "answers" else (),
        missing_values=schema.missing_values,
        fitted=(*([label] if schema.classes_guessed else []), *guessed),
        ignored=tuple(name for name, said in schema.columns.items() if said.kind == "ignore"),
    )


def check_columns(table: CsvTable, schema: Schema, special: Sequence[str]) -> None:
    """Raise if a table lacks a column of the schema, or has one that the schema says nothing of."""
    for name in schema.columns:
        column_of(table, name)
    more = [name for name in table.columns if name not in schema.columns and name not in special]
    if more and schema.others != "ignore":
        raise DataError(
            f"{table.name}: column {more[0]!r} is not in the schema, so every site would read it differently; add it "
            'there, remove it from the file, or set others = "ignore" in the schema'
        )


def check_ranges(table: CsvTable, known: Preprocessing) -> None:
    """Raise if most cells of a column are outside its range or categories: its unit or its codes are others."""
    empty = frozenset(known.missing_values)
    for column in known.columns:
        if isinstance(column, NumberColumn) and column.low is not None and column.high is not None:
            values = read_numbers(table, column.name, empty)
            values = values[~np.isnan(values)]
            wrong, count = int(np.count_nonzero((values < column.low) | (values > column.high))), len(values)
            what = f"outside the range {column.low:g} to {column.high:g} of the schema; is it in another unit?"
        elif isinstance(column, CategoryColumn):
            told = Counter(cell for cell in column_of(table, column.name) if cell not in empty)
            count = sum(told.values())
            wrong = count - sum(told[category] for category in column.categories)
            what = "in no category of the schema; has it other codes?"
        else:
            continue
        if 2 * wrong > count:
            raise DataError(f"{table.name}: column {column.name!r}: {wrong} of {count} cells are {what}")


def _check_special(source: str, name: str, said: Column, special: Sequence[str]) -> None:
    if name in special and said.kind != "ignore":
        raise DataError(
            f"{source}: {name!r} is the label, id, person or split column and no feature; remove it from the schema"
        )


def fit_columns(
    table: CsvTable,
    schema: Schema,
    train: NDArray[np.bool_],
    special: Sequence[str],
    names: Sequence[str] | None = None,
) -> Preprocessing:
    """Return the preprocessing of all columns but the special ones (label, id, split), without label and classes.

    `names` are the columns in the order of their features; None: as they stand in the table.
    """
    for name, said in schema.columns.items():
        column_of(table, name)
        _check_special(table.name, name, said, special)
    chosen: list[TableColumn] = []
    fitted, ignored = [], []
    rest = Column("ignore") if schema.others == "ignore" else None
    for name in names or table.columns:
        if name in special:
            continue
        column, looked = _fit(table, name, schema.columns.get(name) or rest, frozenset(schema.missing_values), train)
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


def fit_classes(table: CsvTable, label: str, schema: Schema) -> tuple[tuple[str, ...], bool]:
    """Return the names of the classes in the order of their numbers, and whether they come from the schema.

    Numbers are sorted by value, words by letter; a label that looks like a quantity is refused.
    """
    if schema.classes is not None:
        return schema.classes, not schema.classes_guessed
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
            f"{limit} here), so learn the number itself ([model] task = 'regression'), make classes of it, for example "
            "ranges, or name them in [label] classes of a schema"
        )
    if numeric:
        if len(set(values)) < len(values):
            twins = sorted(zip(values, names, strict=True))
            one, two = next((a[1], b[1]) for a, b in pairwise(twins) if a[0] == b[0])
            row = list(column_of(table, label)).index(two)
            raise DataError(
                f"{table.place(row)}: label {label!r} is {two!r}, and elsewhere {one!r}, which is the same number; "
                "write both alike, or name both in [label] classes of a schema"
            )
        names = [name for _, name in sorted(zip(values, names, strict=True))]
    if not names:
        raise DataError(f"{table.name}: label {label!r} is missing in every record")
    if len(names) == 1:
        names.append(f"not {names[0]}")  # a network needs two classes; that there is one is warned about
    return tuple(names), False


def fit_value(
    table: CsvTable, label: str, schema: Schema, rows: NDArray[np.bool_], declared: tuple[float, float] | None
) -> tuple[Target, bool]:
    """Return the scale of a label that is a number, and whether it is public: a declared range, or the schema's."""
    bounds = declared or schema.label_range
    if bounds is not None:
        return Target.between(*bounds), declared is not None or not schema.classes_guessed
    values = _label_values(table, label, frozenset(schema.missing_values))[rows]
    known = values[~np.isnan(values)]
    if not len(known):
        raise DataError(f"{table.name}: label {label!r} is missing in every train record")
    return Target.fitted(known), False


def _label_values(table: CsvTable, label: str, empty: frozenset[str]) -> NDArray[np.float64]:
    try:
        values = read_numbers(table, label, empty)
    except DataError as error:
        raise DataError(f"{error} (it is the label, and task = 'regression' needs numbers)") from None
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise DataError(f"{table.place(row)}: label {label!r} is infinite, and task = 'regression' needs numbers")
    return values


_YES: Final = {"1": 1, "yes": 1, "true": 1, "0": 0, "no": 0, "false": 0, "1.0": 1, "0.0": 0}


def _yes_or_no(table: CsvTable, name: str, empty: frozenset[str]) -> NDArray[np.int64]:
    cells = column_of(table, name)
    found = np.empty(len(cells), np.int64)
    for row, cell in enumerate(cells):
        answer = _YES.get(cell.lower(), -1)
        if answer < 0 and cell not in empty:
            raise DataError(
                f"{table.place(row)}: label {name!r} must be 0 or 1, yes or no, for task = 'multilabel', got {cell!r}"
            )
        found[row] = answer
    return found


def _fit(
    table: CsvTable, name: str, said: Column | None, empty: frozenset[str], rows: NDArray[np.bool_]
) -> tuple[TableColumn | None, bool]:
    """Return how to treat a column (None: leave it out), and whether training records had a say in it."""
    if said is None:
        kind = kind_of(table, name, empty, rows)
        if kind is None:
            logging.getLogger(__name__).info(
                "%s: column %r is empty and is left out", table.name, name, extra=OF_CLIENTS
            )
            return None, True
        said = Column(kind)
    if said.kind == "ignore":
        return None, said.guessed
    column, looked = (_number if said.kind == "number" else _category)(table, name, said, empty, rows)
    return column, looked or said.guessed


def kind_of(table: CsvTable, name: str, empty: frozenset[str], rows: NDArray[np.bool_]) -> str | None:
    """Return what a column holds, number or category; None: nothing. A mixture is refused."""
    cells = column_of(table, name)
    present = numeric = with_unit = 0
    for block in chosen(cells, rows):
        some = [cell for cell in block if cell not in empty]
        present += len(some)
        if _quick(some, POINT) is not None:
            numeric += len(some)
            continue
        for cell, count in Counter(some).items():
            if looks_numeric(cell):
                numeric += count
            else:
                with_unit += count * has_unit(cell)
    if not present:
        return None
    # A column of numbers with a few typing errors is no column of words; the errors are named when it is read.
    if numeric >= NUMERIC * present:
        return "number"
    if 2 * (numeric + with_unit) >= present:
        row = next(row for row, cell in enumerate(cells) if rows[row] and cell not in empty and not looks_numeric(cell))
        raise DataError(
            f"{table.place(row)}: column {name!r} holds numbers and also {cells[row]!r}; make it a number (a unit "
            "belongs into the column's name), or in a schema add it to missing_values or set the column's kind"
        )
    if numeric + with_unit:
        logging.getLogger(__name__).warning(
            "%s: column %r is read as categories, though some of its cells are numbers; set its kind in a schema",
            table.name,
            name,
            extra=OF_CLIENTS,
        )
    return "category"


def _number(
    table: CsvTable, name: str, said: Column, empty: frozenset[str], rows: NDArray[np.bool_]
) -> tuple[TableColumn, bool]:
    if said.octaves:
        return _number_column(name, said, None, None), False
    mean, stddev = said.mean, said.stddev
    if looked := not _scaled(said):
        values = read_numbers(table, name, empty)[rows]
        values = values[~np.isnan(values)]
        if not len(values):
            raise DataError(f"{table.name}: column {name!r} is missing in every train record; ignore it in the schema")
        mean, stddev = float(values.mean()), float(values.std()) or 1.0
    return _number_column(name, said, mean, stddev), looked


def _scaled(said: Column) -> bool:
    """Tell whether a schema says everything about a column of numbers."""
    if said.mean is not None or said.octaves:
        return True
    return said.minimum is not None and said.missing != "mean"


def _number_column(name: str, said: Column, mean: float | None, stddev: float | None) -> TableColumn:
    """Return a column of numbers as the schema has it; where that has no range, by a mean and a stddev."""
    if said.octaves:
        return OctaveColumn(name, str(said.missing or "zero"))
    missing = said.missing if said.missing is not None else "middle" if said.minimum is not None else "mean"
    if said.minimum is not None and said.maximum is not None:
        center, scale = said.minimum, said.maximum - said.minimum
    else:
        center, scale = float(mean or 0.0), float(stddev or 1.0)
    fills = {"mean": mean, "middle": center + scale / 2}
    fill = fills.get(missing) if isinstance(missing, str) else missing
    if fill is not None and said.minimum is not None and said.maximum is not None:
        fill = min(max(fill, said.minimum), said.maximum)
    rule = missing if isinstance(missing, str) else f"{missing:g}"
    return NumberColumn(name, center, scale, said.minimum, said.maximum, rule, fill)


def _category(
    table: CsvTable, name: str, said: Column, empty: frozenset[str], rows: NDArray[np.bool_]
) -> tuple[TableColumn, bool]:
    if said.buckets is not None:
        return _category_column(name, said), False
    if said.categories is not None:
        return _category_column(name, said), False
    records = int(np.count_nonzero(rows))
    words: set[str] = set()
    for block in chosen(column_of(table, name), rows):
        words.update(block)
        if len(words) > 100 * MOST_CATEGORIES:
            break
    found = sorted(words - empty)
    if len(found) > min(MOST_CATEGORIES, max(5 * FEW, records / 2)):
        raise DataError(
            f"{table.name}: column {name!r} has {len(found)} different words among {records} train records, which "
            'looks like a name or free text; in a schema set kind = "ignore" for it, or list its categories'
        )
    if not found:
        raise DataError(f"{table.name}: column {name!r} is missing in every train record; ignore it in the schema")
    return _category_column(name, replace(said, categories=tuple(found))), True


def _category_column(name: str, said: Column) -> TableColumn:
    """Return a column of words whose categories are known, or as many buckets as the schema says."""
    rule = said.missing if isinstance(said.missing, str) else "zero"
    if said.buckets is not None:
        return BucketColumn(name, said.buckets, rule)
    return CategoryColumn(name, said.categories or (), rule)
