"""Whose records a value was computed from: the first half of the privacy boundary.

A private run protects the records of its clients. What depends on them may leave only as a noisy sum that the plan
charges, or under an `unsafe_` key that is printed. What comes from a public source may leave as it is. So records say
where they come from, and whoever publishes a number asks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

OF_CLIENTS: Final = {"of_clients": True}  # `extra` of a log line that follows from records of clients


@dataclass(frozen=True)
class Public:
    """Records that no unit of the run owns, and the source that makes them public: a data set, file or declaration."""

    source: str


@dataclass(frozen=True)
class Owned:
    """Records that belong to the units whose privacy is promised."""

    by: str = "clients"


Provenance: TypeAlias = Public | Owned
