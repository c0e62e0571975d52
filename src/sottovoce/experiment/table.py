"""Base of all tables of an experiment file, and the type of keys that are fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

__all__ = ["Rate", "Table"]


def _fraction(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise ValueError("not a number")
    try:
        return Fraction(str(value).strip())
    except ZeroDivisionError:
        raise ValueError("not a number") from None


Rate = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    PlainSerializer(lambda value: str(value) if value.denominator > 1 else int(value)),
]


class Table(BaseModel):
    """Base table: immutable, unknown keys rejected.

    The description of each key is what `sottovoce explain` and docs/reference.md print; type, range and default are
    taken from its annotation and its `Field`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )
