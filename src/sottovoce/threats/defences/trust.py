"""Trust in updates that point where the server's own update points (FLTrust)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector
from sottovoce.threats.defences.base import Defence, Matrix, Rows
from sottovoce.threats.defences.rows import length, products, weighted_sum


@dataclass(frozen=True)
class FLTrust(Defence):
    """The mean of the updates, each as long as the server's own update g and weighted by how it agrees with g.

    out = sum_i t_i (|g| / |x_i|) x_i / sum_i t_i with the trust t_i = max(0, cos(x_i, g)). The server makes g by
    training on public records of its own, as a client does.

    Guarantee: |out| <= |g|, and <out, g> > 0, whoever is malicious. It is as good as the public records are.
    """

    name = "fltrust"
    paper = "Cao, Fang, Liu, Gong 2021, FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping"
    assumes = "any f < n, but public records that are like the clients'"
    counts_malicious = False
    needs_reference = True

    def fewest(self, malicious: int) -> int:
        """Return f + 1."""
        return malicious + 1

    def combine(self, updates: Matrix, rows: Rows, malicious: int, reference: Vector | None) -> Vector:
        """Return the trusted mean of the rows, or raise if there is nothing to trust."""
        if reference is None:
            raise InputError(f"{self.name} needs a reference update")
        own = length(reference.astype(np.float64))
        if not (0 < own < np.inf):
            raise RunError(f"{self.name}: the server's own update has norm {own:g}, which points nowhere")
        norms = np.sqrt(products(updates, rows))
        norms[norms == 0] = np.inf  # an update of zeros agrees with nothing
        trust = np.maximum(0, products(updates, rows, reference) / (norms * own))
        if not trust.sum() > 0:
            raise RunError(f"{self.name}: no update points where the server's own does")
        return weighted_sum(updates, rows, trust / trust.sum() * (own / norms)).astype(np.float32)
