"""Gather runs into the robustness matrix: a row is a scheme and what tells it apart, a column an attack and a fraction.

Runs in one cell differ in their seeds alone. A setting in which runs of one scheme differ makes rows of its own, so
that a cell never averages over two things that a reader would take for one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sottovoce.report.attacks import HONEST, diverged
from sottovoce.report.runs import Facts, Run, lead
from sottovoce.report.units import finite, percent

Settings = dict[str, Any]

# What a reader of a robustness matrix looks for first: named wherever runs differ in it.
_FOREMOST: Final = {"defence", "guard"}
# These do not change what comes out of a run. An attack is told by its column.
_ASIDE: Final = {"experiment.name", "experiment.checkpoint_every", "experiment.loggers"}
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


_FILLED: Final = ("boost", "source", "target")  # told in the summary
_TARGETED: Final = ("attack_success", "class_accuracy")

_Row = tuple[str, bool, tuple[str, ...]]
_Column = tuple[str | None, float | None, tuple[str, ...]]


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one row and one column, which differ in their seeds alone."""

    place: tuple[int, int]  # of all rows and columns, from above and from the left
    row: str
    column: tuple[str, str]  # the attack; the share of malicious clients and what else tells columns apart
    setting: Mapping[str, Any]  # the keys that make the row, with their values
    threat: Mapping[str, Any]  # [threat] without attack and fraction
    runs: tuple[Run, ...]
    records: tuple[Facts, ...]
    values: Mapping[str, tuple[float, ...]]  # of each quantity at the best round, without the runs that diverged

    @property
    def attack(self) -> str | None:
        """Return the attack, or None."""
        return _attack(self.records[0])

    @property
    def how(self) -> Settings:
        """Return the keys of `[threat]`, with what the run filled in where they were left open."""
        filled = {key: self.records[0].get(f"attack_{key}") for key in _FILLED}
        return {**self.threat, **{key: value for key, value in filled.items() if value is not None and self.attack}}

    @property
    def labels(self) -> list[str]:
        """Return the names of the runs."""
        return [str(record["label"]) for record in self.records]

    @property
    def seeds(self) -> list[Any]:
        """Return the seeds of the runs."""
        return [run.table("experiment").get("seed") for run in self.runs]

    @property
    def different_seeds(self) -> bool:
        """Tell whether no run was given twice, so that an average is one over seeds."""
        return len(set(map(repr, self.seeds))) == len(self.runs)

    @property
    def diverged(self) -> int:
        """Return how many runs diverged; their values are in no average."""
        return sum(map(diverged, self.records))

    @property
    def unfinished(self) -> int:
        """Return how many runs have not ended; they count with their best round so far."""
        return sum(run.summary is None for run in self.runs)

    def mean(self, quantity: str) -> float | None:
        """Return the average over the runs that have a value, or None."""
        return _mean(self.values.get(quantity, ()))

    @property
    def rejected(self) -> float | None:
        """Return how many rounds the guard refused, on average over the runs that have one."""
        return _mean(_numbers(record.get("rejected_rounds") for record in self.records))

    def told(self) -> Facts:
        """Return the cell as a record of plain values."""
        spread: Facts = {}
        for quantity, values in self.values.items():
            spread[quantity] = self.mean(quantity)
            if len(self.runs) > 1:
                spread[f"{quantity}_lowest"] = min(values, default=None)
                spread[f"{quantity}_highest"] = max(values, default=None)
        return {
            "row": self.row,
            "column": " ".join(filter(None, self.column)),
            "scheme": self.runs[0].scheme,
            "private": self.runs[0].private,
            "setting": dict(self.setting),
            "attack": self.attack,
            "attack_fraction": _fraction(self.records[0]),
            "threat": dict(self.threat),
            "runs": self.labels,
            "seeds": self.seeds,
            "diverged": self.diverged,
            "unfinished": self.unfinished,
            "rejected_rounds": self.rejected,
            **spread,
        }


@dataclass(frozen=True)
class _Point:
    """One run with what decides its place."""

    run: Run
    record: Facts
    setting: Settings
    threat: Settings
    attack: str | None
    fraction: float | None

    @property
    def kind(self) -> tuple[str, bool]:
        return self.run.scheme, self.run.private


def cells(runs: Sequence[Run], records: Sequence[Facts]) -> list[SeedGroup]:
    """Return the cells row by row, in every row from no attack to the largest fraction; none if nobody attacks.

    `records` are the facts of the runs, in their order.
    """
    points = [_point(run, record) for run, record in zip(runs, records, strict=True)]
    if not any(point.attack for point in points):
        return []
    first = foremost([point.setting for point in points])
    keys = {
        kind: telling([point.setting for point in points if point.kind == kind], first)
        for kind in {point.kind for point in points}
    }
    rows = [(*point.kind, picked(point.setting, keys[point.kind])) for point in points]
    extra = _column_keys(rows, points)
    columns = [(point.attack, point.fraction, picked(point.threat, extra[point.attack])) for point in points]
    down, across = _down(rows), _across(columns)
    places: dict[tuple[int, int], list[_Point]] = {}
    for row, column, point in zip(rows, columns, points, strict=True):
        places.setdefault((down.index(row), across.index(column)), []).append(point)
    quantities = tuple(dict.fromkeys((lead(runs), "accuracy", *_TARGETED)))
    return [
        _cell(place, inside, keys[inside[0].kind], extra[inside[0].attack], quantities)
        for place, inside in sorted(places.items())
    ]


def worth_a_matrix(found: Sequence[SeedGroup]) -> bool:
    """Tell whether there is more than one column, so that a matrix says more than the table of runs."""
    return len({cell.column for cell in found}) > 1


def _point(run: Run, record: Facts) -> _Point:
    attack = _attack(record)
    return _Point(run, record, settings_of(run), threat_of(run) if attack else {}, attack, _fraction(record))


def _column_keys(rows: Sequence[_Row], points: Sequence[_Point]) -> dict[str | None, list[str]]:
    """Return, for each attack, the keys of `[threat]` in which runs of one row differ at one fraction.

    Those that merely differ between columns or rows, as boosts do in the papers, make no columns.
    """
    together: dict[Any, list[Settings]] = {}
    for row, point in zip(rows, points, strict=True):
        together.setdefault((row, point.attack, point.fraction), []).append(point.threat)
    keys: dict[str | None, set[str]] = {}
    for (_, attack, _), inside in together.items():
        keys.setdefault(attack, set()).update(telling(inside))
    return {attack: sorted(found) for attack, found in keys.items()}


def _down(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows in their order: schemes as they come first, the private twin below."""
    schemes, found = [row[0] for row in rows], list(dict.fromkeys(rows))
    return sorted(found, key=lambda row: (schemes.index(row[0]), row[1], found.index(row)))


def _across(columns: Sequence[_Column]) -> list[_Column]:
    """Return the columns in their order: no attack, then attacks as they come first, with growing fractions."""
    attacks, found = [column[0] for column in columns], list(dict.fromkeys(columns))

    def order(column: _Column) -> tuple[bool, int, float, int]:
        attack, fraction, _ = column
        return attack is not None, attacks.index(attack), -1.0 if fraction is None else fraction, found.index(column)

    return sorted(found, key=order)


def _cell(
    place: tuple[int, int],
    points: Sequence[_Point],
    keys: Sequence[str],
    extra: Sequence[str],
    quantities: Sequence[str],
) -> SeedGroup:
    one = points[0]
    scheme = [one.run.scheme, "private"] if one.run.private else [one.run.scheme]
    share = [] if one.fraction is None else [percent(one.fraction)]
    held = [point.record for point in points if not diverged(point.record)]
    return SeedGroup(
        place=place,
        row=", ".join([*scheme, *in_words(one.setting, keys)]),
        column=(one.attack, ", ".join([*share, *in_words(one.threat, extra)])) if one.attack else ("no attack", ""),
        setting={key: one.setting.get(key) for key in keys},
        threat=one.threat,
        runs=tuple(point.run for point in points),
        records=tuple(point.record for point in points),
        values={name: tuple(_numbers(record.get(f"{name}_best") for record in held)) for name in quantities},
    )


def _attack(record: Facts) -> str | None:
    name = record.get("attack")
    return None if not name or name == HONEST else str(name)


def _fraction(record: Facts) -> float | None:
    return finite(record.get("attack_fraction")) if _attack(record) else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _numbers(values: Iterable[Any]) -> list[float]:
    return [number for value in values if (number := finite(value)) is not None]
