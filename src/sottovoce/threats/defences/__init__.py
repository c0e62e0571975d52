"""Defences: estimates of the mean update that some malicious clients cannot move far. They need to see single updates.

A secure sum shows no single update, so none of these can be used with one (docs/defences.md).
"""

from __future__ import annotations

from typing import Any, Final

from sottovoce.core.registry import Registry
from sottovoce.threats.defences.base import Defence

__all__ = ["DEFENCES", "Defence", "known", "make"]

DEFENCES: Final[Registry[type[Defence]]] = Registry(
    "defence",
    "sottovoce.defences",
    {
        "median": "sottovoce.threats.defences.coordinate:Median",
        "trimmed-mean": "sottovoce.threats.defences.coordinate:TrimmedMean",
        "krum": "sottovoce.threats.defences.krum:Krum",
        "multi-krum": "sottovoce.threats.defences.krum:MultiKrum",
        "bulyan": "sottovoce.threats.defences.krum:Bulyan",
        "geometric-median": "sottovoce.threats.defences.geometric:GeometricMedian",
        "norm-bound": "sottovoce.threats.defences.norm_bound:NormBound",
        "fltrust": "sottovoce.threats.defences.trust:FLTrust",
    },
    base=Defence,
    labels=("name", "paper", "assumes", "counts_malicious"),
)


def known() -> list[str]:
    """Return the names of the defences."""
    return list(DEFENCES)


def make(name: str, **keys: Any) -> Defence:
    """Return a defence.

    >>> make("norm-bound", bound=2.0)
    NormBound(bound=2.0)
    >>> make("crum")
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: defence has no 'crum'; did you mean 'krum'?
    """
    defence: Defence = DEFENCES.make(name, **keys)
    return defence
