"""Tell whether two sources are the same records, and keep one of them closed, without opening any file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sottovoce.core.errors import PrivacyError


@dataclass(frozen=True)
class Origin:
    """Where the records of a source lie: the files that hold them, and the name and file names of a known data set.

    A copy of a user's own file under another name is another origin: `overlap.overlap` reads both, and tells.
    """

    source: str  # as the user wrote it
    files: tuple[Path, ...] = ()
    name: str | None = None  # of a known data set
    forms: frozenset[str] = frozenset()  # names of the files in which a known data set is published

    def same_as(self, other: Origin) -> bool:
        """Tell whether both are one data set: by name, by file (links too), or by the file name of a known set.

        Two known sets can have files of the same names, and are told apart by the files that would be read.
        """
        if self.name is not None and self.name == other.name:
            return True
        if self.name is None and any(file.name in other.forms for file in self.files):
            return True
        if other.name is None and any(file.name in self.forms for file in other.files):
            return True
        return any(_same_file(one, two) for one in self.files for two in other.files)


_CLOSED: Final[ContextVar[Origin | None]] = ContextVar("closed", default=None)


@contextmanager
def closed(origin: Origin) -> Iterator[None]:
    """Keep a source closed: inside, whoever loads it gets a PrivacyError.

    Guarantee: the check comes before any of its files is opened, and holds for every loader of this room.
    """
    before = _CLOSED.set(origin)
    try:
        yield
    finally:
        _CLOSED.reset(before)


def check_open(origin: Origin) -> None:
    """Raise if a source is kept closed."""
    kept = _CLOSED.get()
    if kept is not None and kept.same_as(origin):
        raise PrivacyError(
            f"{origin.source!r} is the clients' own data, which stays closed while settings are chosen: epsilon does "
            "not cover what it would tell; name other data"
        )


def _same_file(one: Path, two: Path) -> bool:
    try:
        return one.samefile(two)
    except OSError:  # one of them does not exist
        return one.absolute() == two.absolute()
