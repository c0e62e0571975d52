"""Sum by secure aggregation: five phases, and the server sees nothing but the total."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sottovoce.core.errors import SecAggError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.federation.coding import Terms, WordCoding
from sottovoce.federation.round import Conversation, Request, Spend, Total
from sottovoce.secagg import PHASES, Client, KeyedEntropy, Server, Session, verifying_key

__all__ = ["Secure", "announce", "read_announcement", "session_client"]


@dataclass(frozen=True)
class Secure:
    """Run one secure-aggregation session a round, with fresh keys."""

    coding: WordCoding
    fewest: Callable[[int], int]
    streams: Streams
    config_digest: bytes
    length: int
    colluders: int = 0
    neighbours: int = 0

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to the cohort through every phase; too few at any of them end the round with nothing released."""
        total = Total(clip_norm=terms.clip_norm)
        try:
            session = self._session(round_, cohort)
            server = Server(session)
            payloads = dict.fromkeys(cohort, announce(session, down))
            for phase in PHASES:
                if phase == "unmask":
                    spend()  # from here on the sum can be opened
                request = Request(round_, phase, payloads)
                reply = yield request
                total.count(request, reply)
                payloads, rejected = server.collect(phase, reply.payloads)
                total.failures.update(rejected)
            total.senders = len(server.survivors)
            opened = self.coding.open(server.total(), terms, total.senders, round_)
            total.values, total.clip_norm = opened
        except SecAggError as error:
            total.reason = str(error)
        return total

    def _session(self, round_: int, cohort: list[int]) -> Session:
        return Session(
            session_id=self.streams.key(Purpose.MASK, round_, size=16),
            round=round_,
            config_digest=self.config_digest,
            clients=tuple(cohort),
            keys=registered_keys(self.streams, cohort),
            bits=self.coding.bits,
            length=self.length,
            threshold=self.fewest(len(cohort)),
            colluders=self.colluders,
            neighbours=self.neighbours,
        )


def announce(session: Session, down: bytes) -> bytes:
    """Return the first request: the session's terms, and the downlink to train from meanwhile."""
    packed = session.pack()
    return len(packed).to_bytes(4, "little") + packed + down


def read_announcement(payload: bytes, streams: Streams) -> tuple[Session, bytes]:
    """Return the session and the downlink of a first request; keys come from the registry, not from the server."""
    size = int.from_bytes(payload[:4], "little")
    packed, down = payload[4 : 4 + size], payload[4 + size :]
    if len(packed) != size:
        raise SecAggError(f"announcement is truncated: {len(payload)} bytes, its session alone takes {size}")
    return Session.unpack(packed, _Registry(streams)), down


def session_client(session: Session, client: int, streams: Streams) -> Client:
    """Return a client's state machine; in a simulation its secrets come from named streams."""
    entropy = KeyedEntropy(streams.key(Purpose.MASK, session.round, client))
    return Client(session, client, _signing_key(client, streams), entropy)


def registered_keys(streams: Streams, cohort: list[int]) -> dict[int, bytes]:
    """Return the public keys of some clients, as registered before the run."""
    return {client: verifying_key(_signing_key(client, streams)) for client in cohort}


def _signing_key(client: int, streams: Streams) -> bytes:
    return streams.key(Purpose.SETUP, 1, client)


class _Registry(dict[int, bytes]):
    """Look a client's registered key up when it is asked for."""

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self._streams = streams

    def __missing__(self, client: int) -> bytes:
        self[client] = verifying_key(_signing_key(client, self._streams))
        return self[client]

    def get(self, client: int, default: bytes = b"") -> bytes:  # type: ignore[override]
        """Return a key; everybody in a simulation is registered."""
        return self[client]
