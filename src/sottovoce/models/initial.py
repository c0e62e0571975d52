"""Draw the first values of a tensor as Keras does by default."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["glorot_uniform", "orthogonal", "uniform"]

Shape = tuple[int, ...]


def uniform(limit: float, shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw values between -limit and limit."""
    return (2 * rng.random(shape, dtype=np.float32) - 1) * np.float32(limit)


def glorot_uniform(shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw a kernel (..., in, out) between +- sqrt(6 / (field * (in + out)))."""
    field = math.prod(shape[:-2])
    return uniform(math.sqrt(6 / (field * (shape[-2] + shape[-1]))), shape, rng)


def orthogonal(shape: Shape, rng: Generator) -> NDArray[np.float32]:
    """Draw a matrix, each orthogonal one as likely as any other."""
    q, r = np.linalg.qr(rng.standard_normal(shape[::-1]))
    # Without the signs of r the matrix would not be uniform over the orthogonal ones.
    return np.asarray((q * np.sign(np.diag(r))).T, np.float32)
