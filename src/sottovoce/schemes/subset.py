"""Train and send a subset of the coordinates: two switches, seven schemes.

Which coordinates (`selection`) and whether training may move the others (`constrain`):

    selection         constrained     not constrained
    top               fl-top          fl-top-bis
    random-fixed      fl-bas-3        fl-bas-4
    random-per-round  fl-basic        fl-rnd, fl-bas-2

The thesis names FL-BAS-2, -3, -4 and FL-TOP-BIS in its tables 8.9 to 8.13 without defining them. This reading, by
their costs up and down, is ours; in it, FL-BAS-2 is FL-RND with equal weights for all clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.schemes import coordinates
from sottovoce.schemes.base import Mask, Message, Scheme, State, Task
from sottovoce.schemes.keys import DEFAULT_RATIO, RATIO, kept_of, ratio_of_one
from sottovoce.schemes.weights import pack_weights, unpack_weights, weights_size

Selection = Literal["top", "random-fixed", "random-per-round"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Subset(Scheme):
    """Scheme that sends K of n coordinates; a final subclass sets the two switches and nothing else.

    Symbols: K = m = |T| = `kept`, r = `ratio`, T = `chosen` (the set that never changes), n = `dim`.
    """

    selection: ClassVar[Selection]
    constrain: ClassVar[bool]
    weighted: ClassVar[bool] = False  # thesis, Alg. 7, line 12: divided by |K|

    ratio: float = field(default=DEFAULT_RATIO, metadata=RATIO)

    chosen: coordinates.Coordinates | None = field(default=None, repr=False, metadata={"bound": True})

    def __post_init__(self) -> None:
        ratio_of_one(self.ratio)

    def bind(self, dim: int, *, seed: int = 0, start: Vector | None = None, importance: Vector | None = None) -> Self:
        """Return a copy that knows its fixed set, if it has one; without `importance` all matter the same."""
        bound = super().bind(dim, seed=seed, start=start)
        kept = kept_of(self.ratio, dim)
        if self.selection == "random-fixed":
            return replace(bound, chosen=coordinates.drawn(dim, kept, seed))
        if self.selection == "top":
            if importance is None:
                importance = np.zeros(dim, np.float32)
            if importance.shape != (dim,):
                raise InputError(f"importance must have {dim} values, one a parameter, got shape {importance.shape}")
            return replace(bound, chosen=coordinates.largest(importance, kept))
        return bound

    @property
    def needs_importance(self) -> bool:
        """Tell whether coordinates are chosen from public data; with `ratio` 1 there is nothing to choose."""
        return self.selection == "top" and self.ratio < 1

    @property
    def needs_start(self) -> bool:
        """Tell whether the set is fixed: the weights outside it are w_0 for ever, and never travel."""
        return self.selection != "random-per-round"

    def setup(self) -> bytes:
        """Return the top set; a random one follows from the shared seed."""
        return coordinates.pack_set(self.coordinates(0), self.dim) if self.selection == "top" else b""

    def bind_setup(self, payload: bytes, *, dim: int, seed: int, start: Vector) -> Self:
        """Return the client's copy, with the set that the server chose."""
        if self.selection != "top":
            return super().bind_setup(payload, dim=dim, seed=seed, start=start)
        chosen = coordinates.unpack_set(payload, dim, kept_of(self.ratio, dim))
        return replace(super().bind(dim, seed=seed, start=start), chosen=chosen)

    @property
    def kept(self) -> int:
        """Return K, the number of coordinates that travel."""
        return kept_of(self.ratio, self.dim)

    @property
    def length(self) -> int:
        """Return K."""
        return self.kept

    def coordinates(self, seed: int) -> coordinates.Coordinates:
        """Return the set of the round with this seed, ascending."""
        return coordinates.drawn(self.dim, self.kept, seed) if self.chosen is None else self.chosen

    def round_seed(self, round_: int) -> int:
        """Return a new seed every round for a set that changes."""
        return coordinates.round_seed(self.shared_seed, round_) if self.selection == "random-per-round" else 0

    def downlink(self, state: State, seed: int) -> bytes:
        """Return w on a fixed set, whose other weights are w_0 for ever, or else all of w and the seed of the set."""
        if self.chosen is not None:
            return pack_weights(state["params"][self.chosen], self.downlink_bits)
        halves = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
        return wire.join([pack_weights(state["params"], self.downlink_bits), wire.pack(halves, bits=32)])

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return w and the seed."""
        if self.chosen is not None:
            if self.start is None:
                raise InputError(f"{self.name} needs w_0 on the client; bind it with `start`")
            params = self.start.copy()
            params[self.chosen] = unpack_weights(payload, self.kept, self.downlink_bits)
            return Task(params, 0, memory)
        head, tail = wire.split(payload, [weights_size(self.dim, self.downlink_bits), wire.frame_size(2, 32)])
        low, high = (int(half) for half in wire.unpack(tail, length=2, bits=32))
        return Task(unpack_weights(head, self.dim, self.downlink_bits), low | high << 32, memory)

    def trainable(self, seed: int) -> Mask | None:
        """Return the set as a mask where it constrains training."""
        if not self.constrain or self.kept == self.dim:
            return None
        mask = np.zeros(self.dim, np.bool_)
        mask[self.coordinates(seed)] = True
        return mask

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return C(w_k - w, T): the update at the set."""
        return update[self.coordinates(seed)]

    def encode_rows(self, updates: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        """Return the updates at the set."""
        return np.take(updates, self.coordinates(seed), axis=1)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return w with w[T] + mean at the set."""
        params = state["params"].copy()
        params[self.coordinates(seed)] += mean
        return {"params": params}

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count r * n up, and down too where the set is fixed."""
        kept = self.ratio * self.dim
        return (kept, self.dim if self.selection == "random-per-round" else kept)
