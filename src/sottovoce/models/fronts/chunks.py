"""Compute on many records, some at a time, with threads: the code below must release Python's lock to gain by them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["mapped"]

_RECORDS: Final = 256  # at once, or fewer if each takes much memory; the same for any number of threads
_MEMORY: Final = 2**26  # bytes of a chunk

Floats = NDArray[np.float32]


def mapped(
    function: Callable[[NDArray[Any]], Floats],
    x: NDArray[Any],
    shape: tuple[int, ...],
    threads: int,
    memory: int = 0,
) -> Floats:
    """Return what `function` makes of records, (records, *shape); which thread takes which changes nothing.

    `memory` are the bytes that it needs for a record.
    """
    found = np.empty((len(x), *shape), np.float32)
    step = max(1, min(_RECORDS, _MEMORY // max(1, memory)))

    def fill(start: int) -> None:
        found[start : start + step] = function(x[start : start + step])

    starts = range(0, len(x), step)
    if threads == 1 or len(starts) == 1:
        for start in starts:
            fill(start)
        return found
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(fill, starts):
            pass
    return found
