"""Real brokers, real TLS: who is let in, and who hears whom. Mosquitto where it is installed; amqtt always."""

from __future__ import annotations

import os
import queue
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError, RunError
from sottovoce.deployment.acl import MESSAGE_LIMIT, from_node, to_node
from sottovoce.deployment.certificates import certificate_pem
from sottovoce.deployment.keys import _key, add_nodes, init_federation, read_authority, sign_roster
from sottovoce.deployment.roster import fingerprint
from sottovoce.deployment.roster_ledger import read_register
from sottovoce.deployment.trial.broker import Broker, Kind, mosquitto

paho = pytest.importorskip("paho.mqtt.client")
pytest.importorskip("amqtt")

needs_mosquitto = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
KINDS = [pytest.param("mosquitto", marks=needs_mosquitto), "amqtt"]
PATIENCE = 10.0


@dataclass
class Place:
    """A federation with its broker, and another federation whose certificates mean nothing here."""

    fed: Path
    other: Path
    broker: Broker

    @property
    def topic(self) -> str:
        return fingerprint(read_register(self.fed).root)[:16]


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("broker")
    for name in ("fed", "other"):
        init_federation(folder / name)
        add_nodes(folder / name, ["lyon", "oslo", "turin"])
        sign_roster(folder / name)
    # A fourth node was revoked before the broker started, and its folder lives on.
    add_nodes(folder / "fed", ["spy"])
    shutil.copytree(folder / "fed" / "nodes" / "spy", folder / "spy")
    sign_roster(folder / "fed", ["spy"])
    with Broker(folder / "fed", request.param, log=folder / "log") as broker:
        yield Place(folder / "fed", folder / "other", broker)
        process = broker.pid
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


class Guest:
    """A client of the broker, whoever it is, that keeps what it hears."""

    def __init__(self, port: int, keys: Path, *, ca: Path | None = None, certificate: bool = True, **more: Any) -> None:
        self.heard: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.granted: queue.Queue[bool] = queue.Queue()
        self.acknowledged: queue.Queue[int] = queue.Queue()
        self.answer: queue.Queue[bool] = queue.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311, **more)
        context = ssl.create_default_context(cafile=str((ca or keys) / "ca.pem"))
        if certificate:
            context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
        self.client.tls_set_context(context)
        self.client.on_connect = lambda *given: self.answer.put(not given[3].is_failure)
        self.client.on_disconnect = lambda *given: self.answer.put(False)
        self.client.on_message = lambda _, __, message: self.heard.put((message.topic, message.payload))
        self.client.on_subscribe = lambda *given: self.granted.put(not given[3][0].is_failure)
        self.client.on_publish = lambda *given: self.acknowledged.put(given[2])
        self.port = port

    def enter(self) -> bool:
        """Say whether the broker let this guest in."""
        try:
            self.client.connect("127.0.0.1", self.port, keepalive=60)
        except (ssl.SSLError, ConnectionError):
            return False
        self.client.loop_start()
        # TLS 1.3: the broker's refusal comes after the handshake, in place of its first answer.
        return self.answer.get(timeout=PATIENCE)

    def subscribe(self, topic: str) -> bool:
        self.client.subscribe(topic, qos=1)
        return self.granted.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes) -> None:
        self.client.publish(topic, payload, qos=1)

    def leave(self) -> None:
        self.client.on_disconnect = None
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def guest(place: Place, keys: Path, **more: Any) -> Iterator[Guest]:
    made = Guest(place.broker.port, keys, **more)
    try:
        yield made
    finally:
        made.leave()


def test_nodes_and_server_reach_each_other(place: Place) -> None:
    with guest(place, place.fed / "nodes" / "oslo") as node, guest(place, place.fed / "server") as server:
        assert node.enter() and server.enter()
        assert node.subscribe(to_node(place.topic, 1)) and server.subscribe(from_node(place.topic, "+"))
        server.publish(to_node(place.topic, 1), b"ask")
        node.publish(from_node(place.topic, 1), b"answer")

        assert node.heard.get(timeout=PATIENCE) == (to_node(place.topic, 1), b"ask")
        assert server.heard.get(timeout=PATIENCE) == (from_node(place.topic, 1), b"answer")


def test_a_guest_without_a_certificate_is_refused(place: Place) -> None:
    with guest(place, place.fed / "server", certificate=False) as stranger:
        assert not stranger.enter()


def test_another_authoritys_certificate_is_refused(place: Place) -> None:
    with guest(place, place.other / "server", ca=place.fed / "public") as stranger:
        assert not stranger.enter()


def test_a_broker_of_another_authority_is_refused_by_the_guest(place: Place) -> None:
    with guest(place, place.fed / "server", ca=place.other / "public") as careful:
        assert not careful.enter()


def test_an_expired_certificate_is_refused(place: Place, tmp_path: Path) -> None:
    old = shutil.copytree(place.fed / "nodes" / "oslo", tmp_path / "old")
    ended = datetime.now(UTC) - timedelta(minutes=5)
    key = _key(read_register(place.fed).named("oslo").certificate)
    (old / "cert.pem").write_bytes(certificate_pem(read_authority(place.fed).client("node-1", "oslo", key, ended)))

    with guest(place, old) as late:
        assert not late.enter()


def test_a_revoked_certificate_is_refused(place: Place) -> None:
    with guest(place, place.fed.parent / "spy") as spy:
        assert not spy.enter()


def test_the_brokers_own_certificate_is_no_guests(place: Place) -> None:
    with guest(place, place.fed / "broker", ca=place.fed / "public") as broker:
        assert not broker.enter(), "it is good for serving only"


def test_a_node_hears_nothing_that_is_for_another(place: Place) -> None:
    with guest(place, place.fed / "nodes" / "lyon") as spy, guest(place, place.fed / "server") as server:
        assert spy.enter() and server.enter()
        wanted = [
            to_node(place.topic, 1),
            to_node(place.topic, "+"),
            from_node(place.topic, 1),
            "sottovoce/#",
            "#",
            "+/+/+/+",
        ]
        for topic in wanted:
            spy.subscribe(topic)  # Mosquitto may grant what it will not deliver
        assert spy.subscribe(to_node(place.topic, 0))
        for id_ in (1, 2):
            server.publish(to_node(place.topic, id_), b"secret")
        server.publish(to_node(place.topic, 0), b"end")

        assert spy.heard.get(timeout=PATIENCE) == (to_node(place.topic, 0), b"end")
        assert spy.heard.empty()


def test_a_node_cannot_speak_for_another_or_for_the_server(place: Place) -> None:
    with (
        guest(place, place.fed / "nodes" / "lyon") as liar,
        guest(place, place.fed / "nodes" / "oslo") as node,
        guest(place, place.fed / "server") as server,
    ):
        assert liar.enter() and node.enter() and server.enter()
        assert node.subscribe(to_node(place.topic, 1)) and server.subscribe(from_node(place.topic, "+"))
        for topic in (to_node(place.topic, 1), from_node(place.topic, 1)):
            liar.publish(topic, b"lie")
        liar.publish(from_node(place.topic, 0), b"end")
        assert server.heard.get(timeout=PATIENCE) == (from_node(place.topic, 0), b"end")
        server.publish(to_node(place.topic, 1), b"truth")

        assert node.heard.get(timeout=PATIENCE) == (to_node(place.topic, 1), b"truth")
        assert server.heard.empty() and node.heard.empty()


def test_a_name_and_a_client_id_that_somebody_writes_mean_nothing(place: Place) -> None:
    with (
        guest(place, place.fed / "nodes" / "oslo", client_id="node-1") as node,
        guest(place, place.fed / "nodes" / "lyon", client_id="node-1", clean_session=False) as thief,
        guest(place, place.fed / "server") as server,
    ):
        thief.client.username_pw_set("node-1", "x")
        assert node.enter() and node.subscribe(to_node(place.topic, 1))
        assert thief.enter() and server.enter()
        thief.subscribe(to_node(place.topic, 1))
        assert thief.subscribe(to_node(place.topic, 0))
        server.publish(to_node(place.topic, 1), b"for node 1")
        server.publish(to_node(place.topic, 0), b"for node 0")

        assert node.heard.get(timeout=PATIENCE)[1] == b"for node 1", "it was not pushed off"
        assert thief.heard.get(timeout=PATIENCE)[1] == b"for node 0"


def test_a_last_will_reaches_the_server_and_nobody_leaves_one_for_another(place: Place) -> None:
    with guest(place, place.fed / "server") as server:
        assert server.enter() and server.subscribe(from_node(place.topic, "+"))
        for name, id_ in (("lyon", 1), ("oslo", 1)):  # the first has no right to, the second does
            node = Guest(place.broker.port, place.fed / "nodes" / name)
            node.client.will_set(from_node(place.topic, id_), f"gone {name}".encode(), qos=1)
            node.enter()
            node.client.on_disconnect = None
            node.client.loop_stop()
            if node.client.socket() is not None:
                node.client.socket().close()  # no farewell: as when a machine loses power

        assert server.heard.get(timeout=PATIENCE) == (from_node(place.topic, 1), b"gone oslo")


def test_tls_below_1_2_is_refused(place: Place) -> None:
    old = Guest(place.broker.port, place.fed / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_verify_locations(place.fed / "public" / "ca.pem")
    context.load_cert_chain(place.fed / "server" / "cert.pem", place.fed / "server" / "key.pem")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    old.client._ssl_context = context

    assert not old.enter()


@needs_mosquitto
def test_mosquitto_cuts_off_whoever_sends_a_message_above_the_limit(fed: Path, tmp_path: Path) -> None:
    with (
        Broker(fed, "mosquitto", log=tmp_path / "log") as broker,
        guest(Place(fed, fed, broker), fed / "server") as server,
    ):
        assert server.enter()
        server.publish(to_node("any", 0), bytes(MESSAGE_LIMIT + 2**17))

        assert server.answer.get(timeout=PATIENCE) is False
        assert server.acknowledged.empty()


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_comes_back_at_its_port_and_leaves_no_process(fed: Path, tmp_path: Path, kind: Kind) -> None:
    broker = Broker(fed, kind, log=tmp_path / "log")
    with broker:
        first, port = broker.pid, broker.port
        broker.stop(kill=True)
        broker.start()
        second = broker.pid
        with guest(Place(fed, fed, broker), fed / "server") as server:
            assert server.enter()

    assert broker.port == port and (tmp_path / "log").stat().st_size
    assert {path.name for path in (fed / "broker").iterdir()} == {"cert.pem", "key.pem"}, "no copy of a key is left"
    for process in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_broker_for_another_host_or_at_a_taken_port_says_so(fed: Path, tmp_path: Path) -> None:
    init_federation(tmp_path / "far", broker="broker.example")
    with pytest.raises(InputError, match=r"made for a broker on broker\.example"):
        Broker(tmp_path / "far")
    with pytest.raises(InputError, match="is no federation's folder"):
        Broker(tmp_path)
    (fed / "broker" / "key.pem").write_text("damaged")
    with pytest.raises(RunError, match="ended at once, with code"), Broker(fed, log=tmp_path / "log"):
        pass
    assert {path.name for path in (fed / "broker").iterdir()} == {"cert.pem", "key.pem"}
