"""FL-BASIC and its three variants: random sets of coordinates instead of FL-TOP's chosen set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from sottovoce.schemes.subset import Selection, Subset


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Basic(Subset):
    """Training and sending of a random set of coordinates, new every round.

    Symbols: K = `kept`, r = `ratio`.
    Thesis, section 4.2.2; Kerkouche, Ács, Castelluccia and Genevès, "Constrained Differentially Private Federated
    Learning for Low-bandwidth Devices", UAI 2021.
    """

    name: ClassVar[str] = "fl-basic"
    paper: ClassVar[str] = "thesis, section 4.2.2"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    selection: ClassVar[Selection] = "random-per-round"
    constrain: ClassVar[bool] = True


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Basic2(Subset):
    """Training of all coordinates, sending of a random set, new every round; our reading of thesis, Tab. 8.11.

    In this reading it is FL-RND without weights. No algorithm of the thesis defines FL-BAS-2, and the other schemes of
    its table, FL-TOP and FL-BASIC, have no weights.
    """

    name: ClassVar[str] = "fl-bas-2"
    paper: ClassVar[str] = "thesis, Tab. 8.11 (our reading)"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    selection: ClassVar[Selection] = "random-per-round"
    constrain: ClassVar[bool] = False


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Basic3(Subset):
    """Training and exchange of one random set for the whole run; our reading of thesis, Tab. 8.11."""

    name: ClassVar[str] = "fl-bas-3"
    paper: ClassVar[str] = "thesis, Tab. 8.11 (our reading)"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    selection: ClassVar[Selection] = "random-fixed"
    constrain: ClassVar[bool] = True


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Basic4(Subset):
    """Training of all coordinates, exchange of one random set for the whole run; our reading of thesis, Tab. 8.11."""

    name: ClassVar[str] = "fl-bas-4"
    paper: ClassVar[str] = "thesis, Tab. 8.11 (our reading)"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    selection: ClassVar[Selection] = "random-fixed"
    constrain: ClassVar[bool] = False
