"""Run a grid of experiments from the `[sweep]` table of one file.

    [sweep]
    scheme.name = ["fl-std", "fl-top"]
    scheme.ratio = [0.05, 0.1]
    client.client_lr = { from = 0.01, to = 0.5, step = 0.005 }
    experiment.seed = [1, 2]

Every combination is one run folder. `privacy.epsilon = [inf, 8.0]` compares a run that is not private with its private
twin. A key that a scheme does not have (fl-std has no ratio) is left out, and so is what an attack does not have: a
class that it does not aim at, a boost that signs cannot carry. What is then the same run twice is one. A sweep that was
interrupted goes on: finished runs are read, not repeated. On a Ray cluster that it joins, several run at once.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.names import SCHEME_KEYS
from sottovoce.config.threat import aims
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.core.files import replace_file
from sottovoce.core.words import value_words
from sottovoce.federation.aggregation.protocols import PROTOCOLS
from sottovoce.runs.folder import Record
from sottovoce.runs.loop import default_folder
from sottovoce.runs.population import totals
from sottovoce.schemes import make
from sottovoce.search.runner import Campaign

_KEYS: Final = ("from", "to", "step")
_MOST: Final = 1000  # values of one range: each is a run


def grid_values(where: str, told: Any) -> list[Any]:
    """Return the values of one key of a grid: those of a list, those of a range, or the one that is given.

    A range has both ends, if the step leads to the second. It is computed in decimals: ten steps of 0.1 are 1.

    >>> grid_values("[sweep] client.client_lr", {"from": 0.1, "to": 0.4, "step": 0.1})
    [0.1, 0.2, 0.3, 0.4]
    """
    if isinstance(told, list):
        return told
    if not isinstance(told, Mapping) or not set(told) & {"from", "to", "step"}:
        return [told]
    if set(told) != set(_KEYS):
        raise ConfigError(
            f"{where}: a range has from, to and step, such as {{from = 0.05, to = 2.0, step = 0.05}}, got "
            f"{', '.join(map(str, told))}"
        )
    for key in _KEYS:
        value = told[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{where}: {key} must be a number, got {value_words(value)}")
    low, high, step = (Decimal(str(told[key])) for key in _KEYS)
    if low >= high:
        raise ConfigError(f"{where}: from must be below to, got from = {low} and to = {high}")
    if step <= 0:
        raise ConfigError(f"{where}: step must be above 0, got {step}")
    count = int((high - low) / step) + 1
    if count > _MOST:
        raise ConfigError(f"{where}: a range may have {_MOST} values, this one has {count}; raise step")
    values = [low + step * place for place in range(count)]
    whole = all(isinstance(told[key], int) for key in _KEYS)
    return [int(value) if whole else float(value) for value in values]


Tables = dict[str, dict[str, Any]]
_IN_A_NAME = str.maketrans({"/": "_", ":": "_", ",": "_", " ": ""})


def layout(experiment: Experiment) -> list[Experiment]:
    """Return the experiments of a sweep, all checked, each with a name of its own."""
    axes = [
        (table, key, grid_values(f"[sweep] {table}.{key}", values))
        for table, keys in experiment.sweep.items()
        for key, values in keys.items()
    ]
    if not axes or not all(values for _, _, values in axes):
        raise ConfigError("a sweep needs a [sweep] table with at least one list, such as scheme.name = [...]")
    base = experiment.tables()
    if experiment.aggregation.secure is None:  # the default differs between a private run and one that is not
        del base["aggregation"]["secure"]
    if experiment.aggregation.ballot is None:  # it differs between schemes
        base["aggregation"].pop("ballot", None)
    named = {(table, key) for table, key, values in axes if len(values) > 1}
    points: dict[str, Experiment] = {}
    for combination in itertools.product(*(values for _, _, values in axes)):
        chosen = [(table, key, value) for (table, key, _), value in zip(axes, combination, strict=True)]
        point = _point(base, chosen, named, experiment.experiment.name)
        points.setdefault(point.experiment.name, point)
    return list(points.values())


def sweep(
    experiment: Experiment,
    out: Path | str | None = None,
    *,
    observe: Callable[[str, Record], None] = lambda name, record: None,
) -> list[Record]:
    """Run every point of the grid, or read it if it is done, and return the summaries; also kept in `sweep.json`."""
    folder = Path(out) if out is not None else default_folder(experiment)
    if (folder / "config.toml").exists():
        raise InputError(f"output folder {folder} holds a single run; choose another with --out")
    summaries = _with_sums(Campaign(folder).play_all(layout(experiment), observe))
    replace_file(folder / "sweep.json", json.dumps(summaries, indent=2) + "\n")
    return summaries


def _with_sums(summaries: list[Record]) -> list[Record]:
    """Return the summaries with what all private runs on the same records cost together: the grid was fixed before.

    A budget file counts more than the sweep, and is left as it is told.
    """
    sums = {(each["population"], each["unit"]): each for each in totals(summaries)}
    told = []
    for summary in summaries:
        own = summary.get("population") or {}
        together = sums.get((str(own.get("name")), str(summary.get("unit") or "client")))
        if summary["private"] and together is not None and own.get("budget") is None:
            summary = {**summary, "population": {**own, "runs": together["runs"], "method": together["method"]}}
            summary |= {f"{key}_population": together[key] for key in ("epsilon", "epsilon_server", "delta")}
        told.append(summary)
    return told


def _point(base: Tables, chosen: list[tuple[str, str, Any]], named: set[tuple[str, str]], prefix: str) -> Experiment:
    """Return one experiment of the grid; its name tells the values in which the grid differs."""
    tables: Tables = {name: dict(table) for name, table in base.items()}
    scheme = next((value for table, key, value in chosen if (table, key) == ("scheme", "name")), None)
    if scheme is not None and scheme != base["scheme"]["name"]:
        # Another scheme starts from its own defaults, not from the base scheme's.
        common = {key: value for key, value in base["scheme"].items() if key in SCHEME_KEYS}
        tables["scheme"] = {**common, "name": scheme}
    made = make(tables["scheme"]["name"] if scheme is None else scheme)
    known = made.own_keys()
    name = [prefix]
    for table, key, value in chosen:
        if table == "scheme" and key not in known and key not in SCHEME_KEYS:
            continue
        if table == "privacy" and ("privacy", "epsilon", math.inf) in chosen:
            tables.pop("privacy", None)
            continue
        tables.setdefault(table, {})[key] = value
        if (table, key) in named:
            name.append(str(value) if (table, key) == ("scheme", "name") else _words(key, value))
    if not made.needs_importance and "privacy" in tables:
        tables["privacy"].pop("vote_noise_multiplier", None)  # there is nothing to vote for
    if made.form == "signs" and "privacy" in tables:
        for key in ("clipping", "clip_norm"):  # signs weigh sqrt(n), whatever the others are clipped to
            tables["privacy"].pop(key, None)
    if "threat" in tables:
        _fit_threat(tables, made.form == "signs")
    name = [part.translate(_IN_A_NAME) for part in name]
    tables["experiment"]["name"] = "-".join(name)
    return parse(tables, where="[sweep]")


def _words(key: str, value: Any) -> str:
    """Return a key and its value as a part of a name; of an inline table, its keys."""
    if isinstance(value, dict):
        return "-".join(_words(inner, part) for inner, part in value.items())
    return f"{key}-{value}"


def _fit_threat(tables: Tables, signs: bool) -> None:
    """Leave out what the attack of this point does not have."""
    threat = tables["threat"]
    if not aims(threat.get("attack")):
        threat.pop("source", None)
        threat.pop("target", None)
    secure = tables["aggregation"].get("secure", "none")
    if secure not in PROTOCOLS:  # refused with the other tables
        return
    protocol = PROTOCOLS[secure]
    seen = signs and "privacy" not in tables and not protocol.hides_updates
    if seen or protocol.counts_votes:  # one bit cannot be boosted
        threat.pop("boost", None)
