"""Base of all tables of an experiment file, and the type of keys that are fractions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo

from sottovoce.core.errors import InputError
from sottovoce.core.registry import Registry
from sottovoce.core.validate import nearest
from sottovoce.core.words import range_words, type_words, value_words


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


@dataclass(frozen=True)
class _Named:
    """Rule of a key whose value is a name in a registry, `module:attribute`, or one of a few other words."""

    registry: Registry[Any]
    others: tuple[str, ...]

    def __call__(self, name: Any) -> Any:
        if name is not None and name not in self.others:
            try:
                self.registry.check(name)
            except InputError:  # `sentence` has words for it
                raise ValueError("unknown") from None
        return name

    @property
    def names(self) -> list[str]:
        return [*self.others, *self.registry]


def named(registry: Registry[Any], *others: str) -> AfterValidator:
    """Return the rule of a key whose value is a name in a registry, or one of `others`."""
    return AfterValidator(_Named(registry, others))


class Table(BaseModel):
    """Base table: immutable, unknown keys rejected.

    The description of each key is what `sottovoce explain` and docs/reference.md print; type, range and default are
    taken from its annotation and its `Field`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )


_RANGE_ERRORS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
_NAME_RULE = "letters, digits, '.', '_' and '-', and start with a letter or a digit"


def kind_of(field: FieldInfo) -> str:
    """Return the type of a key in words; that it may be left out goes without saying."""
    if table_of(field) is not None:
        return "a table"
    names = _names(field)
    return type_words(Literal[tuple(names)] if names else _without_none(field.annotation))


def limits_of(field: FieldInfo) -> str:
    """Return the range of a key in words; empty if every value of its type is allowed."""
    bounds = _bounds(field)
    if "pattern" in bounds:
        return _NAME_RULE
    return range_words(
        bounds.get("gt", bounds.get("ge", -math.inf)),
        bounds.get("lt", bounds.get("le", math.inf)),
        open_low="gt" in bounds,
        open_high="lt" in bounds,
    )


def table_of(field: FieldInfo) -> type[Table] | None:
    """Return the table that a key holds; None if its value is none."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Table) else None


def sentence(error: ValidationError, tables: dict[str, type[Table]]) -> str:
    """Return the first problem as one sentence: table, key, rule, value, and the nearest allowed word."""
    return problem_sentence(error.errors()[0], tables)


def problem_sentence(problem: Mapping[str, Any], tables: dict[str, type[Table]]) -> str:
    """Return one problem as `sentence` does; its `loc` begins with the table."""
    if len(problem["loc"]) < 2:  # one of our own checks of a whole experiment or table
        return str(problem["msg"]).removeprefix("Value error, ")
    table, key = str(problem["loc"][0]), str(problem["loc"][1])
    field, steps = tables[table].model_fields[key], list(problem["loc"][2:])
    while steps and (inner := table_of(field)) is not None:
        step = str(steps.pop(0))
        if step not in inner.model_fields:
            guess = nearest(step, inner.model_fields)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(inner.model_fields)}"
            return f"[{table}] {key} has no key {step!r}; {hint}"
        key, field = f"{key}.{step}", inner.model_fields[step]
    value, part = problem["input"], ".".join(str(step) for step in problem["loc"][2:] if isinstance(step, int))
    if problem["type"] in _RANGE_ERRORS:
        rule = f"be {limits_of(field) or problem['msg'].removeprefix('Input should be ')}"
    elif problem["type"] == "string_pattern_mismatch":
        rule = f"have only {limits_of(field)}"
    elif problem["type"] == "finite_number":
        rule = "be finite"
    elif problem["type"] == "literal_error" and part:  # one word of a list
        rule = f"be {problem['ctx']['expected']}"
    else:
        rule = f"be {kind_of(field)}"
    whole = f" (place {part})" if part else ""
    return f"[{table}] {key}{whole} must {rule}, got {value_words(value)}{_guess(field, value)}"


def _guess(field: FieldInfo, value: Any) -> str:
    """Return the allowed word that was most likely meant, as the end of a sentence."""
    options = _names(field) or [option for option in _options(field.annotation) if isinstance(option, str)]
    guess = nearest(value, options) if isinstance(value, str) else None
    return f"; did you mean {value_words(guess)}?" if guess else ""


def _names(field: FieldInfo) -> list[str]:
    """Return the names that a registry has for a key; none if no registry is asked."""
    rules = [rule.func for rule in field.metadata if isinstance(rule, AfterValidator)]
    return [name for rule in rules if isinstance(rule, _Named) for name in rule.names]


def _options(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, UnionType):
        return [option for inner in get_args(hint) for option in _options(inner)]
    return [] if isinstance(hint, type) else [option for option in get_args(hint) if not isinstance(option, type)]


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return Union[tuple(option for option in get_args(hint) if option is not type(None))]  # noqa: UP007


def _bounds(field: FieldInfo) -> dict[str, Any]:
    """Return the constraints of a key by name, also those of a part of its type."""
    found: dict[str, Any] = {}
    for part in (field, *_annotated(field.annotation)):
        for constraint in part.metadata:
            for name in ("gt", "ge", "lt", "le", "pattern"):
                value = getattr(constraint, name, None)
                if value is not None:
                    found[name] = value
    return found


def _annotated(hint: Any) -> list[FieldInfo]:
    if get_origin(hint) in (Union, UnionType):
        return [field for option in get_args(hint) for field in _annotated(option)]
    if get_origin(hint) is Annotated:
        return [part for part in get_args(hint)[1:] if isinstance(part, FieldInfo)]
    return []
