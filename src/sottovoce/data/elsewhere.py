"""Stand in for records that only their owners hold: their shape is known, and nothing else of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.provenance import Public
from sottovoce.data.dataset import Dataset
from sottovoce.data.partition import Sizes

__all__ = ["Elsewhere", "records_elsewhere"]


@final
@dataclass(frozen=True)
class Elsewhere:
    """Partition of records that are not here: the number of clients, and the mean of their records if it is public."""

    clients: int
    mean_size: float = 1.0

    @property
    def total(self) -> int:
        """Return about how many records there are, by the public mean."""
        return round(self.clients * self.mean_size)

    @property
    def sizes(self) -> Sizes:
        """Return the public mean three times: nobody knows more."""
        return Sizes(round(self.mean_size), self.mean_size, round(self.mean_size))

    def size(self, client: int) -> int:
        """Return the public mean."""
        return round(self.mean_size)

    def records(self, client: int) -> NDArray[np.int64]:
        """Refuse: nobody but the client has them."""
        raise InputError(f"the records of client {client} are on its own machine alone")


def records_elsewhere(shape: Sequence[int], classes: int, scale: float) -> Dataset:
    """Return a data set of one zero a class, in the shape of records that are not here.

    >>> records_elsewhere((28, 28, 1), 10, 1 / 255).shape
    (28, 28, 1)
    """

    def zeros() -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), np.float32), (classes, *shape))

    labels = np.arange(classes)
    nothing = Public("zeros, which stand for records")
    zeroed = Dataset("nodes", zeros(), labels, zeros(), labels, classes, input_scale=scale, placeholder=True)
    return replace(zeroed, test_from=nothing, counts_from=nothing)
