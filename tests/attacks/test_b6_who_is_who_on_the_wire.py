"""B6: whoever is in the federation is not thereby the broker, the helper or the roster; secrets are secret at once."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce.core.errors import InputError, RunError, SecAggError
from sottovoce.core.streams import Purpose, Secrets
from sottovoce.deployment.helper.frames import HelperAddress, tls
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.party import Identity, read_signing_key
from sottovoce.deployment.server.helper_link import HelperLink
from sottovoce.federation.engines.mqtt.carrier import TlsFiles
from sottovoce.federation.engines.mqtt.transport import tls_context
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.secagg import RoundMark


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    folder = tmp_path / "fed"
    init_federation(folder)
    add_nodes(folder, ["lyon", "oslo"])
    add_helper(folder, "notary")
    sign_roster(folder)
    return folder


@contextmanager
def impostor(certificate: Path, key: Path, *, most: ssl.TLSVersion | None = None) -> Iterator[tuple[str, int]]:
    """Answer TLS with a certificate of the federation, and say nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate), str(key))
    if most is not None:
        context.maximum_version = most
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with suppress(OSError), plain:
                        plain.settimeout(10)
                        with context.wrap_socket(plain, server_side=True) as connection:
                            connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


def link(fed: Path, where: tuple[str, int]) -> HelperLink:
    identity = Identity.read(fed / "server")
    return HelperLink(HelperAddress(*where), identity, identity.read_roster(), "0" * 64, simulated=True)


def test_whoever_answers_with_another_certificate_of_the_federation_is_not_the_helper(fed: Path) -> None:
    refused = pytest.raises((RunError, SecAggError), match="not the helper of the roster")
    with impostor(fed / "broker" / "cert.pem", fed / "broker" / "key.pem") as where, refused:
        link(fed, where).reach()


def test_a_server_speaks_with_no_helper_on_tls_1_2(fed: Path) -> None:
    files = fed / "helper" / "cert.pem", fed / "helper" / "key.pem"
    refused = pytest.raises((RunError, SecAggError), match=r"protocol version|PROTOCOL_VERSION|alert")
    with impostor(*files, most=ssl.TLSVersion.TLSv1_2) as where, refused:
        link(fed, where).reach()


def test_a_helper_speaks_with_nobody_on_tls_1_2(fed: Path) -> None:
    listening = tls(Identity.read(fed / "helper"), listens=True)
    calling = tls(Identity.read(fed / "server"), listens=False)
    calling.minimum_version = ssl.TLSVersion.TLSv1_2
    calling.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        handshake(calling, listening)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, hostname: str | None = None) -> None:
    """Shake hands in memory; raise what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=hostname)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[int] = set()
    for _ in range(10):
        for place, side in enumerate((ours, theirs)):
            try:
                side.do_handshake()
                done.add(place)
            except ssl.SSLWantReadError:
                pass
        if done == {0, 1}:
            return
    raise AssertionError("the handshake did not end")


def presenting(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate), str(key))
    return context


def guest(fed: Path) -> ssl.SSLContext:
    home = fed / "nodes" / "lyon"
    return tls_context(TlsFiles(home / "cert.pem", home / "key.pem", home / "ca.pem"))


def test_a_brokers_certificate_holds_for_its_own_host_alone(fed: Path) -> None:
    broker = presenting(fed / "broker" / "cert.pem", fed / "broker" / "key.pem")
    handshake(guest(fed), broker, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        handshake(guest(fed), broker, "broker.example")


def test_a_helpers_certificate_is_no_brokers(fed: Path) -> None:
    helper = presenting(fed / "helper" / "cert.pem", fed / "helper" / "key.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(guest(fed), helper, "localhost")


def test_a_nodes_certificate_is_for_callers_whatever_host_is_asked_for(fed: Path) -> None:
    home = fed / "nodes" / "oslo"
    context = guest(fed)
    context.check_hostname = False  # the use of the key is refused even where no name is compared
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(context, presenting(home / "cert.pem", home / "key.pem"))


@pytest.mark.parametrize("whose", ["nodes/lyon", "server", "helper"])
def test_another_roster_of_the_same_revision_is_refused(whose: str, fed: Path) -> None:
    """Whoever holds the root key must not be able to show two machines two rosters of one number."""
    home = fed / whose
    used = Identity.read(home).read_roster()
    other = replace(used, entries=(used.entries[0], replace(used.entries[1], name="bergen")))
    assert other.revision == used.revision
    (home / "roster.json").write_bytes(other.signed(read_signing_key(fed / "root.key")))
    with pytest.raises(InputError, match="another of revision"):
        Identity.read(home).read_roster()


def test_a_secret_is_readable_by_its_owner_alone_from_the_moment_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is narrowed after it was made can be opened in between; nothing may need narrowing."""
    for narrow in ("fchmod", "chmod"):
        monkeypatch.setattr(os, narrow, lambda *_, **__: None)
    before = os.umask(0)
    try:
        init_federation(tmp_path / "fed")
        add_nodes(tmp_path / "fed", ["lyon"])
        add_helper(tmp_path / "fed", "notary")
        sign_roster(tmp_path / "fed")
    finally:
        os.umask(before)
    secrets = [path for path in (tmp_path / "fed").rglob("*") if path.suffix == ".key" or path.name == "key.pem"]
    assert len(secrets) == 10
    assert {oct(path.stat().st_mode & 0o777) for path in secrets} == {"0o600"}


def test_two_processes_never_mask_one_round_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the mark before either writes it, unless a lock is held in between."""
    checking, both = RoundMark.check, threading.Barrier(2)
    passed: list[int] = []

    def slow(self: RoundMark, round_: int) -> None:
        checking(self, round_)
        passed.append(round_)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # returns early when the other one is here too, which a lock forbids

    monkeypatch.setattr(RoundMark, "check", slow)

    def mask(mark: RoundMark) -> None:
        with suppress(SecAggError, OSError):
            mark.before_mask(4)

    threads = [threading.Thread(target=mask, args=(RoundMark(tmp_path / "mark"),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == [4]


def test_a_process_draws_whole_keys_from_the_operating_system() -> None:
    """16 bits filled up with a constant, or hashed, would repeat among 4,000 processes.

    A birthday among 2^16 keys stays away with probability 1e-53, and one among 2^256 comes with 1e-70.
    """
    streams = [Secrets(7).server.key(Purpose.MASK, 1) for _ in range(4000)]
    assert len(set(streams)) == len(streams)
    keys = [Randomness.system().key for _ in range(4000)]
    assert len(set(keys)) == len(keys)
    for place in range(len(keys[0])):
        assert len({key[place] for key in keys}) > 128


def test_what_is_told_as_a_secret_is_in_no_words() -> None:
    secrets = Secrets(7)
    assert secrets._key.hex() not in repr(secrets) and repr(secrets._key) not in repr(secrets)
