"""Simulated dropout around any engine: clients that hear a round's opening and then leave."""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.core.streams import Streams
from sottovoce.devices import Dropout
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.wrappers.base import Around


@dataclass
class Leaving(Around):
    """An engine whose clients leave before a phase, as `dropout` says and the world's streams decide."""

    dropout: Dropout
    streams: Streams

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

    def _left(self, request: Request) -> dict[int, str]:
        """Return the clients that are gone by this phase, and since when."""
        if request.waits_for_all or not self.dropout.possible:
            return {}
        phases = {c: self.dropout.left(request.round, c, request.phase, self.streams) for c in request.payloads}
        return {client: f"left before {phase}" for client, phase in phases.items() if phase is not None}
