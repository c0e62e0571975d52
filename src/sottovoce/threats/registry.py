"""Find attacks by name."""

from __future__ import annotations

from typing import Final

from sottovoce.core.validate import one_of
from sottovoce.threats.attack import Attack
from sottovoce.threats.backdoors import EdgeCaseBackdoor, InBackdoor, LabelFlip, ModelReplacement, OutBackdoor
from sottovoce.threats.modulus import EnergyAware, QuarterModulus
from sottovoce.threats.untargeted import GradientAscent, InnerProduct, LittleIsEnough, RandomUpdate, SignInversion

__all__ = ["ATTACKS", "attack_class"]

ATTACKS: Final[dict[str, type[Attack]]] = {
    kind.name: kind
    for kind in (
        *(RandomUpdate, GradientAscent, SignInversion),
        *(InBackdoor, OutBackdoor, LabelFlip, ModelReplacement),
        *(LittleIsEnough, InnerProduct, EdgeCaseBackdoor),
        *(QuarterModulus, EnergyAware),
    )
}


def attack_class(name: str) -> type[Attack]:
    """Return the class of an attack by its name.

    >>> attack_class("out-backdor")
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: attack has no 'out-backdor'; did you mean 'out-backdoor'?
    """
    one_of("attack", name, ATTACKS)
    return ATTACKS[name]
