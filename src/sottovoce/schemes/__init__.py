"""The schemes: encode, sum, decode; one file each."""

from typing import Any, Final

from sottovoce.core.registry import Registry
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.schemes.coordinates import importance

__all__ = ["SCHEMES", "Message", "Scheme", "State", "Task", "importance", "known", "make"]

SCHEMES: Final[Registry[type[Scheme]]] = Registry(
    "scheme",
    "sottovoce.schemes",
    {
        "fl-std": "sottovoce.schemes.standard:Standard",
        "fl-sign": "sottovoce.schemes.sign:Sign",
        "sign-sgd": "sottovoce.schemes.sign_sgd:SignSGD",
        "fl-cs": "sottovoce.schemes.compressive:Compressive",
        "fl-top": "sottovoce.schemes.top:Top",
        "fl-rnd": "sottovoce.schemes.rnd:Rnd",
        "fl-freq": "sottovoce.schemes.frequency:Frequency",
        "fl-basic": "sottovoce.schemes.basic:Basic",
        "fl-bas-2": "sottovoce.schemes.basic:Basic2",
        "fl-bas-3": "sottovoce.schemes.basic:Basic3",
        "fl-bas-4": "sottovoce.schemes.basic:Basic4",
        "fl-top-bis": "sottovoce.schemes.top:TopBis",
        "fl-once": "sottovoce.schemes.once:Once",
    },
    base=Scheme,
    labels=("name", "paper", "saves"),
)


def known() -> list[str]:
    """Return the names of all schemes."""
    return list(SCHEMES)


def make(name: str, **keys: Any) -> Scheme:
    """Return a scheme that is not bound to a model yet.

    `name` is one of `known()`, or `module:Class` for a scheme from outside.

    >>> make("fl-top", ratio=0.005).ratio
    0.005
    >>> make("fl-top", ration=0.005)
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: fl-top has no key 'ration'; did you mean 'ratio'?
    """
    scheme: Scheme = SCHEMES.make(name, **keys)
    return scheme
