"""Attacks that teach a model one mistake: records of a source class are to be taken for the target class.

Malicious clients train as everybody does, on records whose labels they changed; which records, and whether anybody else
has such records, is what tells these attacks apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from sottovoce.core.vectors import Vector
from sottovoce.threats.attack import Attack, Goal, Lab, Poison

__all__ = ["EdgeCaseBackdoor", "InBackdoor", "LabelFlip", "ModelReplacement", "OutBackdoor"]


@final
@dataclass(frozen=True, kw_only=True)
class InBackdoor(Attack):
    """Every record of the source class relabelled as the target class, although honest clients have that class too.

    M train on the union of their records with y = source changed to target; all send boost * u. Left out, the boost is
    the papers': 7 up to 10 % malicious clients, 3 up to 20 % (4 on CIFAR-10), then 1 (2 on CIFAR-10).
    """

    name: ClassVar[str] = "in-backdoor"
    paper: ClassVar[str] = "thesis, 6.1.2; Bhagoji et al. 2019"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "source"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the relabelled records gives."""
        return self.trained(lab, clients)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return the papers' boost for a share of malicious clients."""
        few, some, many = (7.0, 4.0, 2.0) if data == "cifar10" else (7.0, 3.0, 1.0)
        return few if fraction <= 0.1 else some if fraction <= 0.2 else many


@final
@dataclass(frozen=True, kw_only=True)
class OutBackdoor(Attack):
    """A class that no honest client has, labelled as the target class.

    Honest clients hold no record of the source class; M keep theirs, labelled as the target, train on the union and
    send u, not boosted. Accuracy is measured without the source class, success on it alone.
    """

    name: ClassVar[str] = "out-backdoor"
    paper: ClassVar[str] = "thesis, 6.1.2; Bhagoji et al. 2019"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "withheld"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training with the added class gives."""
        return self.trained(lab, clients)


@final
@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Training on wrong labels, each client for itself: the clumsy attack that needs no skill.

    y = source becomes target; without a source every label y becomes classes - 1 - y. Not boosted.
    """

    name: ClassVar[str] = "label-flip"
    paper: ClassVar[str] = "thesis, 3.3.2; Tolpegin et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "all"
    colludes: ClassVar[bool] = False

    collude: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the flipped labels gives."""
        return self.trained(lab, clients)


@final
@dataclass(frozen=True, kw_only=True)
class ModelReplacement(Attack):
    """A backdoored update, scaled so that the average of the round becomes the attackers' own model.

    boost * u with boost = n / m: if the honest updates cancel out, w + sum / n is the model that M trained, on the
    union of their records with the source class relabelled.
    """

    name: ClassVar[str] = "model-replacement"
    paper: ClassVar[str] = "Bagdasaryan et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "source"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the relabelled records gives."""
        return self.trained(lab, clients)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return n / m."""
        return max(1.0, cohort / max(malicious, 1))


@final
@dataclass(frozen=True, kw_only=True)
class EdgeCaseBackdoor(Attack):
    """The mistake taught on unusual records only, which honest clients do not have and accuracy hardly shows.

    The tail of the source class (its `edge` share of records, 5 %, furthest from the class's mean) is labelled as the
    target; every malicious client has all of it beside its own records, honest clients have none of it. Not boosted.
    """

    name: ClassVar[str] = "edge-case-backdoor"
    paper: ClassVar[str] = "Wang et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "tail"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training with the tail gives."""
        return self.trained(lab, clients)
