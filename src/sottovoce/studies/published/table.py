"""Read a published table: its rows, what each row sets, and the cells as printed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest

Tables = dict[str, dict[str, Any]]
ScaleName = Literal["small", "full"]
SCALES: Final = ("small", "full")

METRICS: Final = ("accuracy", "balanced_accuracy", "auroc", "class_accuracy", "attack_success")
COLUMNS: Final = (*METRICS, "round", "cost_down", "cost_up", "epsilon")
FAILED: Final = "-"  # printed where a run does not converge
UNREADABLE: Final = "?"  # ours, where the text at hand has lost the cell
NEW: Final = "new"  # ours, where the papers have no such row

_FOLDER: Final = files("sottovoce.studies.published")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Scale(_Strict):
    """Names of the set-ups of the two scales."""

    full: str
    small: str


class Row(_Strict):
    """One row: a run, and what the papers print of it.

    `uses` names parts of the set-up, `set` are keys of its own, `small` those that only the small scale has. Rows of
    one `group` are compared with each other; rows of different groups (another data set) are not.
    """

    name: str
    uses: tuple[str, ...]
    printed: dict[str, float | Literal["-", "?", "new"]]
    set: Tables = {}
    small: Tables = {}
    setup: Scale | None = None  # None: that of the table
    group: str = ""
    note: str | None = None


class Published(_Strict):
    """A table, a figure or a result in the text."""

    name: str
    title: str
    source: str
    setup: Scale
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    kind: Literal["table", "curves", "weights"] = "table"
    unit: Literal["MB", "Mbit", "kB", "bits/parameter"] | None = None  # of the costs
    set: Tables = {}
    small: Tables = {}
    notes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()  # what the papers say that a figure shows

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [column for column in columns if column not in COLUMNS]
        if unknown:
            raise ValueError(f"column {unknown[0]!r} is not known; known: {', '.join(COLUMNS)}")
        return columns

    @model_validator(mode="after")
    def _check(self) -> Published:
        if len({row.name for row in self.rows}) < len(self.rows) or not self.rows:
            raise ValueError("rows must have different names, and there must be some")
        for row in self.rows:
            for column in row.printed:
                if column not in self.columns:
                    raise ValueError(f"row {row.name!r} prints {column!r}, which is no column of the table")
        if self.unit is None and any(column.startswith("cost") for column in self.columns):
            raise ValueError("a table of costs needs their unit")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the columns that tell how good a model is."""
        return tuple(column for column in self.columns if column in METRICS)

    def chosen(self, patterns: list[str]) -> tuple[Row, ...]:
        """Return the rows whose names hold one of the words, in any case; all rows if there are no words.

        A pattern is the name of a row, or words with commas between them.
        """
        whole = {row.name.lower() for row in self.rows}
        asked = {pattern.strip().lower() for pattern in patterns}
        words = [word.strip() for pattern in asked - whole for word in pattern.split(",")]
        wanted = sorted({word for word in words if word})
        if patterns and not wanted and not asked & whole:
            raise InputError(f"--rows names no row; table {self.name} has: {', '.join(row.name for row in self.rows)}")
        if not wanted and not asked & whole:
            return self.rows
        for word in wanted:
            if not any(_matches(word, row.name) for row in self.rows):
                known = [row.name for row in self.rows]
                guess = nearest(word, [name.lower() for name in known])
                hint = f"did you mean {guess!r}?" if guess else f"it has: {', '.join(known)}"
                raise InputError(f"table {self.name} has no row {word!r}; {hint}")
        return tuple(
            row for row in self.rows if row.name.lower() in asked or any(_matches(word, row.name) for word in wanted)
        )


def names() -> list[str]:
    """Return the names of all tables, figures and results, in the order of the thesis."""
    found = [entry.name.removesuffix(".toml") for entry in _FOLDER.joinpath("tables").iterdir()]
    return sorted(found, key=_order)


@cache
def read_table(name: str) -> Published:
    """Return a table by its name, such as "5.5", "Tab. 5.5" or "fig-6.1"; for an unknown one, name the nearest."""
    known = names()
    plain = plain_name(name)
    if plain not in known:
        raise unknown(name, known)
    document = read_toml("tables", plain)
    try:
        return Published.model_validate({"name": plain, **document})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"the data of table {plain} is damaged: {place}: {first['msg']}") from None


def unknown(name: str, known: list[str]) -> InputError:
    """Return the error for a name that no table has: the nearest is one of its own chapter, if there is one."""
    plain = plain_name(name)
    chapter = [other for other in known if "." in plain and other.startswith(plain.partition(".")[0] + ".")]
    guess = nearest(plain, chapter) or nearest(plain, known)
    hint = f"did you mean {guess!r}?" if guess else "`sottovoce reproduce --list` names all"
    return InputError(f"there is no published table {name!r}; {hint}")


def read_toml(folder: str, name: str) -> dict[str, Any]:
    """Return one of the data files."""
    try:
        return tomllib.loads(_FOLDER.joinpath(folder, f"{name}.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {folder}/{name}.toml among the published tables") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{folder}/{name}.toml among the published tables is not TOML: {error}") from None


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two trees of tables as one; where both have a value, the second has it.

    >>> merge({"scheme": {"name": "fl-cs", "chunks": 200}}, {"scheme": {"chunks": 20}})
    {'scheme': {'name': 'fl-cs', 'chunks': 20}}
    """
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _matches(word: str, name: str) -> bool:
    """Tell whether a name holds a word, not cut in two: "FL-TOP" is not in "FL-TOP-BIS", nor "5 %" in "0.5 %"."""
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", name.lower()) is not None


def plain_name(name: str) -> str:
    """Return a name without the words around it: "Tab. 5.5" and "table 5.5" are "5.5", "Figure 6.1" is "fig-6.1"."""
    word = name.strip().lower()
    word = re.sub(r"^tab(le|\.)?[\s-]*", "", word)
    return re.sub(r"^fig(ure|\.)?[\s-]*", "fig-", word)


def _order(name: str) -> tuple[int, list[int], str]:
    numbers = [int(digits) for digits in re.findall(r"\d+", name)]
    kind = 0 if name[0].isdigit() else 1 if name.startswith("fig-") else 2
    return kind, numbers if kind < 2 else [], name
