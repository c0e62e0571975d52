"""What every defence is: a pure function from the updates of a round to one update.

Updates are the rows of a float32 matrix, one for each client. In the formulas x_1 ... x_n are the rows, and f of them
are malicious: they may have any value and know all the others.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector

Matrix = NDArray[np.float32]  # clients x length
Rows = NDArray[np.int64]  # places of the rows that are used, ascending


@dataclass(frozen=True)
class Defence(ABC):
    """Base of all defences. Fields are keys; methods are pure, and no result depends on the number of threads."""

    name: ClassVar[str]
    paper: ClassVar[str]  # where it is defined
    assumes: ClassVar[str]  # how many malicious updates it stands, in words
    counts_malicious: ClassVar[bool]  # its result depends on f; with f = 0 it defends against nobody
    needs_reference: ClassVar[bool] = False  # compares with an update that the server made itself

    @abstractmethod
    def fewest(self, malicious: int) -> int:
        """Return how many updates there must be to stand so many malicious ones."""

    def estimate(self, updates: Matrix, malicious: int, reference: Vector | None = None) -> Vector:
        """Return one update in place of the mean of the rows.

        A row with a value that is not finite is dropped, as if its client had not answered. The others may still hold
        `malicious` malicious ones: whoever sends NaN may also be honest and have diverged.
        """
        from sottovoce.threats.defences.rows import finite_rows  # it imports this file

        _check(updates, malicious)
        if self.needs_reference and (reference is None or reference.shape != updates.shape[1:]):
            raise InputError(f"{self.name} needs a reference update of {updates.shape[1]} values")
        rows = finite_rows(updates)
        needed = self.fewest(malicious)
        if len(rows) < needed:
            raise InputError(
                f"{self.name} needs {needed} finite updates to stand {malicious} malicious, got {len(rows)}"
            )
        return self.combine(updates, rows, malicious, reference)

    @abstractmethod
    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the estimate from rows that are finite and enough."""

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Return name, formula, paper and assumption."""
        return {"name": cls.name, "does": inspect.getdoc(cls) or "", "assumes": cls.assumes, "paper": cls.paper}


def _check(updates: Matrix, malicious: int) -> None:
    in_range("malicious", malicious, low=0)
    if updates.ndim != 2 or updates.dtype != np.float32:
        raise InputError(f"updates must be a float32 matrix, got {updates.dtype} of shape {updates.shape}")
    if not updates.flags.c_contiguous:  # a copy would double the memory of a round, so the caller decides
        raise InputError("updates must lie row by row in memory; use numpy.ascontiguousarray")
