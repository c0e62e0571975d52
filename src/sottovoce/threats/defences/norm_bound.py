"""The mean of updates that are not longer than a bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Defence, Matrix, Rows
from sottovoce.threats.defences.rows import products, weighted_sum


@dataclass(frozen=True)
class NormBound(Defence):
    """The mean of the updates, each scaled down to at most a bound B: out = 1/n sum_i x_i min(1, B / |x_i|).

    B is given, or the median of all norms. Guarantee: f malicious updates move the mean by at most f B / n in any
    direction; with the median as B and 2 f < n, B is at most the longest honest norm.
    """

    bound: float | None = None

    name = "norm-bound"
    paper = "Sun, Kairouz, Suresh, McMahan 2019, Can You Really Backdoor Federated Learning?"
    assumes = "any f < n with a given bound, n >= 2 f + 1 with the median: its influence is bounded, not removed"
    counts_malicious = False

    def __post_init__(self) -> None:
        if self.bound is not None:
            in_range("bound", self.bound, low=0, open_low=True)

    def fewest(self, malicious: int) -> int:
        """Return f + 1, or 2 f + 1 where the bound is the median of the norms."""
        return malicious + 1 if self.bound is not None else 2 * malicious + 1

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the mean of the rows within the bound."""
        norms = np.sqrt(products(updates, rows))
        bound = float(np.median(norms)) if self.bound is None else self.bound
        factors = np.divide(bound, norms, out=np.ones_like(norms), where=norms > bound)
        return weighted_sum(updates, rows, factors / len(rows)).astype(np.float32)
