"""What every attack on training is: the updates that malicious clients send in place of honest ones.

An attack is a final frozen dataclass with its formula in the docstring. Data poisoning needs no method of its own:
the experiment hands malicious clients records with other labels. What is done to a message after it was encoded
(boosting it, leaving out noise and clipping) is the same for all attacks, and `federation.conspiracy` does it.

Symbols: M = the malicious clients of a round, m = |M|, n = the expected cohort, u_k = the update w_k - w that client k
makes from the records it holds, eta_Adv = `boost`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, Protocol

from numpy.random import Generator

from sottovoce.core.vectors import Vector

Goal = Literal["untargeted", "targeted"]
Poison = Literal["nothing", "source", "withheld", "tail", "all"]
"""Which records malicious clients label anew: none; those of the source class; those of a source class that nobody
else has; the tail of the source class, which nobody else has; or all of them."""

_FILLED: Final = ("collude", "cohort", "targeted")
"""Fields that an attack may have and that are known without keys of its own: whether clients pool their records, the
expected cohort, and whether a source or target class is given."""


class Lab(Protocol):
    """What malicious clients can compute in a round, alone or together."""

    @property
    def malicious(self) -> tuple[int, ...]:
        """Name all malicious clients of the round."""
        ...

    @property
    def dim(self) -> int:
        """Return the length of an update."""
        ...

    @property
    def everyone(self) -> list[Vector]:
        """Return the updates that all malicious clients would make alone; at least two."""
        ...

    def noise(self, client: int) -> Generator:
        """Return a malicious client's own randomness in this round."""
        ...

    def alone(self, clients: Sequence[int], *, ascend: bool = False) -> Iterator[Vector]:
        """Yield the update of each client from its own records, down the loss or up."""
        ...

    def together(self, *, ascend: bool = False) -> Vector:
        """Return the update from the union of the records of all malicious clients."""
        ...


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Base of all attacks."""

    name: ClassVar[str]
    paper: ClassVar[str]
    goal: ClassVar[Goal]
    poison: ClassVar[Poison] = "nothing"
    form: ClassVar[Literal["boost", "quarter", "energy"]] = "boost"  # how its words are made
    colludes: ClassVar[bool]  # whether its clients pool their records unless told otherwise

    collude: bool

    @abstractmethod
    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the update of each of these malicious clients."""

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return eta_Adv where the experiment does not say; the papers' value if there is one."""
        return 1.0

    def trained(self, lab: Lab, clients: Sequence[int], *, ascend: bool = False) -> Iterator[Vector]:
        """Yield what training gives: the same update for all if they collude, else each client's own."""
        if not self.collude:
            return lab.alone(clients, ascend=ascend)
        shared = lab.together(ascend=ascend)
        return (shared for _ in clients)

    @classmethod
    def own_keys(cls) -> list[str]:
        """Name the attack's own keys in `[threat]`; the run itself fills in the other fields."""
        return [field.name for field in fields(cls) if field.name not in _FILLED]

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Return what `sottovoce attacks` prints."""
        lines = (cls.__doc__ or "").split("\n\n")
        return {
            "name": cls.name,
            "does": " ".join(lines[0].split()),
            "goal": cls.goal,
            "formula": " ".join(lines[1].split()) if len(lines) > 1 else "",
            "colludes": cls.colludes,
            "paper": cls.paper,
        }
