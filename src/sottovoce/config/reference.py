"""Reference of all configuration keys, made from the tables and the schemes themselves.

`sottovoce explain` prints it, and docs/reference.md is its Markdown.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, get_type_hints

from sottovoce.config.experiment import TABLES, Experiment
from sottovoce.config.names import GRIDS, NAMED
from sottovoce.config.table import Table, kind_of, limits_of, table_of
from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest
from sottovoce.core.words import type_words, value_words
from sottovoce.schemes import SCHEMES

REQUIRED: Final = object()  # the default of a key that has none


@dataclass(frozen=True)
class TableKey:
    """One key: how it is written, what it may be, and what it does."""

    key: str
    type: str
    default: Any  # None: not set
    range: str
    description: str
    schemes: tuple[str, ...] = ()  # only these have the key; empty: it does not depend on the scheme

    @property
    def default_words(self) -> str:
        """Return the default as it would stand in a file."""
        if self.default is None or self.default is REQUIRED:
            return "not set" if self.default is None else "none: it must be given"
        return value_words(self.default)

    @property
    def of(self) -> str:
        """Return which schemes have the key, as a sentence; empty if it does not depend on the scheme."""
        return f"Only for {', '.join(self.schemes)}." if self.schemes else ""


@dataclass(frozen=True)
class TableReference:
    """One table of an experiment file with all its keys."""

    table: str
    description: str
    keys: tuple[TableKey, ...]

    def plain(self) -> dict[str, Any]:
        """Return what `sottovoce explain --json` prints."""
        return asdict(self)


def reference() -> list[TableReference]:
    """Return every table, in the order of a resolved experiment file."""
    described = [
        TableReference(name, _first_lines(table), (*_keys(table), *(_scheme_keys() if name == "scheme" else ())))
        for name, table in TABLES.items()
    ]
    return [*described, _sweep(), _tune()]


def find(name: str) -> list[TableReference]:
    """Return one table, or one key of it (`table.key`); raise with the nearest name if there is none."""
    everything = {entry.table: entry for entry in reference()}
    table, dot, key = name.strip().removeprefix("[").replace("]", "").partition(".")
    if table not in everything:
        meant = {place: place for place in everything}
        for described in everything.values():
            for key_ in described.keys:
                place = f"{described.table}.{key_.key}"
                meant |= {place: place, **({} if key_.key in meant else {key_.key: place})}
        guess = meant.get(nearest(name, meant) or "")
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(everything)}"
        raise InputError(f"there is no table {table!r} in an experiment file; {hint}")
    entry = everything[table]
    if not dot or table in GRIDS:
        return [entry]
    found = tuple(described for described in entry.keys if described.key == key)
    if not found:
        names = list(dict.fromkeys(described.key for described in entry.keys))
        guess = nearest(key, names)
        hint = f"did you mean '{table}.{guess}'?" if guess else f"known: {', '.join(names)}"
        raise InputError(f"[{table}] has no key {key!r}; {hint}")
    return [replace(entry, keys=found)]


def markdown() -> str:
    """Return docs/reference.md."""
    lines = [
        "# Reference of the experiment file",
        "",
        "Every table and key of an experiment file (TOML). Every key can be left out, and can be changed for one run",
        "with `--set table.key=value`. `sottovoce explain` prints the same in a terminal. This file is generated:",
        "change the descriptions in `src/sottovoce/config` or in the scheme, then run",
        "`sottovoce explain --markdown > docs/reference.md`.",
    ]
    for entry in reference():
        lines += ["", f"## `[{entry.table}]`", "", entry.description, ""]
        lines += ["| key | type | default | range | what it does |", "|---|---|---|---|---|"]
        for key in entry.keys:
            told = f"{key.of} {key.description}".strip()
            words = key.default_words
            default = words if key.default is None or key.default is REQUIRED else f"`{words}`"
            cells = (f"`{key.key}`", key.type, default, key.range, told)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _keys(table: type[Table], prefix: str = "") -> list[TableKey]:
    """Return the keys of a table, and after one that is a table itself the keys of that."""
    keys: list[TableKey] = []
    for name, field in table.model_fields.items():
        if name == "keys" and table in (named.table for named in NAMED.values()):
            continue
        default = REQUIRED if field.is_required() else _default(field.get_default(call_default_factory=True))
        keys.append(TableKey(prefix + name, kind_of(field), default, limits_of(field), field.description or ""))
        if (inner := table_of(field)) is not None:
            keys += _keys(inner, f"{prefix}{name}.")
    return keys


def _scheme_keys() -> list[TableKey]:
    """Return the keys of the schemes themselves; what several schemes share is told once."""
    shared: dict[TableKey, list[str]] = {}
    for scheme, kind in SCHEMES.items():
        hints, own = get_type_hints(kind), kind.own_keys()
        for field in (field for field in fields(kind) if field.name in own):
            words = type_words(hints[field.name]).removesuffix(" or left out")
            told = (field.metadata.get("range", ""), field.metadata.get("description", ""))
            shared.setdefault(TableKey(field.name, words, _default(field.default), *told), []).append(scheme)
    return [replace(key, schemes=tuple(schemes)) for key, schemes in shared.items()]


def _sweep() -> TableReference:
    described = Experiment.model_fields["sweep"].description or ""
    key = TableKey(
        "table.key",
        "a list",
        None,
        "",
        'Values of one key of another table, such as scheme.name = ["fl-std", "fl-top"]. A scheme that lacks a key '
        "leaves it out. privacy.epsilon = [inf, 8.0] compares a run that is not private with its private twin.",
    )
    return TableReference("sweep", described, (key,))


def _tune() -> TableReference:
    described = Experiment.model_fields["tune"].description or ""
    key = TableKey(
        "table.key",
        "a list or a range",
        None,
        "",
        "Values to try for one key of another table, such as privacy.clip_norm = [0.3, 0.6, 1.2] or client.client_lr = "
        '{from = 0.5, to = 4.0, steps = 4, scale = "log"}; two ends without a point give whole numbers. Not set: '
        "clip_norm, client_lr and the server's rate, each at 1/4, 1/2, 1, 2 and 4 times the file's own value.",
    )
    return TableReference("tune", described, (key,))


def _default(value: Any) -> Any:
    if isinstance(value, Table):
        return value.model_dump(exclude_none=True)
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


def _first_lines(table: type[Table]) -> str:
    return " ".join((inspect.getdoc(table) or "").split())
