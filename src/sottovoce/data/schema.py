"""Read a schema: a TOML file that says what the columns of a table are, independent of anybody's records.

    missing_values = ["", "?", "NA"]     # cells that say nothing; this is also the default, with a few more

    [label]
    classes = ["alive", "dead"]          # in the order of the class numbers 0, 1, ...
                                         # or, of a number: its public range, minimum = 0 and maximum = 90

    [columns.age]
    kind = "number"                      # number | category | ignore
    minimum = 0                          # public range: values are scaled to [0, 1] and cut off there
    maximum = 120
    missing = "middle"

    [columns.sex]
    kind = "category"
    categories = ["female", "male"]      # one feature each
    missing = "category"                 # one feature more

    [columns.ward]
    kind = "category"
    buckets = 128                        # no list is known: one feature a bucket; SHA-256 names two for each word

    [columns.dose]
    kind = "number"
    scale = "octaves"                    # no range is known: one feature for each power of two, near or not

`[learnt]` says that ranges and categories were learnt privately (`sottovoce statistics --learn` writes it): what that
cost, and for which unit. A private run that uses the schema adds the cost to that of the population.

`guessed = true` in a column or in [label] says that what stands there was read off the records (`sottovoce start`
writes it). Then it counts as taken from them, and a private run refuses it. Remove the line after the values have been
declared from a public source.

A column that the schema does not name is treated as if there were no schema: its kind, range and categories are
taken from the training records, which a private run refuses. `others = "ignore"` leaves such columns out instead.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import DataError
from sottovoce.core.validate import nearest
from sottovoce.data.blind import MOST_BUCKETS

SHIPPED: Final = Path(__file__).with_name("schemas")  # of known tables, with the public sources of what they say

KINDS: Final = ("number", "category", "ignore")
MISSING_VALUES: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null")

_RULES: Final = {
    "number": ("mean", "middle", "zero", "category", "refuse"),
    "category": ("zero", "category", "refuse"),
    "ignore": (),
}
_KEYS: Final = {
    "number": ("kind", "missing", "minimum", "maximum", "mean", "stddev", "scale", "guessed"),
    "category": ("kind", "missing", "categories", "buckets", "guessed"),
    "ignore": ("kind", "guessed"),
}


@dataclass(frozen=True)
class Column:
    """What a schema says about one column; None: not said, to be taken from the training records.

    `missing` is what becomes of an empty cell. Numbers: "mean" (of the training records), "middle" (of the public
    range), "zero", a number of its own, "category" (a feature more that is 1 where the cell is empty) or "refuse".
    Categories: "zero" (no category), "category" (a feature more) or "refuse".
    """

    kind: str
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    stddev: float | None = None
    categories: tuple[str, ...] | None = None
    missing: str | float | None = None
    octaves: bool = False  # of numbers: no range is needed (`blind.octaves`)
    buckets: int | None = None  # of words: no list is needed (`blind.hashed`)
    guessed: bool = False  # read off the records, and not declared yet


@dataclass(frozen=True)
class Schema:
    """What is known of a table without a look at its records."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    classes_guessed: bool = False
    label_range: tuple[float, float] | None = None  # of a label that is a number; public
    missing_values: tuple[str, ...] = MISSING_VALUES
    others: str = "infer"  # what becomes of columns that are not named: infer | ignore
    learnt: Mapping[str, Any] | None = None  # how it was learnt privately: unit, epsilons, delta and `cost`, as JSON


def read_schema(source: Path | Mapping[str, Any]) -> Schema:
    """Read and check a schema from a TOML file, or from tables in the same form."""
    if isinstance(source, Mapping):
        return _parse("schema", source)
    try:
        tables = tomllib.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no schema file {source}") from None
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"schema {source}: not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"schema {source} cannot be read: {error}") from None
    return _parse(f"schema {source}", tables)


def _parse(where: str, tables: Mapping[str, Any]) -> Schema:
    _known(where, tables, ("columns", "label", "missing_values", "others", "learnt"))
    label, columns = (_table(where, name, tables.get(name, {})) for name in ("label", "columns"))
    _known(f"{where}: [label]", label, ("classes", "minimum", "maximum", "guessed"))
    bounds = {key: _number(f"{where}: [label]", key, label[key]) for key in ("minimum", "maximum") if key in label}
    _check_numbers(f"{where}: [label]", bounds)
    empty = _texts(where, "missing_values", tables.get("missing_values", MISSING_VALUES))
    classes, others = label.get("classes"), tables.get("others", "infer")
    if others not in ("infer", "ignore"):
        raise DataError(f'{where} others must be "infer" or "ignore", got {others!r}')
    return Schema(
        columns={name: _column(f"{where}: [columns.{name}]", name, said, empty) for name, said in columns.items()},
        classes=None if classes is None else _distinct(where, "[label] classes", classes, 2),
        classes_guessed=_yes(f"{where}: [label]", label),
        label_range=(bounds["minimum"], bounds["maximum"]) if bounds else None,
        missing_values=empty,
        others=others,
        learnt=_learnt(where, tables.get("learnt")),
    )


def _learnt(where: str, said: Any) -> Mapping[str, Any] | None:
    """Check the table that says how a schema was learnt; what it cost cannot be left out."""
    if said is None:
        return None
    told = _table(where, "learnt", said)
    _known(f"{where}: [learnt]", told, ("unit", "epsilon", "epsilon_server", "delta", "cost"))
    for key in ("unit", "cost"):
        if not isinstance(told.get(key), str):
            raise DataError(f"{where}: [learnt] {key} must be a text, got {told.get(key)!r}; restore the line")
    return told


def _column(where: str, name: str, said: Any, empty: tuple[str, ...]) -> Column:
    said = _table(where, name, said)
    kind = said.get("kind")
    if kind not in KINDS:
        raise DataError(f"{where} kind must be one of {', '.join(KINDS)}, got {kind!r}")
    _known(where, said, _KEYS[kind])
    numbers = {key: _number(where, key, said[key]) for key in ("minimum", "maximum", "mean", "stddev") if key in said}
    _check_numbers(where, numbers)
    categories = said.get("categories")
    if categories is not None:
        categories = _distinct(where, "categories", categories, 1)
        if lost := [value for value in categories if value in empty]:
            raise DataError(f"{where} categories must not hold {lost[0]!r}, which missing_values says is no value")
    missing = said.get("missing")
    if missing is not None and not (kind == "number" and _is_number(missing)) and missing not in _RULES[kind]:
        own = " or a number" if kind == "number" else ""
        raise DataError(f"{where} missing must be one of {', '.join(_RULES[kind])}{own}, got {missing!r}")
    if missing == "middle" and "minimum" not in numbers:
        raise DataError(f'{where} missing = "middle" needs a range; set minimum and maximum')
    missing = float(missing) if _is_number(missing) else missing
    return Column(
        kind=kind,
        **numbers,
        categories=categories,
        missing=missing,
        octaves=_octaves(where, said, numbers),
        buckets=_buckets(where, said),
        guessed=_yes(where, said),
    )


def _octaves(where: str, said: Mapping[str, Any], numbers: Mapping[str, float]) -> bool:
    if "scale" not in said:
        return False
    if said["scale"] != "octaves":
        raise DataError(f'{where} scale must be "octaves", got {said["scale"]!r}; or give minimum and maximum')
    if numbers:
        raise DataError(f'{where} scale = "octaves" needs no {next(iter(numbers))}; remove one of them')
    if said.get("missing", "zero") not in ("zero", "category", "refuse"):
        raise DataError(f'{where} missing must be zero, category or refuse with scale = "octaves"')
    return True


def _buckets(where: str, said: Mapping[str, Any]) -> int | None:
    buckets = said.get("buckets")
    if buckets is None:
        return None
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 2 <= buckets <= MOST_BUCKETS:
        raise DataError(f"{where} buckets must be a whole number from 2 to {MOST_BUCKETS}, got {buckets!r}")
    if "categories" in said:
        raise DataError(f"{where} has categories, so it needs no buckets; remove one of them")
    return buckets


def _yes(where: str, said: Mapping[str, Any]) -> bool:
    guessed = said.get("guessed", False)
    if not isinstance(guessed, bool):
        raise DataError(f"{where} guessed must be true or false, got {guessed!r}")
    return guessed


def _check_numbers(where: str, numbers: Mapping[str, float]) -> None:
    for pair in (("minimum", "maximum"), ("mean", "stddev")):
        if (pair[0] in numbers) != (pair[1] in numbers):
            raise DataError(f"{where} {pair[0]} and {pair[1]} belong together; set both or none")
    if len(numbers) == 4:
        raise DataError(f"{where} is scaled by minimum and maximum or by mean and stddev; remove one of the pairs")
    if "minimum" in numbers and numbers["minimum"] >= numbers["maximum"]:
        raise DataError(f"{where} minimum must be below maximum, got {numbers['minimum']:g} and {numbers['maximum']:g}")
    if numbers.get("stddev", 1) <= 0:
        raise DataError(f"{where} stddev must be above 0, got {numbers['stddev']:g}")


def _known(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    words = list(known)
    for key in table:
        if key not in words:
            guess = nearest(key, words)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(words)}"
            raise DataError(f"{where} has no key {key!r}; {hint}")


def _table(where: str, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: {name} must be a table, got {value!r}")
    return value


def _number(where: str, key: str, value: Any) -> float:
    if not _is_number(value):
        raise DataError(f"{where} {key} must be a finite number, got {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _texts(where: str, key: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str | int | float) for value in values):
        raise DataError(f"{where} {key} must be a list of words or numbers, got {values!r}")
    return tuple(str(value) for value in values)


def _distinct(where: str, key: str, values: Any, fewest: int) -> tuple[str, ...]:
    texts = _texts(where, key, values)
    if len(texts) < fewest or len(set(texts)) < len(texts):
        raise DataError(f"{where} {key} must be at least {fewest} different values, got {list(texts)!r}")
    return texts
