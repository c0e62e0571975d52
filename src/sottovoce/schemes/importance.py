"""Find out which coordinates matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector

__all__ = ["importance"]


def importance(gradient: Callable[[Vector, int], Vector], start: Vector, steps: int, lr: float) -> Vector:
    """Return the sum of |gradient| of each coordinate over `steps` SGD iterations from w_0.

    `gradient(params, step)` is taken on some records; step says which batch. T_init = `steps`, w_0 = `start`.
    Thesis, section 4.2.1.

    Guarantee: only those records are touched. If they are public, the set that follows costs no privacy; if they are
    a client's, it must go through a private vote.
    """
    in_range("steps", steps, low=1)
    params = start.copy()
    total = np.zeros_like(start)
    for step in range(steps):
        slope = gradient(params, step)
        total += np.abs(slope)
        params -= np.float32(lr) * slope
    return total
