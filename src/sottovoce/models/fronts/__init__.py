"""Public front ends: frozen functions from records to features, of which no part comes from a client's records.

A model learns less noise if less of it trains. A front does the rest: formulas, and numbers measured on public or
synthetic records. `front.py` says what a front is; each other file is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.registry import OURS, Registry
from sottovoce.models.base import Shape
from sottovoce.models.fronts.front import Front

__all__ = ["FRONTS", "Front", "check_front", "is_function", "make_front"]

FRONTS: Final[Registry[Callable[..., Any]]] = Registry(
    "front",
    "sottovoce.fronts",
    {
        "scattering": "sottovoce.models.fronts.scattering:Scattering",
        "gabor": "sottovoce.models.fronts.gabor:Gabor",
        "fourier": "sottovoce.models.fronts.fourier:Fourier",
        "hashed": "sottovoce.models.fronts.hashed:Hashed",
        "encoder": "sottovoce.models.fronts.encoder:Encoder",
    },
    key="[model] front",
    outside=", none, or module:function of your own",
)
"""Classes of ours; what packages give, or `module:function` names, are functions from records to features."""


def check_front(name: str) -> None:
    """Raise unless there is a front of this name, or it names a function of the user's.

    >>> check_front("scatering")
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: [model] front has no 'scatering'; did you mean 'scattering'?
    """
    if name != "none":
        FRONTS.check(name)


def is_function(name: str) -> bool:
    """Tell whether a front is a function from outside: a user's own, or that of an installed package."""
    return name != "none" and FRONTS.entry(name).packages != (OURS,)


def make_front(
    name: str,
    input_shape: Shape,
    dtype: str,
    *,
    input_scale: float = 1.0,
    dims: int | None = None,
    seed: int = 1,
    **keys: Any,
) -> Front:
    """Return a front for stored records of a shape and type, not yet fitted; "gabor" is none, it fills w_0.

    `keys` are those of one front: `bandwidth`, `centre` and `spread` of "fourier", `ngrams` of "hashed", `encoder` of
    "encoder".
    """
    check_front(name)
    if is_function(name):
        from sottovoce.models.fronts.own import Own

        return Own(name, input_shape, dtype, input_scale, dims)
    make = None if name == "none" else getattr(FRONTS[name], "make", None)
    if make is None:
        raise InputError(f"front {name!r} fills w_0 of a network and gives no features")
    front: Front = make(input_shape, dtype, input_scale=input_scale, dims=dims, seed=seed, **keys)
    return front
