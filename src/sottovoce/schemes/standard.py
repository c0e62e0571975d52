"""FL-STD: whole updates and whole models travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import Message, Scheme, State


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Standard(Scheme):
    """Mean of whole updates: federated averaging, with which all others are compared.

    Symbols: w = `params`, delta_k = w_k - w = `update`, n = `dim`.
    Raouf Kerkouche, "Differentially Private Federated Learning for Bandwidth and Energy Constrained Environments"
    (the thesis), Alg. 1; McMahan et al., AISTATS 2017.
    """

    name: ClassVar[str] = "fl-std"
    paper: ClassVar[str] = "thesis, Alg. 1"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the update as it is."""
        return update

    def encode_rows(self, updates: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        """Return the updates as they are."""
        return updates

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return w + mean."""
        return {"params": state["params"] + mean}
