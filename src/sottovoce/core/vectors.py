"""Lay the tensors of a model out in one flat float32 vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """Place of each named tensor in the flat vector.

    >>> layout = Layout((("kernel", (2, 3)), ("bias", (3,))))
    >>> layout.dim, layout.span("bias")
    (9, slice(6, 9, None))
    """

    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def spans(self) -> dict[str, slice]:
        """Map each tensor's name to its place."""
        spans: dict[str, slice] = {}
        start = 0
        for name, shape in self.tensors:
            spans[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return spans

    @property
    def dim(self) -> int:
        """Count the parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    def span(self, name: str) -> slice:
        """Return the place of one tensor."""
        return self.spans[name]

    def views(self, flat: Vector) -> dict[str, Vector]:
        """Return each tensor as a view of `flat`: writing to one writes to the other."""
        if flat.shape != (self.dim,):
            raise InputError(f"a vector of {self.dim} values was expected, got shape {flat.shape}")
        return {name: flat[self.spans[name]].reshape(shape) for name, shape in self.tensors}

    def join(self, tensors: dict[str, NDArray[np.floating]]) -> Vector:
        """Copy tensors into a new flat vector."""
        flat = np.empty(self.dim, np.float32)
        for name, view in self.views(flat).items():
            view[...] = tensors[name]
        return flat
