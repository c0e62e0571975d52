"""Load what is written in C: loops over whole updates, for which numpy would pass over memory many times.

Every function has a twin beside its caller, in numpy, that gives the same bits: it is taken where the library could not
be built. Calls release Python's lock, so threads may share the work.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from numpy.typing import NDArray

from sottovoce.core.errors import InputError

VERSION: Final = 1  # as in native_base.c
TOP: Final = 2  # the highest level
LEVEL: Final = "SOTTOVOCE_NATIVE"  # the highest level to take, for tests: 0, 1, 2, or none for numpy alone

_TYPES: Final = {
    "p": ctypes.c_void_p,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "-": None,
}

# Result, then arguments: p an address, q a count, d a double; as in the C files.
SIGNATURES: Final = {
    "accumulate": "-pqpqqp",
    "add_digits": "-pqqpipq",
    "add_frame": "ipqpqipp",
    "add_on_grid": "-ppqd",
    "add_packed_8": "-pqpqi",
    "add_packed_16": "-pqpqi",
    "add_packed_32": "-pqpqi",
    "closest": "-pqpqpqqqqqpppp",
    "compress": "-pqp",
    "count": "-pqqqQpQ",
    "distances": "-pqpqpqqp",
    "draw_batches": "-pqpqppp",
    "epoch_double": "-pppqqqppppddqp",
    "epoch_float": "-pppqqqppppddqp",
    "factor_double": "-pqpq",
    "factor_float": "-pqpq",
    "filter": "-pqqpqqpqp",
    "frame_rows": "-pqqippqp",
    "gather": "-pqpqqpq",
    "hash_columns": "-pqqpp",
    "invert": "qpppIIqIipqppqqpI",
    "largest": "Ipq",
    "middle": "-pqpqpqqqqqqppp",
    "mix": "-pqp",
    "pack_bits": "-pqip",
    "pack_signs": "ipqpp",
    "pairs": "-pqpqqqpqp",
    "product": "dppqq",
    "protect": "qpppIIqIiIpqqdddpqpp",
    "project": "-pqqqpqpqpqpp",
    "round": "qpqdp",
    "scatter": "ipqqqppqqppqqppppqqppppp",
    "squares": "dpq",
    "step": "-ppqfp",
    "substitute_double": "-pqpq",
    "substitute_float": "-pqpq",
    "transpose": "-pqp",
    "unpack_bits": "-pqip",
    "weighted": "-pqpqpqqp",
}


@cache
def library() -> Any | None:
    """Return the compiled functions by their names (`library().mix`), or None where they could not be built."""
    spec = find_spec("sottovoce.core._native")
    if spec is None or spec.origin is None or sys.byteorder != "little" or os.environ.get(LEVEL) == "none":
        return None
    try:
        loaded = ctypes.CDLL(spec.origin)
        if loaded.sottovoce_native_version() != VERSION:
            return None
        return Functions(loaded, min(loaded.sottovoce_native_level(), int(os.environ.get(LEVEL, TOP))))
    except (OSError, AttributeError):  # built for another machine, or from other sources
        return None


def required(what: str) -> Any:
    """Return the compiled functions, or say that `what` has no other way."""
    found = library()
    if found is None:
        raise InputError(f"{what} needs the part of sottovoce that is written in C; install it where a C compiler is")
    return found


def place(array: NDArray[Any]) -> int:
    """Return the address of an array; the caller keeps the array, which must be contiguous."""
    return array.ctypes.data


class Functions:
    """The functions of the library for a level: 0 is any processor, 1 is AVX2 with FMA, 2 is AVX-512."""

    def __init__(self, loaded: ctypes.CDLL, level: int) -> None:
        for name, signature in SIGNATURES.items():
            function = getattr(loaded, f"sottovoce_{name}_{level}")
            result, *arguments = (_TYPES[letter] for letter in signature)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


def give_back_memory() -> None:
    """Give what was freed back to the system; the C library would keep it for later."""
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)
