"""FL-FREQ: a low-pass filter over the update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from numpy.random import Generator

from sottovoce.core.vectors import Vector
from sottovoce.schemes import dct
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.schemes.keys import DEFAULT_RATIO, RATIO, kept_of, ratio_of_one


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Frequency(Scheme):
    """The first m cosine coefficients of the update; the others are taken to be zero.

    Symbols: m = `length`, r = `ratio`, Phi = the first m rows of the DCT-II, n = `dim`.
    Thesis, Alg. 6; Kerkouche, Ács, Castelluccia and Genevès, "Compression Boosts Differentially Private Federated
    Learning", EuroS&P 2021. The update is padded with zeros to a fast length (1,663,370 = 2 * 5 * 41 * 4057 takes ten
    times as long as its neighbour), and m is r of that length, so `ratio` 1 loses nothing.
    """

    name: ClassVar[str] = "fl-freq"
    paper: ClassVar[str] = "thesis, Alg. 6"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"

    ratio: float = field(default=DEFAULT_RATIO, metadata=RATIO)

    def __post_init__(self) -> None:
        ratio_of_one(self.ratio)
        if self.dim:
            kept_of(self.ratio, self.padded, "coefficients")

    @property
    def padded(self) -> int:
        """Return the length of the transform."""
        return dct.fast_length(self.dim)

    @property
    def length(self) -> int:
        """Return m, the number of coefficients that travel."""
        return kept_of(self.ratio, self.padded, "coefficients")

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return Phi (w_k - w)."""
        return dct.first(update, self.padded, self.length)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return w plus the inverse transform of the mean."""
        return {"params": state["params"] + dct.inverse(mean, self.padded)[: self.dim]}

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count r * n up."""
        return (self.ratio * self.dim, self.dim)
