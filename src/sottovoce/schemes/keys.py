"""Check the keys that several schemes share."""

from __future__ import annotations

import math
from typing import Final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

DEFAULT_RATIO = 0.05


def described(description: str, range_: str = "") -> dict[str, str]:
    """Return the metadata of a dataclass field that is a key of `[scheme]`; `sottovoce explain` prints it."""
    return {"description": description, "range": range_}


RATIO: Final = described(
    "Share of the values that travel: 0.05 sends one value in twenty, 1 sends all. Smaller ratios cost fewer bytes "
    "and, under privacy, let in less noise, but each round learns less.",
    "in (0, 1]",
)
VOTE_STEP: Final = described(
    "Distance by which the majority's vote moves every weight in a round. Lower it if accuracy jumps up and down.",
    "finite and above 0",
)


def positive(name: str, value: float) -> None:
    """Raise unless `value` is finite and above zero."""
    in_range(name, value, low=0, high=math.inf, open_low=True, open_high=True)


def ratio_of_one(value: float) -> None:
    """Raise unless `value` can be a compression ratio.

    >>> ratio_of_one(3)
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: ratio must be in (0, 1], got 3
    """
    in_range("ratio", value, low=0, high=1, open_low=True)


def kept_of(ratio: float, dim: int, what: str = "parameters") -> int:
    """Return the nearest number of kept values: m = r * n of the papers, at least one.

    >>> kept_of(0.005, 1_663_370), kept_of(0.05, 1_663_370)
    (8317, 83168)
    """
    kept = round(ratio * dim)
    if kept < 1:
        raise InputError(f"ratio {ratio:g} keeps none of {dim} {what}; take at least {0.5000001 / dim:.2g}")
    return kept
