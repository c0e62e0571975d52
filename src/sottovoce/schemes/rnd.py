"""FL-RND: a random subset of the update, new every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from sottovoce.schemes.subset import Selection, Subset


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Rnd(Subset):
    """Training of all coordinates, sending of a random set G, which all clients derive from one seed.

    Symbols: m = |G| = `kept`, r = `ratio`, zeta = the round seed.
    Thesis, Alg. 5; Kerkouche, Ács, Castelluccia and Genevès, "Compression Boosts Differentially Private Federated
    Learning", EuroS&P 2021. With `ratio` 1 it is FL-STD.
    """

    name: ClassVar[str] = "fl-rnd"
    paper: ClassVar[str] = "thesis, Alg. 5"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    selection: ClassVar[Selection] = "random-per-round"
    constrain: ClassVar[bool] = False
    weighted: ClassVar[bool] = True  # thesis, Alg. 5, line 8
