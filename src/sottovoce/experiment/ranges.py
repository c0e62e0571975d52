"""Read a range of the `[sweep]` table: `{ from = 0.01, to = 0.5, step = 0.005 }`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from sottovoce.core.errors import ConfigError
from sottovoce.core.words import value_words

__all__ = ["grid_values"]

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
