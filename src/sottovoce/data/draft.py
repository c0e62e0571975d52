"""Draft a schema for tables without taking anything from single records: what is known is declared by a person.

Whether a column holds numbers or words is taken from the table, as its form. Ranges and lists of categories are what
somebody types. Where nobody types any, features are made that need none (`blind`): powers of two for numbers, buckets
for words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.validate import nearest
from sottovoce.data.blind import BUCKETS
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.learnt import learnt_lines
from sottovoce.data.numerals import parse_number
from sottovoce.data.preprocessing import fit_classes, kind_of
from sottovoce.data.schema import MISSING_VALUES, Schema

_LABELS: Final = ("died", "death", "dead", "label", "target", "outcome", "class", "y", "readmitted", "churn", "default")
_PERSONS: Final = ("patient", "person", "subject", "user", "customer", "member", "pid", "mrn")
_NAMES: Final = ("id", "name", "surname", "date", "time", "timestamp", "address", "phone", "email", "comment", "notes")
PAIRS: Final = (  # labels whose classes everybody knows, the positive one last
    ("no", "yes"),
    ("No", "Yes"),
    ("NO", "YES"),
    ("n", "y"),
    ("N", "Y"),
    ("0", "1"),
    ("false", "true"),
    ("False", "True"),
    ("FALSE", "TRUE"),
    ("alive", "dead"),
    ("negative", "positive"),
)
_RANGE: Final = re.compile(r"\s*([^,]+?)\s*\.\.\s*([^,]+?)\s*")

Declared = tuple[float, float] | tuple[str, ...]


@dataclass(frozen=True)
class DraftColumn:
    """What was written about one column, and why."""

    name: str
    kind: str  # number | category | ignore
    keys: Mapping[str, object]
    reason: str
    declared: bool = False


@dataclass(frozen=True)
class Draft:
    """A schema in which nothing was read off the records but their form."""

    label: str
    person: str | None
    classes: tuple[str, ...]
    columns: tuple[DraftColumn, ...]
    classes_from: str  # in words
    learnt: tuple[str, ...] = ()  # lines of the schema that say what was learnt privately, and what that cost

    def with_learnt(self, told: Mapping[str, Any]) -> Draft:
        """Return the draft with the ranges and lists that were learnt privately; a column of which nothing was stays.

        `told` is what the statistics answered.
        """
        known = {name: column for name, column in told["learnt"].items() if column["kind"] != "ignore"}
        columns = tuple(_learnt(column, known.get(column.name)) for column in self.columns)
        return replace(self, columns=columns, learnt=tuple(learnt_lines(told)))

    @property
    def used(self) -> list[DraftColumn]:
        """Return the columns that become features."""
        return [column for column in self.columns if column.kind != "ignore"]

    @property
    def undeclared(self) -> list[str]:
        """Name the columns that would gain from a declared range or list."""
        return [column.name for column in self.used if not column.declared]

    def text(self) -> str:
        """Return the schema file."""
        lines = [
            "# Drafted by `sottovoce start`. Nothing here was read off the records but which columns hold numbers"
            + (", and what is called learnt." if self.learnt else "."),
            "# A range or a list of categories that you know without the records (a form, a textbook, round numbers)",
            "# makes the model better. Write it in place of `scale` or `buckets`:",
            "#     minimum = 0",
            "#     maximum = 120",
            '#     categories = ["female", "male"]',
            "# Never read it off the records: epsilon would not cover it.",
            "",
            'others = "ignore"',
            "",
            f"[label]   # {self.classes_from}",
            f"classes = {json.dumps(list(self.classes), ensure_ascii=False)}   # the last of two is the positive one",
        ]
        lines += ["", *self.learnt] if self.learnt else []
        for column in self.columns:
            lines += ["", f"[columns.{json.dumps(column.name, ensure_ascii=False)}]   # {column.reason}"]
            lines += [f'kind = "{column.kind}"']
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in column.keys.items()]
        return "\n".join(lines) + "\n"


def draft(
    table: CsvTable,
    label: str,
    person: str | None,
    *,
    classes: Sequence[str] | None = None,
    declared: Mapping[str, Declared] | None = None,
    ignored: Sequence[str] = (),
) -> Draft:
    """Write down what the columns of a table are; `label` and `person` are among them."""
    declared = declared or {}
    for what, name in (
        ("the label", label),
        ("the person", person),
        *(("--declare", name) for name in declared),
        *(("--ignore", name) for name in ignored),
    ):
        check_column(table, name, what)
    if label == person:
        raise InputError(f"label and person must be two columns, got {label!r} for both")
    words, source = _classes(table, label, classes)
    drafted = Draft(
        label=label,
        person=person,
        classes=words,
        classes_from=source,
        columns=tuple(
            _column(table, name, declared.get(name), ignored=name in ignored)
            for name in table.columns
            if name not in (label, person)
        ),
    )
    if not drafted.used:
        raise DataError(f"{table.name} has no column left to learn from, beside {label!r}")
    return drafted


def check_column(table: CsvTable, name: str | None, what: str) -> None:
    """Raise unless a table has a column."""
    if name is not None and name not in table.columns:
        guess = nearest(name, table.columns)
        hint = f"did you mean {guess!r}?" if guess else f"it has {', '.join(map(repr, table.columns))}"
        raise InputError(f"{table.name} has no column {name!r} for {what}; {hint}")


def guess_label(table: CsvTable) -> str | None:
    """Return the column that is called like an outcome, if there is exactly one."""
    return _called(table, _LABELS)


def guess_person(table: CsvTable) -> str | None:
    """Return the column that is called like a person's number, if there is exactly one."""
    return _called(table, _PERSONS)


def known_pair(table: CsvTable, label: str) -> tuple[str, ...] | None:
    """Return the well-known pair of classes that a label is written in; None if it is in none."""
    words = set(table.columns[label]) - set(MISSING_VALUES)
    return next((pair for pair in PAIRS if words and words <= set(pair)), None)


def parse_declared(text: str) -> tuple[str, Declared]:
    """Read what a person declares about a column: a range, or a list of words.

    >>> parse_declared("age=0..120"), parse_declared("ward=heart,surgery")
    (('age', (0.0, 120.0)), ('ward', ('heart', 'surgery')))
    """
    name, mark, said = text.partition("=")
    if not mark or not name.strip() or not said.strip():
        raise InputError(f"--declare must be COLUMN=LOW..HIGH or COLUMN=WORD,WORD, got {text!r}")
    return name.strip(), parse_values(said)


def parse_values(said: str) -> Declared:
    """Read a range such as 0..120, or words with commas between."""
    if match := _RANGE.fullmatch(said):
        low, high = (parse_number(bound) for bound in match.groups())
        if low is None or high is None or not low < high or not math.isfinite(high - low):
            raise InputError(f"a range must be two numbers, the lower first, such as 0..120; got {said!r}")
        return low, high
    words = tuple(word.strip() for word in said.split(","))
    if not all(words) or len(set(words)) < len(words) or set(words) & set(MISSING_VALUES):
        raise InputError(f"a list must be different words with commas between, such as female,male; got {said!r}")
    return words


def _called(table: CsvTable, words: Sequence[str]) -> str | None:
    named = [name for name in table.columns if name.lower().replace("-", "_").removesuffix("_id") in words]
    return named[0] if len(named) == 1 else None


def _classes(table: CsvTable, label: str, declared: Sequence[str] | None) -> tuple[tuple[str, ...], str]:
    """Return the classes and where they are from; those that only the records tell are refused."""
    if declared is not None:
        words = tuple(declared)
        if len(words) < 2 or not all(words) or len(set(words)) < len(words):
            raise InputError(f"--classes must be at least two different words, such as no,yes; got {','.join(words)!r}")
        if set(table.columns[label]) - set(words) - set(MISSING_VALUES):
            raise InputError(f"--classes does not name every value of {label!r}; name all, or mend the records")
        return words, "declared by you"
    pair = known_pair(table, label)
    if pair is not None:
        return pair, "a pair that everybody knows"
    fit_classes(table, label, Schema())  # a quantity has its own sentence
    raise InputError(
        f"the classes of label {label!r} are no pair that everybody knows, and reading them off the records would tell "
        "of single records; name all that there can be, such as --classes low,middle,high"
    )


def _column(table: CsvTable, name: str, declared: Declared | None, *, ignored: bool) -> DraftColumn:
    if ignored:
        return DraftColumn(name, "ignore", {}, "left out, as you said", declared=True)
    if declared is None and _last_word(name) in _NAMES:
        return DraftColumn(name, "ignore", {}, "left out: it is called like a name, a number of a person or a date")
    kind = kind_of(table, name, frozenset(MISSING_VALUES), np.ones(table.records, np.bool_)) or "category"
    if declared is None:
        if kind == "number":
            return DraftColumn(name, kind, {"scale": "octaves"}, "numbers; no range was declared")
        return DraftColumn(name, kind, {"buckets": BUCKETS}, "words; no list was declared")
    if isinstance(declared[0], float):
        if kind != "number":
            raise InputError(f"column {name!r} holds words, but a range was declared for it; declare a list of words")
        keys: dict[str, object] = {"minimum": declared[0], "maximum": declared[1]}
        return DraftColumn(name, "number", keys, "numbers; the range is declared by you", declared=True)
    return DraftColumn(name, "category", {"categories": list(declared)}, "words; declared by you", declared=True)


def _learnt(column: DraftColumn, known: Mapping[str, Any] | None) -> DraftColumn:
    if known is None or column.declared or column.kind == "ignore":
        return column
    kept = {key: value for key, value in known.items() if key in ("minimum", "maximum", "categories")}
    return replace(
        column, kind=str(known["kind"]), keys=kept, reason="learnt privately, at the cost above", declared=True
    )


def _last_word(name: str) -> str:
    """Return the last word of a column's name.

    >>> _last_word("Admission-Date"), _last_word("encounterId")
    ('date', 'id')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.split(r"[^A-Za-z]+", spaced.rstrip("_ .")).pop().lower()
