"""An engine around an engine: what those that change requests or replies on the way have in common."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sottovoce.federation.engine import Engine, Enrolment


@dataclass
class Around:
    """An engine that hands everything on to another one; a subclass says what it does to `send`."""

    engine: Engine

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every client the set-up message."""
        self.engine.enrol(enrolment)

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()

    def __enter__(self) -> Self:
        self.engine.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.__exit__(kind, error, trace)
