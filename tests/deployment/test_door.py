"""Strangers at the helper's door hold nobody up."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sottovoce.deployment.helper import listener as module
from sottovoce.deployment.helper.frames import receive, send, tls
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.helper.listener import Door
from sottovoce.deployment.keys import sign_roster
from sottovoce.deployment.party import Identity


@contextmanager
def opened(fed: Path) -> Iterator[tuple[Door, tuple[str, int]]]:
    add_helper(fed, "notary")
    sign_roster(fed)
    leader = Identity.read(fed / "server").fingerprint
    context = tls(Identity.read(fed / "helper"), listens=True)
    with socket.create_server(("127.0.0.1", 0)) as listener, Door(listener, context, leader) as door:
        yield door, listener.getsockname()


def enter(fed: Path, where: tuple[str, int], who: str = "server") -> ssl.SSLSocket:
    plain = socket.create_connection(where, 30)
    return tls(Identity.read(fed / who), listens=False).wrap_socket(plain)


def closed(stranger: socket.socket) -> bool:
    stranger.settimeout(30)
    with suppress(ConnectionError):
        while stranger.recv(100):  # an alert of TLS perhaps
            pass
    return True


def test_the_server_comes_in_past_strangers_who_say_nothing(fed: Path) -> None:
    with opened(fed) as (door, where), ExitStack() as strangers:
        for _ in range(3 * module.KNOCKING):  # more than are let stand there
            strangers.enter_context(socket.create_connection(where, 30))
        with enter(fed, where) as ours, door.welcome(30.0) as theirs:
            send(ours, 1, b"hello")
            assert receive(theirs, 9) == (1, b"hello")


def test_too_many_push_out_the_address_that_knocks_most(fed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOCKING", 4)
    with opened(fed) as (_, where), ExitStack() as strangers:
        quiet = strangers.enter_context(socket.create_connection(where, 30, ("127.0.0.2", 0)))
        many = [strangers.enter_context(socket.create_connection(where, 30)) for _ in range(6)]
        assert all(closed(each) for each in many[:3])
        for each in (quiet, *many[3:]):
            each.settimeout(0.05)
            with pytest.raises(TimeoutError):
                each.recv(1)


def test_who_does_not_finish_is_turned_away_and_who_is_not_the_server_too(
    fed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE", 0.2)
    with opened(fed) as (door, where):
        with socket.create_connection(where, 30) as stranger:
            assert closed(stranger)
        with socket.create_connection(where, 30) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert closed(stranger)
        monkeypatch.setattr(module, "HANDSHAKE", 30.0)
        with enter(fed, where, "nodes/lyon") as node:
            assert closed(node)
        assert door._entered.empty()


def test_a_new_connection_ends_the_one_before_while_its_frame_is_waited_for(fed: Path) -> None:
    with opened(fed) as (door, where), enter(fed, where) as lost, door.welcome(20.0) as before:
        lost.sendall(b"\1\2")  # half a head, and then the server lost its power
        with enter(fed, where) as _, pytest.raises(EOFError):  # a timeout would be another error
            receive(before, 9)
        door.welcome(60.0).close()


def test_what_is_said_of_strangers_does_not_fill_the_log(fed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(fed) as (_, where):
        for _ in range(30):
            with socket.create_connection(where, 30) as stranger:
                stranger.sendall(b"no TLS at all\r\n")
                assert closed(stranger)
    assert 0 < sum("was turned away" in line for line in caplog.messages) <= 10
