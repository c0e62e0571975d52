"""Find schemes by name and make them from the keys of `[scheme]`."""

from __future__ import annotations

import importlib
import inspect
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest, one_of
from sottovoce.core.words import type_words
from sottovoce.schemes.base import Scheme

__all__ = ["known", "make", "own", "scheme_class"]

# Named and not imported: `sottovoce --help` should not load scipy.
_HOME: Final = "sottovoce.schemes"
_KNOWN: Final = {
    "fl-std": f"{_HOME}.standard:Standard",
    "fl-sign": f"{_HOME}.sign:Sign",
    "sign-sgd": f"{_HOME}.sign_sgd:SignSGD",
    "fl-cs": f"{_HOME}.compressive:Compressive",
    "fl-top": f"{_HOME}.top:Top",
    "fl-rnd": f"{_HOME}.rnd:Rnd",
    "fl-freq": f"{_HOME}.frequency:Frequency",
    "fl-basic": f"{_HOME}.basic:Basic",
    "fl-bas-2": f"{_HOME}.basic:Basic2",
    "fl-bas-3": f"{_HOME}.basic:Basic3",
    "fl-bas-4": f"{_HOME}.basic:Basic4",
    "fl-top-bis": f"{_HOME}.top:TopBis",
    "fl-once": f"{_HOME}.once:Once",
}
_OWN: dict[str, type[Scheme]] = {}  # of users, whose classes may live in a notebook


def own(scheme: type[Scheme]) -> None:
    """Let a user's class be found by its name in this process; a cell that is run again brings a new class."""
    _check_class(scheme, scheme.__name__)
    name = scheme.name
    if name in _KNOWN:
        if scheme is not scheme_class(name):
            raise InputError(f"{scheme.__name__} cannot be named {name!r}, a scheme of sottovoce; choose another name")
        return
    if not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"{scheme.__name__}: name must be letters, digits, - and _, got {name!r}")
    _OWN[name] = scheme


def known() -> list[str]:
    """Return the names of the built-in schemes."""
    return list(_KNOWN)


def make(name: str, **keys: Any) -> Scheme:
    """Return a scheme that is not bound to a model yet.

    `name` is one of `known()`, or `module:Class` for a scheme from outside.

    >>> make("fl-top", ratio=0.005).ratio
    0.005
    >>> make("fl-top", ration=0.005)
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: fl-top has no key 'ration'; did you mean 'ratio'?
    """
    scheme = scheme_class(name)
    own = scheme.own_keys()
    hints = get_type_hints(scheme)
    for key, value in keys.items():
        if key not in own:
            guess = nearest(key, own)
            others = f"known: {', '.join(own)}" if own else "it has none"
            raise InputError(f"{name} has no key {key!r}; " + (f"did you mean {guess!r}?" if guess else others))
        if not _fits(value, hints[key]):
            raise InputError(f"{name}: {key} must be {type_words(hints[key])}, got {value!r}")
    return scheme(**keys)


def scheme_class(name: str) -> type[Scheme]:
    """Return the class of a scheme by its name or its place."""
    if name in _OWN:
        return _OWN[name]
    if ":" not in name:
        one_of("scheme", name, _KNOWN)
    module, _, attribute = _KNOWN.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise InputError(f"scheme {name!r}: module {module!r} has no {attribute!r}") from None
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise InputError(f"scheme {name!r}: module {module!r} cannot be imported: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, Scheme)):
        raise InputError(f"scheme {name!r}: {attribute!r} is not a subclass of sottovoce.schemes.base.Scheme")
    _check_class(found, attribute, f"scheme {name!r}: ")
    return found


def _check_class(found: type[Scheme], attribute: str, where: str = "") -> None:
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    missing += [label for label in ("name", "paper", "saves") if not hasattr(found, label)]
    if missing:
        raise InputError(f"{where}{attribute!r} does not define {', '.join(missing)}")


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value from a config can stand for a key of this type; true is not a number here."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint) if isinstance(hint, type) else True
