"""Names of tables and keys: an unknown one is refused, and the nearest known one is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sottovoce.core.errors import ConfigError
from sottovoce.core.validate import nearest
from sottovoce.core.words import value_words
from sottovoce.experiment.table import Table
from sottovoce.experiment.tables import SchemeTable
from sottovoce.schemes.registry import scheme_class

__all__ = ["GRIDS", "SCHEME_KEYS", "check_names"]

SCHEME_KEYS = SchemeTable.model_fields.keys() - {"keys"}  # those that every scheme has

GRIDS = ("sweep", "tune")  # tables that list values for keys of other tables

Kinds = Mapping[str, type[Table]]


def check_names(tables: Mapping[str, Any], kinds: Kinds, where: str) -> None:
    """Raise if a table or a key is not known; the keys of a scheme are left to the scheme."""
    for name, table in tables.items():
        _check_table(name, table, [*kinds, *GRIDS], where)
        if name in GRIDS:
            _check_grid(table, kinds, tables.get("scheme", {}), f"{where}: [{name}]")
        elif name != "scheme":
            for key in table:
                _check_key(key, kinds[name].model_fields, f"{where}: [{name}]")


def _check_table(name: str, table: Any, known: Collection[str], where: str) -> None:
    if name not in known:
        guess = nearest(name, known)
        hint = f"did you mean [{guess}]?" if guess else f"known: {', '.join(known)}"
        raise ConfigError(f"{where}: there is no table [{name}]; {hint}")
    if not isinstance(table, dict):
        raise ConfigError(
            f"{where}: {name} must be a table, got {value_words(table)}; write [{name}] and its keys below"
        )


def _check_key(key: str, known: Collection[str], where: str) -> None:
    if key not in known:
        guess = nearest(key, known)
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(known)}"
        raise ConfigError(f"{where} has no key {key!r}; {hint}")


def _check_grid(grid: Mapping[str, Any], kinds: Kinds, scheme: Any, where: str) -> None:
    """Raise if a key of the grid is known to no table and no scheme of the grid; values are checked run by run."""
    for name, table in grid.items():
        if name not in kinds:
            guess = nearest(name, kinds)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(kinds)}"
            raise ConfigError(f"{where} has no table {name!r}; {hint}")
        if not isinstance(table, dict):
            raise ConfigError(
                f"{where} {name} must name a key and its values, got {value_words(table)}; write {name}.key = [...]"
            )
        known = list(kinds[name].model_fields)
        if name == "scheme":
            known = [*(key for key in known if key in SCHEME_KEYS), *_own_keys(table, scheme, where)]
        for key in table:
            _check_key(key, known, f"{where} {name}")


def _own_keys(table: Mapping[str, Any], scheme: Any, where: str) -> list[str]:
    """Return the keys of all schemes of the grid."""
    names = table.get("name", scheme.get("name", "fl-std") if isinstance(scheme, dict) else "fl-std")
    names = names if isinstance(names, list) else [names]
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f'{where} scheme.name must be a list of schemes such as ["fl-std", "fl-top"], got {value_words(name)}'
            )
    return list(dict.fromkeys(key for name in names for key in scheme_class(name).own_keys()))
