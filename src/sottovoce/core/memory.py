"""Keep a process small that lives long and does little, as a node of a federation does."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["give_back_large_pieces"]

_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE: Final = 1 << 20  # bytes


def give_back_large_pieces() -> None:
    """Let large arrays go back to the system as soon as nobody holds them; glibc would keep them for later.

    Whoever trains without a pause is quicker when they are kept.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such switch
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
