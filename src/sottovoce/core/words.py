"""Put the types, ranges and values of configuration keys into words, for messages and for the reference."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

_NAMES: Final[dict[Any, str]] = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    Fraction: 'a number or a fraction such as "1/60"',
    type(None): "left out",
}
_PLURALS: Final[dict[Any, str]] = {float: "numbers", int: "whole numbers", str: "texts", list: "lists"}
_LONGEST: Final = 100  # characters of a value in a message


def type_words(hint: Any) -> str:
    """Return what a value of this type is called.

    >>> type_words(int | None)
    'a whole number or left out'
    >>> type_words(Literal["sgd", "adam"])
    '"sgd" or "adam"'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_words(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(type_words(option) for option in inner)
    if origin is Literal:
        *first, last = [value_words(option) for option in inner]
        return f"{', '.join(first)} or {last}" if first else last
    if origin is list:
        return f"a list of {_PLURALS.get(get_origin(inner[0]) or inner[0], 'values')}"
    if origin is dict:
        return f"a table of {_PLURALS.get(get_origin(inner[1]) or inner[1], 'values')}"
    return _NAMES.get(hint, getattr(hint, "__name__", str(hint)))


def range_words(
    low: float = -math.inf, high: float = math.inf, *, open_low: bool = False, open_high: bool = False
) -> str:
    """Return the range of a number; empty if there is no bound.

    >>> range_words(0, 1, open_low=True), range_words(1), range_words(high=5)
    ('in (0, 1]', 'at least 1', 'at most 5')
    """
    if low == -math.inf and high == math.inf:
        return ""
    if high == math.inf:
        return f"{'finite and ' if open_high else ''}{'above' if open_low else 'at least'} {_number(low)}"
    if low == -math.inf:
        return f"{'below' if open_high else 'at most'} {_number(high)}"
    return f"in {'(' if open_low else '['}{_number(low)}, {_number(high)}{')' if open_high else ']'}"


def value_words(value: Any) -> str:
    """Return a value as TOML writes it, so that a reader can copy it; a long one is cut.

    >>> value_words("a b"), value_words(True), value_words(Fraction(1, 10))
    ('"a b"', 'true', '"1/10"')
    """
    if isinstance(value, Fraction):
        value = str(value) if value.denominator > 1 else int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # TOML's nan and inf are Python's
    text = json.dumps(value, ensure_ascii=False, default=repr)
    if not text.isprintable():  # JSON escapes some of what a terminal acts on, and not all
        text = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:g}"
