"""Public front ends: frozen functions from records to features, of which no part comes from a client's records.

A model learns less noise if less of it trains. A front does the rest: formulas, and numbers measured on public or
synthetic records. `front.py` says what a front is; each other file is one.
"""

from __future__ import annotations

from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest
from sottovoce.models.fronts.front import Front
from sottovoce.models.network import Shape

__all__ = ["NAMES", "Front", "check_front", "make_front"]

NAMES: Final = ("none", "scattering", "gabor", "fourier", "hashed")


def check_front(name: str) -> None:
    """Raise unless there is a front of this name, or it names a function of the user's.

    >>> check_front("scatering")
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: [model] front has no 'scatering'; did you mean 'scattering'?
    """
    module, colon, function = name.partition(":")
    if name in NAMES or (colon and module and function):
        return
    guess = nearest(name, NAMES)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(NAMES)}, or module:function of your own"
    raise InputError(f"[model] front has no {name!r}; {hint}")


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

    `keys` are those of one front: `bandwidth`, `centre` and `spread` of "fourier", `ngrams` of "hashed".
    """
    check_front(name)
    if ":" in name:
        from sottovoce.models.fronts.own import Own

        return Own(name, input_shape, dtype, input_scale, dims)
    whole = dtype.startswith(("uint", "int"))
    if name == "scattering":
        from sottovoce.models.fronts.scattering import Scattering, usual_dims

        return Scattering(input_shape, input_scale, dims or usual_dims(input_shape))
    if name == "fourier":
        from sottovoce.models.fronts.fourier import Fourier

        if len(input_shape) == 1 and whole:
            raise InputError(
                "front 'fourier' reads rows of numbers, and these records are rows of token ids; use front = \"hashed\""
            )
        return Fourier(input_shape, input_scale, dims or 400, seed, **keys)
    if name == "hashed":
        from sottovoce.models.fronts.hashed import Hashed

        if len(input_shape) == 1 and not whole:
            raise InputError(
                "front 'hashed' reads rows of token ids, and these records are rows of numbers; use front = \"fourier\""
            )
        return Hashed(input_shape, dims or 2000, seed=seed, **keys)
    raise InputError(f"front {name!r} fills w_0 of a network and gives no features")
