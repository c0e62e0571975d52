"""Attacks on a sum that hides its parts: nobody sees a single word, so a word may be as large as the modulus lets it.

Both take the direction of another attack: that of a backdoor if a source or a target class is given, else up the
loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from sottovoce.core.vectors import Vector
from sottovoce.threats.attack import Attack, Goal, Lab, Poison

__all__ = ["EnergyAware", "QuarterModulus"]


@final
@dataclass(frozen=True, kw_only=True)
class QuarterModulus(Attack):
    """The largest word under the mask that cannot wrap against itself: a quarter of the modulus.

    +-2^b / (4 m) in every coordinate, with the sign of u. Half the modulus would do more but wraps as soon as the
    honest sum leans the same way. One client of a cohort owns the round; the energy guard sees it at once.
    """

    name: ClassVar[str] = "quarter-modulus"
    paper: ClassVar[str] = "ours, docs/threats.md"
    goal: ClassVar[Goal] = "untargeted"
    poison: ClassVar[Poison] = "source"
    form: ClassVar[Literal["boost", "quarter", "energy"]] = "quarter"
    colludes: ClassVar[bool] = True

    collude: bool = True
    targeted: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the direction."""
        return self.trained(lab, clients, ascend=not self.targeted)


@final
@dataclass(frozen=True, kw_only=True)
class EnergyAware(Attack):
    """As much as the energy guard lets pass, and not more: the attacker that knows the guard.

    u scaled so that the sum over M has norm r, r^2 = (k - 2) V sqrt(2 d) + m V d / n (V the noise variance of the sum,
    d its length, k the guard's width): the room that the guard leaves, and the noise that M left out; two standard
    deviations are kept as a margin, and the honest sum is taken to be as long as the guard's bound.
    """

    name: ClassVar[str] = "energy-aware"
    paper: ClassVar[str] = "ours, docs/threats.md"
    goal: ClassVar[Goal] = "untargeted"
    poison: ClassVar[Poison] = "source"
    form: ClassVar[Literal["boost", "quarter", "energy"]] = "energy"
    colludes: ClassVar[bool] = True

    collude: bool = True
    targeted: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the direction."""
        return self.trained(lab, clients, ascend=not self.targeted)
