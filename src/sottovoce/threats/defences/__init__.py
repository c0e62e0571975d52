"""Defences: estimates of the mean update that some malicious clients cannot move far. They need to see single updates.

A secure sum shows no single update, so none of these can be used with one (docs/defences.md).
"""

from sottovoce.threats.defences.base import Defence
from sottovoce.threats.defences.registry import defence_class, describe, known, make

__all__ = ["Defence", "defence_class", "describe", "known", "make"]
