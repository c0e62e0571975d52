"""Simulated dropout around any engine: clients that hear a round's opening and then leave."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sottovoce.core.streams import Streams
from sottovoce.devices import Dropout
from sottovoce.federation.engine import Engine, Enrolment, Reply, Request

__all__ = ["Leaving"]


@dataclass(frozen=True)
class Leaving:
    """An engine whose clients leave before a phase, as `dropout` says and the world's streams decide."""

    engine: Engine
    dropout: Dropout
    streams: Streams

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every client the set-up message."""
        self.engine.enrol(enrolment)

    def send(self, request: Request) -> Reply:
        """Deliver a request; who is gone by then does not answer, but has heard a round's opening."""
        left = self._left(request)
        if not left:
            return self.engine.send(request)
        if request.opening:
            request = request._replace(silent=request.silent | left.keys())
        else:
            request = request._replace(payloads={c: p for c, p in request.payloads.items() if c not in left})
        reply = self.engine.send(request)
        return reply._replace(left={**reply.left, **left})

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

    def _left(self, request: Request) -> dict[int, str]:
        """Return the clients that are gone by this phase, and since when."""
        if request.waits_for_all or not self.dropout.possible:
            return {}
        phases = {c: self.dropout.left(request.round, c, request.phase, self.streams) for c in request.payloads}
        return {client: f"left before {phase}" for client, phase in phases.items() if phase is not None}
