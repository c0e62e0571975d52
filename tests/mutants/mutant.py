"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Edit", "Mutant", "of"]


class Edit(NamedTuple):
    """One text of a file under src/sottovoce, and what takes its place."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A way to break the guarantee, and the tests that must see it."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def of(name: str, breaks: str, *edits: tuple[str, str, str], tests: str) -> Mutant:
    """Return a mutant; `tests` is a pytest selection."""
    return Mutant(name, breaks, tuple(Edit(*edit) for edit in edits), tuple(tests.split()))
