"""Spread work on the columns of a matrix over threads.

Blocks have a fixed size, and what they give is put together in their order: no result depends on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

BLOCK: Final = 1 << 15  # columns

Result = TypeVar("Result")


def threads() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int, int], Result], length: int, block: int = BLOCK) -> list[Result]:
    """Call `work` with the start and stop of every block; return the results in the order of the blocks."""
    spans = [(start, min(start + block, length)) for start in range(0, length, block)]
    with ThreadPoolExecutor(min(threads(), max(1, len(spans)))) as pool:
        return list(pool.map(lambda span: work(*span), spans))
