"""Drive a server through its phases: one message a client and phase, checked whole, and a quorum at every end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.core.wire import Buffer
from sottovoce.secagg import messages
from sottovoce.secagg.session import Session

__all__ = ["PhasedServer"]


class PhasedServer(ABC):
    """The server of one session; call `collect` once a phase, or `accept` for each message and then `close`."""

    phases: ClassVar[tuple[str, ...]]

    def __init__(self, session: Session) -> None:
        self.session = session
        self._phase: str | None = self.phases[0]
        self._asked: frozenset[int] = frozenset(range(len(session.clients)))

    @property
    def phase(self) -> str | None:
        """Name the phase that is open; None after the last, or after an abort."""
        return self._phase

    def collect(self, phase: str, replies: Mapping[int, Buffer]) -> tuple[dict[int, bytes], dict[int, str]]:
        """Take a whole phase; return the next requests, and why messages were refused."""
        self._expect(phase)
        rejected = {}
        for client, message in replies.items():
            try:
                self.accept(phase, client, message)
            except (SecAggError, WireError) as error:
                rejected[client] = str(error)
        return self.close(phase), rejected

    def accept(self, phase: str, client: int, message: Buffer) -> None:
        """Take one message, or raise and change nothing."""
        self._expect(phase)
        place = self.session.position(client)
        if place not in self._asked:
            raise SecAggError(f"client {client}: was not asked in this phase, or has already answered")
        self._take(phase, place, client, message)
        self._asked -= {place}

    def close(self, phase: str) -> dict[int, bytes]:
        """End a phase: return the next requests, or abort the session when too few clients remain."""
        self._expect(phase)
        try:
            bodies = self._end(phase)
        except SecAggError:
            self._phase, self._asked = None, frozenset()
            self._forget()
            raise
        index = self.phases.index(phase) + 1
        self._phase = self.phases[index] if index < len(self.phases) else None
        self._asked = frozenset(bodies)
        name, clients = messages.PHASES[(messages.PHASES.index(phase) + 1) % len(messages.PHASES)], self.session.clients
        return {
            clients[place]: messages.seal_request(self.session, name, clients[place], body)
            for place, body in bodies.items()
        }

    @abstractmethod
    def _take(self, phase: str, place: int, client: int, message: Buffer) -> None:
        """Check a message whole, then keep it."""

    @abstractmethod
    def _end(self, phase: str) -> dict[int, bytes]:
        """Return the bodies of the next requests, by place; raise when too few clients remain."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what could open a single vector."""

    def _peers(self, place: int, among: Iterable[int]) -> list[int]:
        return sorted(self.session.around(place).intersection(among))

    def _ids(self, places: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.session.clients[place] for place in sorted(places))

    def _expect(self, phase: str) -> None:
        if self._phase != phase:
            raise SecAggError(f"{phase} is not the open phase, {self._phase or 'none'} is")
