"""Prepare the adult table: does a person earn more than 50,000 dollars a year?"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out, numbers, one_hot
from sottovoce.data.files import damaged, read_table

__all__ = ["ORIGINALS", "read_originals", "read_packed"]

ORIGINALS: Final = ("adult.data", "adult.test")
NUMBERS: Final = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
WORDS: Final = ("workclass", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
# `fnlwgt` is a survey weight, no trait of the person; `education` says the same as `education_num`.
_HEADER: Final = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)
_COLUMNS: Final = (*NUMBERS, *WORDS, "income")


def read_packed(path: Path) -> Dataset:
    """Read one csv file with a header."""
    return _prepare(path, read_table(path, _COLUMNS))


def read_originals(folder: Path) -> Dataset:
    """Read UCI's `adult.data` and `adult.test`, which have no header."""
    rows: list[tuple[str, ...]] = []
    places = [_HEADER.index(name) for name in _COLUMNS]
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
    columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    test = held_out([str(row) for row in range(len(rows))])
    train = ~test
    measured = np.column_stack([numbers(f"{path}: {name}", columns[name]) for name in NUMBERS])
    stddev = measured[train].std(axis=0)
    blocks = [((measured - measured[train].mean(axis=0)) / np.where(stddev > 0, stddev, 1)).astype(np.float32)]
    for name in WORDS:
        known = sorted(set(columns[name]) - {"?"})
        blocks.append(one_hot([(value,) for value in columns[name]], known))
    x = np.column_stack(blocks)
    # adult.test writes a full stop after the class.
    y = np.array([value.rstrip(".") == ">50K" for value in columns["income"]], np.uint8)
    return Dataset("adult", x[train], y[train], x[test], y[test], classes=2)
