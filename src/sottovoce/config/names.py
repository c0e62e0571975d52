"""Names of tables and keys: an unknown one is refused, and the nearest known one is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from sottovoce.config.table import Table
from sottovoce.config.tables import SchemeTable, ThreatTable
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.core.registry import Registry, own_keys
from sottovoce.core.validate import nearest
from sottovoce.core.words import value_words
from sottovoce.schemes import SCHEMES
from sottovoce.threats.attacks import ATTACKS

SCHEME_KEYS = SchemeTable.model_fields.keys() - {"keys"}  # those that every scheme has


class NamedTable(NamedTuple):
    """A table that names a thing, and holds the thing's own keys beside those that all have."""

    table: type[Table]
    key: str  # that names the thing
    registry: Registry[Any]
    example: str

    def split(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return a table of a file with the thing's own keys under `keys`."""
        common = self.table.model_fields.keys() - {"keys"}
        own = {key: value for key, value in table.items() if key not in common}
        return {**{key: value for key, value in table.items() if key in common}, "keys": own}


NAMED: Final = {
    "scheme": NamedTable(SchemeTable, "name", SCHEMES, '["fl-std", "fl-top"]'),
    "threat": NamedTable(ThreatTable, "attack", ATTACKS, '["sign-inversion", "label-flip"]'),
}

GRIDS = ("sweep", "tune")  # tables that list values for keys of other tables

Kinds = Mapping[str, type[Table]]


def check_names(tables: Mapping[str, Any], kinds: Kinds, where: str) -> None:
    """Raise if a table or a key is not known; the keys of a scheme are left to the scheme."""
    for name, table in tables.items():
        _check_table(name, table, [*kinds, *GRIDS], where)
        if name in GRIDS:
            _check_grid(table, kinds, tables, f"{where}: [{name}]")
        elif name != "scheme":
            for key in table:
                _check_key(key, _known_keys(name, table, kinds), f"{where}: [{name}]")


def _known_keys(name: str, table: Mapping[str, Any], kinds: Kinds) -> list[str]:
    """Return the keys of a table, with those of the thing that it names."""
    if name not in NAMED:
        return list(kinds[name].model_fields)
    named, common = NAMED[name], [key for key in kinds[name].model_fields if key != "keys"]
    thing = table.get(named.key)
    try:
        return [*common, *own_keys(named.registry[thing])] if isinstance(thing, str) else common
    except InputError:  # said when the value is checked
        return common


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


def _check_grid(grid: Mapping[str, Any], kinds: Kinds, tables: Mapping[str, Any], where: str) -> None:
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
        known = [key for key in kinds[name].model_fields if name not in NAMED or key != "keys"]
        if name in NAMED:
            known += _own_keys(name, table, tables.get(name), where)
        for key in table:
            _check_key(key, known, f"{where} {name}")


def _own_keys(name: str, grid: Mapping[str, Any], table: Any, where: str) -> list[str]:
    """Return the keys of all things that a grid names in a table; where it names none, of the file's own."""
    named = NAMED[name]
    default = named.table.model_fields[named.key].get_default()
    things = grid.get(named.key, table.get(named.key, default) if isinstance(table, dict) else default)
    things = things if isinstance(things, list) else [things]
    for thing in things:
        if not isinstance(thing, str) and (named.key in grid or name == "scheme"):
            raise ConfigError(
                f"{where} {name}.{named.key} must be a list of {named.registry.kind}s such as {named.example}, got "
                f"{value_words(thing)}"
            )
    kinds = [named.registry[thing] for thing in things if isinstance(thing, str)]
    return list(dict.fromkeys(key for kind in kinds for key in own_keys(kind)))
