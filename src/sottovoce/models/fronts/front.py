"""What a front is: a public, frozen function from records to features, computed once a record."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.base import Shape


class PublicNumbers(Protocol):
    """Public, frozen numbers in a model: a front before it, or one that filled its first layers."""

    @property
    def name(self) -> str:
        """Return its name in `[model] front`."""
        ...

    @property
    def width(self) -> int:
        """Count the features of a record."""
        ...

    def payload(self) -> bytes:
        """Return what the set-up must carry so that a client computes the same features; empty if nothing."""
        ...

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes; 0 if there is none."""
        ...


class Front(PublicNumbers, Protocol):
    """A function from stored records to features that no training changes.

    Guarantee: the features of a record depend on that record and on public things (formulas, a seed, numbers of the
    set-up), and on no other record. So they are part of what a client does with its own records before it trains, and
    cost no privacy.
    """

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        ...

    @property
    def input_scale(self) -> float:
        """Return what stored records are multiplied by."""
        ...

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        ...

    @property
    def measured(self) -> bool:
        """Tell whether it has numbers that are measured on public records."""
        ...

    @property
    def parallel(self) -> bool:
        """Tell whether several threads may compute features at once."""
        ...

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features of stored records, (records, width); independent of the other records in the call."""
        ...

    def probe_features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return something of the shape of `features` also while the numbers of a fit are not known yet."""
        ...

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy that was fitted on public records; one that has nothing to fit returns itself."""
        ...

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy from a set-up that begins with `payload`, and the rest of the set-up."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its numbers by name, for a file."""
        ...


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
