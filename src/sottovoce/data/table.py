"""Make a data set of a table: of a CSV file, of a data frame, or of any columns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.native import give_back_memory
from sottovoce.core.provenance import OF_CLIENTS, Owned, Provenance
from sottovoce.core.target import Kind, Target
from sottovoce.data.compact import stretched
from sottovoce.data.csv_file import CsvTable, join
from sottovoce.data.dataset import Dataset, Grouping
from sottovoce.data.features import held_out, held_out_rows
from sottovoce.data.numerals import Decimal
from sottovoce.data.preprocessing import (
    Preprocessing,
    check_columns,
    check_ranges,
    column_of,
    declared,
    fit_classes,
    fit_columns,
    fit_value,
)
from sottovoce.data.same_records import Origin, check_open
from sottovoce.data.schema import Schema, read_schema
from sottovoce.data.table_files import as_text, read_file, table_files

MOST_SUBGROUPS: Final = 50
MOST_SITES: Final = 200  # that are told one by one
FEW_OWNERS: Final = 25  # below, a fifth of the owners would be a poor test set: records are set aside instead


Aside = Literal["fifth", "owners", "nothing"]
"""What is set aside for tests where no column says it: a fifth of the records, of the owners if known, or nothing."""


@dataclass(frozen=True)
class TableKeys:
    """The keys of `[data]` that say how to read a table; columns by name, `schema` a file, `decimal` a mark.

    `kind` is what the label is, and `label_range` the public range of a number. Several answers have several columns.
    """

    label: str | tuple[str, ...] | None = None
    id: str | None = None
    person: str | None = None
    split: str | None = None
    subgroup: str | None = None
    schema: str | None = None
    aside: Aside = "fifth"
    decimal: Decimal | None = None
    kind: Kind = "class"
    label_range: tuple[float, float] | None = None

    @property
    def given(self) -> list[str]:
        """Name the keys that are set."""
        return [
            name
            for name in ("label", "id", "person", "split", "subgroup", "schema", "decimal")
            if getattr(self, name) is not None
        ]

    @property
    def special(self) -> list[str]:
        """Name the columns that are no features."""
        return [*self.label_columns, *(name for name in (self.id, self.person, self.split) if name is not None)]

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Name the columns of the label: several of yes-or-no answers, else one."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()


def read_own_table(paths: Path | Sequence[Path], keys: TableKeys, folder: Path | str | None = None) -> Dataset:
    """Read a user's own table, of one file or several with the same columns; the schema is relative to `folder`.

    Of several files each is an owner, unless `keys` names a column with them.
    """
    files = [paths] if isinstance(paths, Path) else list(paths)
    if keys.label is None:
        raise DataError(f"{files[0]} is a table: name the column with the label in [data] label")
    schema = None if keys.schema is None else read_schema(Path(folder or "") / Path(keys.schema).expanduser())
    table = read_tables(files, keys.decimal)
    return _dataset(table, keys, schema or Schema())


class SiteRows(NamedTuple):
    """The rows of one site, in the order of its file."""

    x: NDArray[np.float32]
    y: NDArray[Any]
    persons: NDArray[np.int64] | None  # whom each row is about, if a column says it


def read_site_table(path: Path, keys: TableKeys, folder: Path | str | None = None, *, centred: bool) -> SiteRows:
    """Read a site's own table by the schema that all sites share; nothing is taken from the records.

    Features are those of a simulation that reads the files of all sites, bit for bit.
    """
    check_open(Origin(str(path), (path,)))
    schema = read_schema(Path(folder or "") / Path(keys.schema or "").expanduser())
    known = declared(schema, str(path), keys.label_columns, keys.special, keys.kind)
    table = read_tables([path], keys.decimal)
    check_columns(table, schema, keys.special)
    check_ranges(table, known)
    y = known.labels(table)
    _check_labels(table, known, y)
    give_back_memory()  # of the text that was read block by block, before the features are made
    (x,) = known.held(table, np.ones(table.records, np.bool_))
    if centred:
        x = stretched(x, known.ranged)
    persons = _names(table, "person", keys.person, frozenset({"", *schema.missing_values}))
    return SiteRows(np.asarray(x), y, _numbered(persons, np.ones(table.records, np.bool_)))


def read_tables(files: Sequence[Path], decimal: Decimal | None = None) -> CsvTable:
    """Read files with the same columns as one table."""
    return join([read_file(path, decimal) for path in files], _name_of(files))


def _name_of(files: Sequence[Path]) -> str:
    if len(files) == 1:
        return str(files[0])
    return f"{files[0].name} and {len(files) - 1} more"


def read_like(
    dataset: Dataset,
    name: str,
    folder: Path | str | None = None,
    decimal: Decimal | None = None,
    subgroup: str | None = None,
) -> Dataset:
    """Read another table as `dataset`, which comes from a table too, was read; all records are both train and test."""
    known = Preprocessing.of(dataset.preprocessing or {})
    files = table_files(name, folder)
    check_open(Origin(name, files))
    table = read_tables(files, decimal)
    x, y = known.apply(table), known.labels(table)
    _check_labels(table, known, y)
    owners = frozenset(table.columns.get(known.id or "", ())) - {""}
    short = Path(name).name.split(".")[0]
    groups = _subgroups(table, subgroup, known.missing_values, np.ones(len(y), np.bool_))
    made = replace(dataset, name=short, x_train=x, y_train=y, x_test=x, y_test=y, ids=None, persons=None, owners=owners)
    return replace(made, subgroups=groups, sites=None)


def table_dataset(
    columns: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    *,
    label: str | Sequence[str],
    id: str | None = None,
    person: str | None = None,
    split: str | None = None,
    subgroup: str | None = None,
    schema: Schema | Mapping[str, Any] | Path | str | None = None,
    name: str = "table",
    aside: Aside = "fifth",
    kind: Kind = "class",
    label_range: tuple[float, float] | None = None,
) -> Dataset:
    """Make a data set of columns of equal length (a dict, or a frame): words, numbers, booleans; None and NaN missing.

    Of a list of frames each is an owner, unless `id` is given.
    `id` names the column that says who owns a record, `person` the one that says whom it is about, `split` one that
    holds "train" or "test", `subgroup` one by whose values the
    model is judged; without `split` a fifth of the records is set aside for tests, by a hash. `schema` is a
    file, its tables, or a `Schema`.

    >>> few = {"age": [30, 41, None, 58, 66], "sick": [False, True, False, True, True]}
    >>> made = table_dataset(few, label="sick", split=None)
    >>> made.shape, made.class_names, made.fitted_on
    ((1,), ('False', 'True'), 'training records')
    """
    if isinstance(schema, str | Path):
        schema = read_schema(Path(schema))
    elif schema is not None and not isinstance(schema, Schema):
        schema = read_schema(schema)
    if isinstance(columns, list | tuple):
        if not columns:
            raise DataError("the list of frames is empty; give one for each site")
        table = join([as_table(one, f"{name} {number}") for number, one in enumerate(columns)], name)
    else:
        table = as_table(cast("Mapping[str, Sequence[Any]]", columns), name)
    named = label if isinstance(label, str) else tuple(label)
    keys = TableKeys(named, id, person, split, subgroup, aside=aside, kind=kind, label_range=label_range)
    return _dataset(table, keys, schema or Schema())


def as_table(columns: Mapping[str, Sequence[Any]], name: str = "table") -> CsvTable:
    """Return columns as text, as a CSV file would hold them; None and NaN become empty."""
    texts = {str(column): [as_text(cell) for cell in columns[column]] for column in columns}
    lengths = Counter(len(cells) for cells in texts.values())
    if len(lengths) != 1 or 0 in lengths:
        raise DataError(
            f"{name} must have columns of one length and at least one record, got lengths {sorted(lengths)}"
        )
    return CsvTable(name, texts)


def _dataset(table: CsvTable, keys: TableKeys, schema: Schema) -> Dataset:
    columns, split = keys.label_columns, keys.split
    if keys.kind != "answers" and len(columns) != 1:
        raise DataError(
            f"{table.name}: [data] label names {len(columns)} columns, which only [model] task = 'multilabel' learns; "
            "name one"
        )
    special = keys.special
    if len(set(special)) < len(special):
        raise DataError(f"{table.name}: label, id, person and split must be different columns: {', '.join(special)}")
    for name in special:
        column_of(table, name)  # raises if there is none
    owners = _sites(table) if keys.id is None and table.parts else _names(table, "id", keys.id, frozenset({""}))
    persons = _names(table, "person", keys.person, frozenset({"", *schema.missing_values}))
    whose, column = (owners, keys.id or "the files") if persons is None else (persons, keys.person)
    test, how = _test_records(table, split, whose, column, keys.aside)
    # The schema's order, so that files of several sites give the same features however their columns stand.
    order = [*schema.columns, *(name for name in table.columns if name not in schema.columns)]
    fitted = fit_columns(table, schema, ~test, special, order)
    made = replace(_with_label(table, fitted, keys, schema, ~test), id=keys.person or keys.id, split=how)
    for part in table.parts or (table,):  # a site whose unit or codes are others is named
        check_ranges(part, made)
    y = made.labels(table)
    _check_labels(table, made, y)
    if len(np.unique(y[~test])) == 1:
        logging.getLogger(__name__).warning(
            "%s: every train record has label %r, so there is nothing to learn to tell apart",
            table.name,
            made.classes[y[~test][0]] if made.target.kind == "class" else y[~test].flat[0],
            extra=OF_CLIENTS,
        )
    some = test if test.any() else ~test  # a data set needs test records; `untested` takes them away again
    x_train, x_test = made.held(table, ~test, test) if test.any() else made.held(table, ~test) * 2
    made_set = Dataset(
        name=Path(table.parts[0].name if table.parts else table.name).name.split(".")[0],
        x_train=x_train,
        y_train=y[~test],
        x_test=x_test,
        y_test=y[some],
        classes=len(made.classes),
        ids=_numbered(owners, ~test),
        persons=_numbered(persons, ~test),
        owners=frozenset() if whose is None else whose.among(~test),
        class_names=made.classes,
        target=made.target,
        preprocessing=made.describe(),
        ranged=made.ranged,
        test_data=how,
        test_from=_owner(split, whose, test),
        subgroups=_subgroups(table, keys.subgroup, schema.missing_values, some),
        sites=_sites_of(owners, keys.id, some),
    )
    return made_set if test.any() else made_set.untested()


class _Who(NamedTuple):
    """Who owns each record, or whom it is about: names in order, and the place of each record's among them."""

    names: tuple[str, ...]
    places: NDArray[np.int32]

    def among(self, chosen: NDArray[np.bool_]) -> frozenset[str]:
        """Return the names of the records that are chosen."""
        there = np.bincount(self.places[chosen], minlength=len(self.names)) > 0
        return frozenset(compress(self.names, there.tolist()))


def _numbered(who: _Who | None, chosen: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return a number for each name, of the records that are chosen."""
    return None if who is None else who.places[chosen].astype(np.int64)


def _sites_of(owners: _Who | None, column: str | None, chosen: NDArray[np.bool_]) -> Grouping | None:
    """Return the site of each chosen record, by its column or file; None where they are not known, or too many."""
    if owners is None or len(owners.names) > MOST_SITES:
        return None
    names = owners.names if column else tuple(name.partition(" ")[2] for name in owners.names)  # without the place
    return Grouping(column or "file", names, owners.places[chosen].astype(np.int64))


def _subgroups(
    table: CsvTable, column: str | None, missing: Sequence[str], chosen: NDArray[np.bool_]
) -> Grouping | None:
    """Return the value of a declared column for each chosen record; a missing one is a group too."""
    if column is None:
        return None
    cells = ["missing" if cell in missing else cell for cell in compress(column_of(table, column), chosen.tolist())]
    names = tuple(sorted(set(cells)))
    if len(names) > MOST_SUBGROUPS:
        raise DataError(
            f"{table.name}: [data] subgroup = {column!r} has {len(names)} different values, at most {MOST_SUBGROUPS} "
            "can be told apart; name a column of few, such as ranges of an age"
        )
    place = {name: number for number, name in enumerate(names)}
    return Grouping(column, names, np.array([place[cell] for cell in cells], np.int64))


def _owner(split: str | None, owners: _Who | None, test: NDArray[np.bool_]) -> Provenance | None:
    """Say whose test records are: the clients', if we cut them or an owner has records of both kinds."""
    if split is None:
        return Owned()
    if owners is not None and owners.among(test) & owners.among(~test):
        return Owned("clients: somebody owns train and test records")
    return None


def _with_label(
    table: CsvTable,
    fitted: Preprocessing,
    keys: TableKeys,
    schema: Schema,
    rows: NDArray[np.bool_],
) -> Preprocessing:
    """Return the preprocessing with what is known of the label; what was taken from records is said in `fitted`."""
    columns = keys.label_columns
    if keys.kind == "answers":
        return replace(fitted, label=", ".join(columns), classes=columns, answers=columns, target=Target("answers"))
    (label,) = columns
    if keys.kind == "number":
        target, public = fit_value(table, label, schema, rows, keys.label_range)
        made = replace(fitted, label=label, classes=(label,), target=target)
    else:
        classes, public = fit_classes(table, label, schema)
        made = replace(fitted, label=label, classes=classes)
    return made if public else replace(made, fitted=(label, *made.fitted))


def _check_labels(table: CsvTable, made: Preprocessing, y: NDArray[Any]) -> None:
    missing = np.isnan(y) if made.target.kind == "number" else y < 0
    if missing.any():
        row = int(missing.reshape(len(y), -1).any(1).argmax())
        raise DataError(f"{table.place(row)}: label {made.label!r} is missing; remove records without a label")


def _names(table: CsvTable, what: str, column: str | None, missing: frozenset[str]) -> _Who | None:
    """Return who owns each record, or whom it is about, by a column that is full; None without a column."""
    if column is None:
        return None
    cells = column_of(table, column)
    if not missing.isdisjoint(cells):
        rest = "an owner" if what == "id" else "a person"
        row = next(row for row, cell in enumerate(cells) if cell in missing)
        raise DataError(f"{table.place(row)}: {what} {column!r} is missing; every record needs {rest}")
    names = tuple(sorted(set(cells)))
    place = {name: number for number, name in enumerate(names)}
    return _Who(names, np.fromiter((place[cell] for cell in cells), np.int32, len(cells)))


def _sites(table: CsvTable) -> _Who:
    """Return the owner of each record of several files: the file, by its place and name."""
    names = tuple(f"{number:06d} {Path(part.name).name}" for number, part in enumerate(table.parts))
    return _Who(names, np.repeat(np.arange(len(names), dtype=np.int32), [part.records for part in table.parts]))


def _test_records(
    table: CsvTable,
    split: str | None,
    owners: _Who | None,
    owner: str | None,
    aside: Aside,
) -> tuple[NDArray[np.bool_], str]:
    """Mark the test records, and say in words how they were chosen."""
    if split is not None:
        cells = column_of(table, split)
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
    if owners is not None and len(owners.names) >= few:
        return held_out(owners.names)[
            owners.places
        ], f"a fifth of the owners in {owner!r}, by the SHA-256 of their names"
    if owners is not None and aside == "owners":
        raise DataError(
            f"{table.name} has too few owners in {owner!r} to set a fifth of them aside; add a split column"
        )
    rows = map("\x1f".join, zip(*table.columns.values(), strict=True))
    test = held_out_rows(rows, table.records)
    if not test.any() or test.all():
        raise DataError(f"{table.name} has too few different records to set a fifth aside; add a split column")
    return test, "a fifth of the records, by the SHA-256 of their content"
