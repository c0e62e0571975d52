"""FL-SIGN: clients send one bit for each coordinate, and the majority decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from numpy.random import Generator

from sottovoce.core.vectors import Vector
from sottovoce.schemes import packed_signs
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.schemes.keys import VOTE_STEP, positive


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Sign(Scheme):
    """Majority vote of the clients on the direction of every coordinate.

    Symbols: gamma = `server_lr`, s_k = sign(w_k - w) = the signs, n = `dim`.
    Thesis, Alg. 3; Kerkouche, Ács and Castelluccia, "Federated Learning in Adversarial Settings", 2020. Never weighted
    by |D_k|: a client could scale its vote by inventing records.
    """

    name: ClassVar[str] = "fl-sign"
    paper: ClassVar[str] = "thesis, Alg. 3"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    form: ClassVar[Literal["floats", "signs"]] = "signs"
    linear: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    server_lr: float = field(default=0.001, metadata=VOTE_STEP)

    def __post_init__(self) -> None:
        positive("server_lr", self.server_lr)

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return sign(w_k - w), packed."""
        return packed_signs.pack_signs(update, rng)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return w + gamma * sign(sum of signs); the mean has the sign of the sum, and ties are drawn."""
        vote = packed_signs.pack_signs(mean, rng)
        return {"params": packed_signs.step(state["params"], vote, self.server_lr)}

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count one bit a coordinate up."""
        return (self.dim / 32, self.dim)
