"""Check values once, where they enter the system, with messages that name field, rule and value."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.words import range_words


def in_range(
    name: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise unless `value` lies between `low` and `high`; NaN lies nowhere.

    >>> in_range("ratio", 3, low=0, high=1, open_low=True)
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: ratio must be in (0, 1], got 3
    """
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if above and below:
        return
    rule = range_words(low, high, open_low=open_low, open_high=open_high) or "a number"
    raise InputError(f"{name} must be {rule}, got {value:g}")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` most likely meant, or None."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def one_of(name: str, value: str, known: Iterable[str]) -> None:
    """Raise unless `value` is a known word; name the nearest, or list them all."""
    words = list(known)
    if value in words:
        return
    guess = nearest(value, words)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(words)}"
    raise InputError(f"{name} has no {value!r}; {hint}")


def all_finite(name: str, values: NDArray[np.floating]) -> None:
    """Raise if any value is NaN or infinite; how many they are would tell about the data, and is not said."""
    # A sum is finite unless a term is not (or float64 overflows), and costs no temporary array.
    if math.isfinite(float(np.sum(values, dtype=np.float64))):
        return
    if not np.isfinite(values).all():
        raise RunError(f"{name} has values that are not finite")
