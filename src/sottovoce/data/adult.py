"""Prepare the adult table: does a person earn more than 50,000 dollars a year?

Ranges, categories and classes are those of `schemas/adult.toml`, from public sources: no record changes another.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from sottovoce.core.errors import DataError
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out
from sottovoce.data.files import damaged, read_table
from sottovoce.data.preprocessing import fit_columns
from sottovoce.data.schema import SHIPPED, Schema, read_schema

ORIGINALS: Final = ("adult.data", "adult.test")
LABEL: Final = "income"
_HEADER: Final = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)


@cache
def _schema() -> Schema:
    return read_schema(SHIPPED / "adult.toml")


def _columns() -> tuple[str, ...]:
    return *_schema().columns, LABEL


def read_packed(path: Path) -> Dataset:
    """Read one csv file with a header."""
    return _prepare(path, read_table(path, _columns()))


def read_originals(folder: Path) -> Dataset:
    """Read UCI's `adult.data` and `adult.test`, which have no header."""
    rows: list[tuple[str, ...]] = []
    places = [_HEADER.index(name) for name in _columns()]
    for name in ORIGINALS:
        path = folder / name
        with damaged(path), path.open(encoding="utf-8", newline="") as text:
            for row in csv.reader(text, skipinitialspace=True):
                if len(row) < 2:  # a blank line, or the remark that opens adult.test
                    continue
                if len(row) != len(_HEADER):
                    raise DataError(f"{path}: a row has {len(row)} fields, {len(_HEADER)} were expected")
                rows.append(tuple(row[place].strip() for place in places))
    return _prepare(folder, rows)


def _prepare(path: Path, table: Iterable[tuple[str, ...]]) -> Dataset:
    rows = list(table)
    if len(rows) < 5:
        raise DataError(f"{path} has {len(rows)} rows, too few to split")
    columns = dict(zip(_columns(), zip(*rows, strict=True), strict=True))
    columns[LABEL] = tuple(value.rstrip(".") for value in columns[LABEL])  # adult.test writes a full stop after it
    people = CsvTable("adult", columns)
    test = held_out([str(row) for row in range(len(rows))])
    how = "a fifth of the rows, by the SHA-256 of their numbers"
    made = replace(
        fit_columns(people, _schema(), ~test, [LABEL]), label=LABEL, classes=_schema().classes or (), split=how
    )
    x, y = made.apply(people), made.labels(people)
    return Dataset(
        "adult",
        x[~test],
        y[~test],
        x[test],
        y[test],
        classes=len(made.classes),
        class_names=made.classes,
        preprocessing=made.describe(),
        ranged=made.ranged,
    )
