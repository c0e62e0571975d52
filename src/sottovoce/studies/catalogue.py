"""All studies whose published numbers can be reproduced: a study is a module with the four functions below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from sottovoce.runs.folder import Record
from sottovoce.studies import published
from sottovoce.studies.mechanisms import published as mechanisms
from sottovoce.studies.published.table import ScaleName, plain_name, unknown

OUT: Final = Path("runs/reproduce")

Observer = Callable[[str, int, Record], None]  # name of a cell in words, its rounds, the record of a round


class Study(Protocol):
    """Published tables that one study makes."""

    def names(self) -> list[str]:
        """Return the names of its tables; no other study has these."""
        ...

    def listing(self, out: Path | str = ...) -> list[dict[str, Any]]:
        """Return what there is and what was run: `name`, `title`, `source`, `kind`, and for each scale its progress."""
        ...

    def reproduce(
        self,
        name: str,
        *,
        scale: ScaleName = ...,
        rows: Sequence[str] = ...,
        seeds: int = ...,
        first_seed: int = ...,
        out: Path | str = ...,
        workers: int | None = ...,
        observe: Observer = ...,
    ) -> dict[str, Any]:
        """Return a table with the keys of docs/reproduce.md."""
        ...

    def printed(self, name: str) -> list[dict[str, Any]]:
        """Return every printed cell of a table: `row`, `column`, `printed`, and `sign` where that is no number."""
        ...


STUDIES: Final[tuple[Study, ...]] = (published, mechanisms)


def all_names() -> list[str]:
    """Return the names of the tables of all studies."""
    return [name for study in STUDIES for name in study.names()]


def study_of(name: str) -> Study:
    """Return the study that makes a table; for an unknown name, name the nearest."""
    plain = plain_name(name)
    for study in STUDIES:
        if plain in study.names():
            return study
    raise unknown(name, all_names())


def listing(out: Path | str = OUT) -> list[dict[str, Any]]:
    """Return what there is and what was run, of all studies."""
    return [entry for study in STUDIES for entry in study.listing(out)]
