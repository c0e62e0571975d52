"""What a front is: a public, frozen function from records to features, computed once a record."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.network import Shape

__all__ = ["Front"]


class Front(Protocol):
    """A function from stored records to features that no training changes.

    Guarantee: the features of a record depend on that record and on public things (formulas, a seed, numbers of the
    set-up), and on no other record. So they are part of what a client does with its own records before it trains, and
    cost no privacy.
    """

    @property
    def name(self) -> str:
        """Return its name in `[model] front`."""
        ...

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        ...

    @property
    def input_scale(self) -> float:
        """Return what stored records are multiplied by."""
        ...

    @property
    def width(self) -> int:
        """Count the features of a record."""
        ...

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        ...

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features of stored records, (records, width); independent of the other records in the call."""
        ...

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy that was fitted on public records; one that has nothing to fit returns itself."""
        ...

    def payload(self) -> bytes:
        """Return what the set-up must carry so that a client computes the same features; empty if nothing."""
        ...

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy from a set-up that begins with `payload`, and the rest of the set-up."""
        ...

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes; 0 if there is none."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its numbers by name, for a file."""
        ...
