"""FL-TOP: train and exchange only the weights that matter most on public data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from sottovoce.schemes.subset import Selection, Subset


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Top(Subset):
    """Training and exchange of the K most important weights; the others keep their first values w_0.

    Symbols: K = |T| = `kept`, r = `ratio`, T = `chosen`, found by T_init steps on public data (`importance.py`).
    Thesis, Alg. 7 and 8; Kerkouche, Ács, Castelluccia and Genevès, "Constrained Differentially Private Federated
    Learning for Low-bandwidth Devices", UAI 2021. With `ratio` 1 it is FL-STD with equal weights for all clients.
    """

    name: ClassVar[str] = "fl-top"
    paper: ClassVar[str] = "thesis, Alg. 7"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    selection: ClassVar[Selection] = "top"
    constrain: ClassVar[bool] = True


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class TopBis(Subset):
    """Exchange of the K most important weights, while clients train all of them; our reading of thesis, Tab. 8.11."""

    name: ClassVar[str] = "fl-top-bis"
    paper: ClassVar[str] = "thesis, Tab. 8.11 (our reading)"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    selection: ClassVar[Selection] = "top"
    constrain: ClassVar[bool] = False
