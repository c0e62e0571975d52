"""A simulated clock around any engine: clients whose devices are too slow, away or cut off drop out of the round."""

from __future__ import annotations

from dataclasses import dataclass, field

from sottovoce.devices import Clock, RoundClock, RoundTime
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.wrappers.base import Around


@dataclass
class Timed(Around):
    """An engine on the clients' own devices; the host's clock has no part in it."""

    clock: Clock
    _round: int = field(default=-1, init=False)
    _playing: RoundClock | None = field(default=None, init=False)

    def send(self, request: Request) -> Reply:
        """Deliver a request; who cannot answer in time does not, but has heard a round's opening."""
        if request.round != self._round or self._playing is None:
            self._round, self._playing = request.round, self.clock.begin(request.round, sorted(request.payloads))
        asked = {client: len(payload) for client, payload in request.payloads.items()}
        lost = {} if request.waits_for_all else self._playing.lost(request.phase, asked)
        sent = request
        if lost and request.opening:
            sent = request._replace(silent=request.silent | lost.keys())
        elif lost:
            sent = request._replace(payloads={c: p for c, p in request.payloads.items() if c not in lost})
        reply = self.engine.send(sent)
        self._playing.passed(request.phase, asked, reply.sizes)
        if not lost:
            return reply
        words = {client: f"lost before {request.phase}: {cause}" for client, cause in lost.items()}
        return reply._replace(left={**reply.left, **words})

    def told(self, round_: int) -> RoundTime:
        """Return what a round took; nothing at all if nobody was asked."""
        if self._playing is None or self._round != round_:
            return RoundTime(0.0, None, {})
        return self._playing.end()
