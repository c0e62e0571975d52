"""Be the helper of a federation: count ballots with its training server, and keep an account of one's own (`desk`)."""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, RunError, SottovoceError
from sottovoce.deployment.helper.frames import KINDS, HelperAddress, receive, refusal_of, send, tls
from sottovoce.deployment.helper.listener import Door
from sottovoce.deployment.helper.service import Desk, open_desk

__all__ = ["Desk", "count", "open_desk"]

_FRAME: Final = 120.0  # seconds that a piece of a frame may take

log = logging.getLogger(__name__)


def count(
    experiment: Experiment,
    keys: Path,
    listen: str,
    state: Path | None = None,
    *,
    simulated: bool = False,
    ready: Callable[[HelperAddress], None] = lambda place: None,
) -> tuple[str, int]:
    """Answer the training server of the roster until Ctrl-C; `ready` hears where it listens.

    Returns the run that the account is of, in hex, and the rounds that it was charged.
    """
    place = HelperAddress.parse(listen)
    if simulated and not place.loopback:
        raise InputError(
            f"--simulate-randomness gives everybody the same secrets and is for tests on one machine; {place} is open "
            "to others"
        )
    with _bound(place) as listener:  # before anything is written
        desk, identity, roster = open_desk(experiment, keys, state, simulated=simulated)
        with desk:
            context, leader = tls(identity, listens=True), "" if roster.helper is None else roster.helper.leader
            log.info("%s", desk.story)
            _listen(listener, place)  # only now: whoever calls while the plan is solved is told that nobody answers
            with Door(listener, context, leader) as door:
                ready(HelperAddress(place.host, listener.getsockname()[1]))
                with suppress(KeyboardInterrupt):
                    _answer_all(desk, door)
            return desk.run, desk.account.spent


def _bound(place: HelperAddress) -> socket.socket:
    """Return a socket that holds the address, and refuses whoever calls."""
    bound = socket.socket(socket.AF_INET6 if ":" in place.host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(place)
    except OSError as error:
        bound.close()
        raise _taken(place, error) from None
    return bound


def _listen(bound: socket.socket, place: HelperAddress) -> None:
    try:
        bound.listen()
    except OSError as error:  # another process began to listen meanwhile
        raise _taken(place, error) from None


def _taken(place: HelperAddress, error: OSError) -> InputError:
    why = str(error.strerror).split(" (")[0]  # Python adds what was tried
    return InputError(f"--listen {place} cannot be listened to: {why}; give another")


def _answer_all(desk: Desk, door: Door) -> None:
    """Serve one connection at a time; a new one of the server's takes the place of the one before, which it lost."""
    connection: ssl.SSLSocket | None = None
    try:
        while True:
            waiting: list[Door | ssl.SSLSocket] = [door] if connection is None else [door, connection]
            pending = connection is not None and connection.pending()
            if not pending and door in select.select(waiting, [], [])[0]:
                if connection is not None:
                    connection.close()
                connection = door.welcome(_FRAME)
                desk.connected()
            elif connection is not None and not _answer(desk, connection):
                connection.close()
                connection = None
    finally:
        if connection is not None:
            connection.close()


def _answer(desk: Desk, connection: ssl.SSLSocket) -> bool:
    """Answer one request; False if the connection is over."""
    try:
        code, payload = receive(connection, desk.most)
    except (EOFError, OSError):
        return False
    except RunError as error:
        log.warning("the connection was ended: %s", error)
        return False
    if code >= len(KINDS):
        return False
    try:
        reply: tuple[int, bytes] = (0, desk.answer(KINDS[code], payload))
    except SottovoceError as error:
        if desk.account.broken or type(error) is RunError:  # its own trouble, and no refusal: it cannot go on
            raise
        log.warning("%s: refused: %s", KINDS[code], error)
        reply = refusal_of(error)
    try:
        send(connection, *reply)
    except OSError:
        return False
    return True
