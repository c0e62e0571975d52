"""Read what a user calls a scheme: a name, a name with keys, or an object of a class of the user's own."""

from __future__ import annotations

from typing import Any, Final

from sottovoce.checks.schemes import scheme_checks
from sottovoce.config.names import SCHEME_KEYS
from sottovoce.core.errors import InputError
from sottovoce.schemes import SCHEMES, Scheme, make

_LARGEST: Final = 20_000  # parameters of the model that a scheme is tried on, at most
_COMMON: Final = tuple(SCHEME_KEYS - {"name"})  # of `[scheme]`, for every scheme


def read(scheme: Any, keys: dict[str, Any] | None) -> tuple[Scheme, dict[str, Any]]:
    """Return the scheme, not bound to a model yet, and its table.

    A class of the user's own is known by its name from then on, as the schemes of the house are.
    """
    if isinstance(scheme, tuple) and len(scheme) == 2 and keys is None:
        scheme, keys = scheme
    keys = dict(keys or {})
    if isinstance(scheme, type) and issubclass(scheme, Scheme):
        raise InputError(f"scheme must be an object, got the class {scheme.__name__}; write {scheme.__name__}(...)")
    if isinstance(scheme, Scheme):
        unknown = [key for key in keys if key not in _COMMON]
        if unknown:
            raise InputError(f"{unknown[0]!r} in scheme_keys belongs in the scheme object itself")
        SCHEMES.add(scheme.name, type(scheme))
        table = {key: value for key in scheme.own_keys() if (value := getattr(scheme, key)) is not None}
        return scheme, {"name": scheme.name, **table, **keys}
    if not isinstance(scheme, str):
        raise InputError(f"scheme must be a name, a (name, keys) pair or a Scheme, got {type(scheme).__name__}")
    made = make(scheme, **{key: value for key, value in keys.items() if key not in _COMMON})
    return made, {"name": scheme, **keys}


def check(scheme: Scheme, dim: int) -> None:
    """Raise the first promise that a scheme from outside breaks; those of the house are checked by their tests."""
    if type(scheme).__module__.partition(".")[0] == "sottovoce":
        return
    try:
        scheme_checks(scheme, dim=min(dim, _LARGEST))
    except InputError:
        raise
    except Exception as error:  # whatever a user's class raises
        raise InputError(f"{scheme.name} fails when it is tried: {type(error).__name__}: {error}") from error
