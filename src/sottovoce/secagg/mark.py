"""Remember the highest round that a client has masked, so that no round is ever masked twice.

Two vectors of one client under the same masks show their difference, and two sums of one round that differ in one
client show that client's words. A client that was restored from a backup, or started anew, knows of neither; so the
number of the round is on disk before its masked vector may leave. It is a number and no secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from sottovoce.core.errors import SecAggError
from sottovoce.core.files import replace_file
from sottovoce.core.lock import hold


@final
class RoundMark:
    """The highest round that a client has masked, in a file of one run, or in memory for a simulation.

    Guarantee: `before_mask` lets each round pass at most once and only in rising order, also across crashes, backups
    and processes that share the file; it must not be in the backup that the client's state is restored from.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._highest = -1

    @property
    def highest(self) -> int:
        """Return the highest round that was masked; -1 before the first."""
        if self._path is None:
            return self._highest
        try:
            text = self._path.read_text(encoding="ascii")
        except FileNotFoundError:
            return -1
        except (OSError, UnicodeDecodeError) as error:
            raise SecAggError(f"{self._path}: the mark of the highest masked round cannot be read: {error}") from error
        if not text.endswith("\n") or not text[:-1].isdecimal():
            raise SecAggError(f"{self._path}: the mark of the highest masked round is damaged; restore or enrol anew")
        return int(text)

    def check(self, round_: int) -> None:
        """Raise unless `round_` is above every round that was masked."""
        if round_ <= (highest := self.highest):
            raise SecAggError(f"round {round_} is refused: round {highest} was masked, and rounds only rise")

    def before_mask(self, round_: int) -> None:
        """Raise unless `round_` was never masked; then remember it, on disk if there is a file, before returning."""
        if self._path is None:
            self.check(round_)
            self._highest = round_
            return
        with _locked(self._path.with_name(self._path.name + ".lock")):
            self.check(round_)
            replace_file(self._path, f"{round_}\n")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        hold(file.fileno(), wait=True)
        yield
