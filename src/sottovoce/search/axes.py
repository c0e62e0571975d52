"""Read the `[tune]` table: which keys are searched, and the values to try for each.

    [tune]
    privacy.clip_norm = [0.3, 0.6, 1.2]
    client.client_lr = {from = 0.5, to = 4.0, steps = 4, scale = "log"}

A key inside an inline table is named with one dot more. Keys that decide what is promised, to whom and at what price
(clients, sampling, epsilon, scheme) are not for tuning: the search would find that no privacy is best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import ConfigError
from sottovoce.core.validate import nearest
from sottovoce.core.words import value_words

_RANGE: Final = ("from", "to", "steps", "scale")
_SCALES: Final = ("linear", "log")
_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the file's own value, where the file lists none
_NORMS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)  # where the file has no clip norm to start from
_DIGITS: Final = 4  # of the values between the ends of a range

# Tables of which only these keys may be searched; of [scheme] all but the name, and of other tables all.
_ONLY: Final[dict[str, tuple[str, ...]]] = {
    "experiment": ("rounds",),
    "privacy": ("clip_norm", "clipping", "clip_quantile", "clip_lr", "count_stddev", "vote_noise_multiplier", "bits"),
    "data": (),
    "cohort": (),
    "aggregation": (),
    "devices": (),
    "engine": (),
    "threat": (),
}


@dataclass(frozen=True)
class Axis:
    """One key, as its path (table, key, and a key inside an inline table), and the values to try."""

    path: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Return the key as it stands in a file."""
        return ".".join(self.path)

    @property
    def ordered(self) -> bool:
        """Tell whether the values are numbers that rise or fall, so that the list has a smallest and a largest end."""
        return all(map(_number, self.values)) and list(self.values) in (
            sorted(self.values),
            sorted(self.values, reverse=True),
        )

    def nearest(self, value: Any) -> int:
        """Return the place of the value that is nearest to the file's own; the middle if there is nothing to compare.

        Positive numbers are compared by their ratio.
        """
        if value in self.values:
            return self.values.index(value)
        if not _number(value) or not all(map(_number, self.values)):
            return (len(self.values) - 1) // 2
        positive = min(value, *self.values) > 0
        scale = math.log if positive else float
        gaps = [abs(scale(one) - scale(value)) for one in self.values]
        return gaps.index(min(gaps))


def read_axes(experiment: Experiment) -> list[Axis]:
    """Return the axes of the `[tune]` table, or those of the scheme if there is none."""
    if not experiment.tune:
        return _usual(experiment)
    axes = [axis for table, keys in experiment.tune.items() for axis in _axes((table,), keys)]
    for axis in axes:
        _check_allowed(axis.path)
        if axis.path[0] == "privacy" and experiment.privacy is None:
            raise ConfigError(f"[tune] {axis.name} is for a private run, and the file has no [privacy]; remove it")
    if not axes:
        raise ConfigError("[tune] names no key; list values such as privacy.clip_norm = [0.3, 0.6], or remove it")
    return axes


def _axes(path: tuple[str, ...], keys: Mapping[str, Any]) -> Iterator[Axis]:
    for key, told in keys.items():
        inner = (*path, key)
        if isinstance(told, Mapping) and told and not set(told) & set(_RANGE):
            yield from _axes(inner, told)
        else:
            yield Axis(inner, _values(".".join(inner), told))


def _values(name: str, told: Any) -> tuple[Any, ...]:
    where = f"[tune] {name}"
    if isinstance(told, Mapping):
        return _range(where, told)
    if not isinstance(told, list):
        raise ConfigError(
            f"{where} must be a list or a range such as {{from = 0.5, to = 4.0, steps = 4}}, got {value_words(told)}"
        )
    if not told:
        raise ConfigError(f"{where} is an empty list; give the values to try, or remove the key")
    different: list[Any] = []
    for value in told:
        if not any(isinstance(value, bool) == isinstance(other, bool) and value == other for other in different):
            different.append(value)
    return tuple(different)


def _range(where: str, told: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a range: both ends, and steps between them that are equal in size or, "log", in ratio."""
    for key in told:
        if key not in _RANGE:
            guess = nearest(key, _RANGE)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(_RANGE)}"
            raise ConfigError(f"{where}: a range has no key {key!r}; {hint}")
    missing = [key for key in _RANGE[:3] if key not in told]
    if missing:
        raise ConfigError(f"{where}: a range needs from, to and steps, and lacks {', '.join(missing)}")
    low, high, steps, scale = told["from"], told["to"], told["steps"], told.get("scale", "linear")
    if not (_number(low) and _number(high) and math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{where}: from must be a number below to, got from = {value_words(low)} and to = {value_words(high)}"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= 100:
        raise ConfigError(f"{where}: steps must be a whole number in [2, 100], got {value_words(steps)}")
    if scale not in _SCALES:
        raise ConfigError(f'{where}: scale must be "linear" or "log", got {value_words(scale)}')
    if scale == "log" and low <= 0:
        raise ConfigError(f'{where}: scale = "log" needs from above 0, got {value_words(low)}')
    between = np.geomspace(low, high, steps) if scale == "log" else np.linspace(low, high, steps)
    if isinstance(low, int) and isinstance(high, int):
        return tuple(dict.fromkeys(round(float(value)) for value in between))
    return (float(low), *(_rounded(float(value)) for value in between[1:-1]), float(high))


def _check_allowed(path: tuple[str, ...]) -> None:
    table, key, name = path[0], path[1], ".".join(path)
    if path == ("scheme", "name"):
        raise ConfigError("[tune] scheme.name is not for tuning; tune each scheme with a file of its own")
    if table not in _ONLY or key in _ONLY[table]:
        return
    may = f"; of [{table}] only {', '.join(_ONLY[table])} can be searched" if _ONLY[table] else ""
    raise ConfigError(
        f"[tune] {name} is not for tuning: all settings are compared at the same clients, sampling and promise{may}"
    )


def _usual(experiment: Experiment) -> list[Axis]:
    """Return the axes for a file without `[tune]`: clip norm, clients' rate, server's rate, around the file's values.

    A scheme with a step of its own has `server_lr`. The sign of a single gradient does not depend on the clients' rate.
    """
    scheme, privacy, axes = experiment.make_scheme(), experiment.privacy, []
    rate = experiment.client.client_lr
    if privacy is not None and scheme.form != "signs" and privacy.clipping == "fixed":
        norms = _NORMS if privacy.clip_norm is None else _around(privacy.clip_norm)
        axes.append(Axis(("privacy", "clip_norm"), norms))
    if not (scheme.single_step and scheme.form == "signs"):
        axes.append(Axis(("client", "client_lr"), _around(0.1 if rate == "auto" else rate)))
    if "server_lr" in scheme.own_keys():
        axes.append(Axis(("scheme", "server_lr"), _around(getattr(scheme, "server_lr"))))  # noqa: B009
    elif experiment.server.lr != "auto":
        axes.append(Axis(("server", "lr"), _around(experiment.server.lr)))
    return axes


def _around(value: float) -> tuple[float, ...]:
    return tuple(_rounded(value * factor) for factor in _FACTORS)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
