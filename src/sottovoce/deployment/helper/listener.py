"""The helper's door: it lets the training server in, and strangers hold nobody up.

A thread of its own shakes hands with all who knock, at once, without waiting for any of them. Whoever does not finish
in `HANDSHAKE` seconds is turned away. When more than `KNOCKING` are there, one of the address that knocks most is: so
whoever knocks often pushes out nobody but himself, unless he has many addresses.
"""

from __future__ import annotations

import logging
import queue
import selectors
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from sottovoce.deployment.helper.frames import peer_print

HANDSHAKE: Final = 5.0  # seconds
KNOCKING: Final = 64  # connections that shake hands at once
_COMPLAINTS: Final = 10  # lines of the log a minute: whoever knocks does not fill the disk

log = logging.getLogger(__name__)


class _Knock(NamedTuple):
    until: float
    address: str


class Door:
    """Who has come in: whoever speaks TLS with the one certificate that the roster names; `select` takes it.

    Guarantee: a stranger costs the computing of a handshake and a place among `KNOCKING`; nobody waits for him.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext, leader: str) -> None:
        self._listener, self._context, self._leader = listener, context, leader
        self._inside: socket.socket | None = None
        self._entered: queue.SimpleQueue[ssl.SSLSocket] = queue.SimpleQueue()
        self._bell, self._ringing = socket.socketpair()
        self._stop, self._stopping = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._knocking: dict[socket.socket, _Knock] = {}  # in the order of knocking
        self._complaints: list[float] = []
        self._thread = threading.Thread(target=self._watch, name="door", daemon=True)

    def __enter__(self) -> Self:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.send(b".")
        self._thread.join()
        for each in (*self._knocking, self._bell, self._ringing, self._stop, self._stopping):
            each.close()
        with suppress(queue.Empty):
            while True:
                self._entered.get_nowait().close()
        self._selector.close()

    def fileno(self) -> int:
        """Return what is readable when somebody has come in."""
        return self._bell.fileno()

    def welcome(self, patience: float) -> ssl.SSLSocket:
        """Return the connection that has come in; a read or write on it takes at most `patience` seconds."""
        self._bell.recv(1)
        connection = self._entered.get()
        connection.settimeout(patience)
        self._inside = connection
        return connection

    def _watch(self) -> None:
        while True:
            first = next(iter(self._knocking.values()), None)
            wait = None if first is None else max(0.0, first.until - time.monotonic())
            for key, _ in self._selector.select(wait):
                if key.fileobj is self._stop:
                    return
                if key.fileobj is self._listener:
                    self._knock()
                else:
                    self._shake(key.fileobj)
            now = time.monotonic()
            for late in [each for each, knock in self._knocking.items() if knock.until <= now]:
                self._turn_away(late, "it did not finish its greeting")

    def _knock(self) -> None:
        try:
            plain, _ = self._listener.accept()
        except OSError as error:  # gone again, or too many files are open
            self._complain("somebody", error)
            time.sleep(0.01)
            return
        plain.setblocking(False)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            self._complain(_whose(plain), error)
            plain.close()
            return
        self._knocking[connection] = _Knock(time.monotonic() + HANDSHAKE, _whose(connection))
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._knocking) > KNOCKING:
            most = Counter(knock.address for knock in self._knocking.values()).most_common(1)[0][0]
            oldest = next(each for each, knock in self._knocking.items() if knock.address == most)
            self._turn_away(oldest, "too many knock at once")

    def _shake(self, connection: Any) -> None:
        if connection not in self._knocking:  # turned away in this very turn
            return
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(connection, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._selector.modify(connection, selectors.EVENT_WRITE)
        except (OSError, ValueError) as error:
            self._turn_away(connection, error)
        else:
            if peer_print(connection) != self._leader:
                self._turn_away(connection, "it is not the training server of the roster")
                return
            self._let_go(connection)
            self._hang_up()
            self._entered.put(connection)
            self._ringing.send(b".")

    def _hang_up(self) -> None:
        """End the connection that the server must have lost, also while a half request of it is waited for."""
        if self._inside is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._inside, socket.SHUT_RDWR)

    def _turn_away(self, connection: Any, why: object) -> None:
        self._complain(_whose(connection), why)
        self._let_go(connection)
        connection.close()

    def _let_go(self, connection: Any) -> None:
        self._selector.unregister(connection)
        del self._knocking[connection]

    def _complain(self, whose: str, why: object) -> None:
        now = time.monotonic()
        self._complaints = [each for each in self._complaints if each > now - 60.0]
        if len(self._complaints) < _COMPLAINTS:
            self._complaints.append(now)
            log.warning("%s was turned away: %s", whose, why)


def _whose(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return "somebody"
