"""Find the settings that tell runs apart, and name them for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sottovoce.report.runs import Run

__all__ = ["Settings", "foremost", "in_words", "picked", "settings_of", "telling", "threat_of"]

Settings = dict[str, Any]

# What a reader of a robustness matrix looks for first: named wherever runs differ in it.
_FOREMOST: Final = {"defence", "guard"}
# These do not change what comes out of a run. An attack is told by its column.
_ASIDE: Final = {"experiment.name", "experiment.checkpoint_every"}
_ASIDE_TABLES: Final = {"engine", "sweep", "threat"}


def settings_of(run: Run) -> Settings:
    """Return a run's keys and values, `table.key`, without seeds, names, and who attacked it."""
    flat = {
        f"{table}.{key}": value
        for table, keys in run.tables.items()
        if table not in _ASIDE_TABLES
        for key, value in keys.items()
    }
    return {key: value for key, value in flat.items() if key not in _ASIDE and not key.endswith(".seed")}


def threat_of(run: Run) -> Settings:
    """Return the keys of `[threat]` beyond attack and fraction."""
    return {key: value for key, value in run.table("threat").items() if key not in ("attack", "fraction", "seed")}


def foremost(settings: Sequence[Settings]) -> list[str]:
    """Return the keys of a defence in which any two of these runs differ."""
    keys = {key for setting in settings for key in setting if _FOREMOST & set(key.split("."))}
    return [key for key in sorted(keys) if len({picked(setting, [key]) for setting in settings}) > 1]


def telling(settings: Sequence[Settings], first: Sequence[str] = ()) -> list[str]:
    """Return the keys in `first`, and after them only such as tell apart what the keys before them do not."""
    chosen = list(first)
    parts = len({picked(setting, chosen) for setting in settings})
    for key in sorted({key for setting in settings for key in setting} - set(first)):
        finer = len({picked(setting, [*chosen, key]) for setting in settings})
        if finer > parts:
            chosen.append(key)
            parts = finer
    return chosen


def picked(setting: Settings, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the values of these keys as something to compare.

    What is off is the same whether it is said or not: a run of an older version does not have every key.
    """
    return tuple("off" if _is_off(setting.get(key)) else repr(setting.get(key)) for key in keys)


def in_words(setting: Settings, keys: Sequence[str]) -> list[str]:
    """Return settings for people.

    >>> in_words({"server.defence": "median", "model.name": "mlp"}, ["server.defence", "model.name", "server.guard"])
    ['defence median', 'model mlp', 'no guard']
    """
    words = []
    for key in keys:
        table, _, last = key.rpartition(".")
        alone = sum(other.rpartition(".")[2] == last for other in keys) == 1
        name = (table if last == "name" else last if alone else key).replace("_", " ")
        value = setting.get(key)
        if _is_off(value):
            words.append(f"no {name}")
        else:
            words.append(name if value is True else f"{name} {value}")
    return words


def _is_off(value: Any) -> bool:
    return value is None or value is False or value == "none"  # not `in`: 0 equals False
