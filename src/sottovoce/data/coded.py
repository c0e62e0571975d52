"""Code the columns of a table as numbers by what a schema declares: never by what the records hold.

A number becomes 2 (value - minimum) / (maximum - minimum) - 1, cut off at -1 and 1, and NaN where it is missing. A word
becomes the place of its category; a word that is not declared has the place after the last, a missing one the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError, PrivacyError
from sottovoce.core.validate import nearest
from sottovoce.data.cells import blocks
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.preprocessing import column_of, read_numbers
from sottovoce.data.schema import Column, Schema

OTHER: Final = "(other)"
MISSING: Final = "(missing)"

Codes = NDArray[np.float32]  # a row a record, a column a coded column


@dataclass(frozen=True)
class CodedColumn:
    """What is declared of a column: a range of numbers, or categories."""

    name: str
    low: float = 0.0
    high: float = 0.0
    categories: tuple[str, ...] | None = None  # None: numbers
    complete: bool = False  # the schema refuses missing cells

    @property
    def numeric(self) -> bool:
        """Tell whether it holds numbers."""
        return self.categories is None

    @property
    def words(self) -> tuple[str, ...]:
        """Return what each place of a category column stands for."""
        return (*(self.categories or ()), OTHER, MISSING)

    def value(self, code: float) -> float:
        """Return the number that a code stands for."""
        return self.low + (code + 1) / 2 * (self.high - self.low)

    @property
    def half(self) -> float:
        """Return how much a code of 1 is worth: half of the range."""
        return (self.high - self.low) / 2


def declared_columns(
    schema: Schema, label: str | None, wanted: Sequence[str], *, unsafe: bool = False
) -> tuple[CodedColumn, ...]:
    """Return the columns that a schema declares, or those of them that are wanted, or say what is not declared.

    Guarantee: nothing here depends on a record, unless `unsafe` lets guesses through.
    """
    columns = {name: column for name, column in schema.columns.items() if column.kind != "ignore"}
    guessed = [name for name, column in columns.items() if column.guessed]
    if label is not None and schema.classes is not None:
        columns[label] = Column("category", categories=schema.classes)
        guessed += [label] * schema.classes_guessed
    for name in wanted:
        if name not in columns:
            guess = nearest(name, columns)
            hint = f"did you mean {guess!r}?" if guess else f"it declares {', '.join(map(repr, columns)) or 'none'}"
            raise InputError(f"the schema does not declare column {name!r}; {hint}")
    chosen = {name: columns[name] for name in wanted or columns}
    if not chosen:
        raise InputError("the schema declares no column; add [columns.NAME] with a range or categories")
    if (hidden := next((name for name in guessed if name in chosen), None)) is not None and not unsafe:
        raise PrivacyError(
            f"column {hidden!r} was read off the records (guessed = true in the schema), which epsilon does not cover; "
            "declare it and remove that line"
        )
    return tuple(_coded(name, column) for name, column in chosen.items())


def _coded(name: str, column: Column) -> CodedColumn:
    complete = column.missing == "refuse"
    if column.kind == "category":
        if column.categories is None:
            raise PrivacyError(
                f"[columns.{name}] categories is missing in the schema, and to take them from the records is not "
                "private; list them, or learn them privately (sottovoce statistics --learn)"
            )
        return CodedColumn(name, categories=column.categories, complete=complete)
    if column.minimum is None or column.maximum is None:
        raise PrivacyError(
            f"[columns.{name}] minimum and maximum are missing in the schema, and to take them from the records is not "
            "private; declare them, or learn them privately (sottovoce statistics --learn)"
        )
    return CodedColumn(name, column.minimum, column.maximum, complete=complete)


def code_table(table: CsvTable, columns: Sequence[CodedColumn], empty: frozenset[str]) -> Codes:
    """Return the codes of every record; a cell that is no number in a column of numbers is an error with its line."""
    codes = np.empty((table.records, len(columns)), np.float32)
    for place, column in enumerate(columns):
        codes[:, place] = _numbers(table, column, empty) if column.numeric else _words(table, column, empty)
        absent = np.isnan(codes[:, place]) if column.numeric else codes[:, place] == len(column.words) - 1
        if column.complete and absent.any():
            raise DataError(
                f"{table.place(int(np.argmax(absent)))}: column {column.name!r} is missing, and the schema says "
                'missing = "refuse"; mend the record or change the schema'
            )
    return codes


def _numbers(table: CsvTable, column: CodedColumn, empty: frozenset[str]) -> NDArray[np.float64]:
    values = read_numbers(table, column.name, empty)
    with np.errstate(invalid="ignore"):
        coded = (np.clip(values, column.low, column.high) - column.low) * (2 / (column.high - column.low)) - 1
    return np.clip(coded, -1, 1)


def _words(table: CsvTable, column: CodedColumn, empty: frozenset[str]) -> NDArray[np.float32]:
    place = {word: number for number, word in enumerate(column.categories or ())}
    place |= dict.fromkeys(empty, len(place) + 1)
    other = len(column.words) - 2
    coded = np.empty(table.records, np.float32)
    first = 0
    for block in blocks(column_of(table, column.name)):
        coded[first : first + len(block)] = [place.get(cell, other) for cell in block]
        first += len(block)
    return coded
