"""Connections to real brokers over TLS: mosquitto (MQTT 5) where it is installed, and amqtt (3.1.1)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sottovoce.core.errors import InputError, RunError
from sottovoce.deployment.certificates import Authority, certificate_pem, key_pem, new_key
from sottovoce.deployment.trial.broker import Broker, mosquitto
from sottovoce.federation.engines.mqtt.carrier import Address, TlsFiles
from sottovoce.federation.engines.mqtt.envelope import topic_from, topic_to
from sottovoce.federation.engines.mqtt.transport import Transport
from tests.deployment.proxy import Proxy
from tests.deployment.wired import until

needs_mosquitto = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
MOST = 1 << 20


@dataclass
class Ear:
    """A listener that writes down what it hears."""

    will: tuple[str, bytes] | None = None
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    def heard(self, topic: str, message: bytes) -> None:
        self.messages.append((topic, message))
        self.came.set()

    def connected(self, connection: int) -> None:
        self.connections.append(connection)

    def lost(self, reason: str) -> None:
        self.losses.append(reason)

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        return self.will and (self.will[0], self.will[1] + b"%d" % connection)


def federation_of(fed: Path) -> str:
    return (fed / "server" / "root.fingerprint").read_text().strip()[:16]


def files(folder: Path) -> TlsFiles:
    return TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")


def transport(
    fed: Path, port: int, who: str, ear: Ear, *, most: int = MOST, given: TlsFiles | None = None
) -> Transport:
    name = federation_of(fed)
    folder = fed / "server" if who == "server" else fed / "nodes" / who
    topic = topic_from(name, "+") if who == "server" else topic_to(name, ["lyon", "oslo", "turin"].index(who))
    address = Address("127.0.0.1", port)
    return Transport(address, ear, name=f"test-{who}", topic=topic, credentials=given or files(folder), most=most)


@pytest.fixture(params=[pytest.param("mosquitto", marks=needs_mosquitto), "amqtt"])
def broker(request: pytest.FixtureRequest, fed: Path) -> Iterator[Broker]:
    with Broker(fed, request.param) as started:
        yield started


def test_messages_come_through_whatever_the_broker_speaks(fed: Path, broker: Broker) -> None:
    name, ear, other = federation_of(fed), Ear(), Ear()
    with transport(fed, broker.port, "server", ear) as server, transport(fed, broker.port, "oslo", other) as node:
        assert server.version == node.version == ("5" if broker.kind == "mosquitto" else "3.1.1")
        node.publish(topic_from(name, 1), b"up" * 1000)
        server.publish(topic_to(name, 1), b"down")
        until(lambda: bool(ear.messages and other.messages))
        assert node.flush(5.0)
        counts = node.counts

    assert ear.messages == [(topic_from(name, 1), b"up" * 1000)]
    assert other.messages == [(topic_to(name, 1), b"down")]
    assert (counts.payload_up, counts.payload_down) == (2000, 4)
    if counts.wire_up is not None:
        assert counts.wire_up > 2000


def test_a_lost_connection_speaks_its_last_will_and_is_made_anew(fed: Path, broker: Broker) -> None:
    name, ear = federation_of(fed), Ear()
    other, proxy = Ear(will=(topic_from(name, 1), b"gone")), Proxy(broker.port)
    with transport(fed, broker.port, "server", ear), transport(fed, proxy.port, "oslo", other) as node:
        first = other.connections[0]
        proxy.cut()
        until(lambda: bool(ear.messages), 20.0)
        until(lambda: len(other.connections) == 2, 20.0)
        node.publish(topic_from(name, 1), b"back")
        until(lambda: len(ear.messages) == 2)
    proxy.close()

    assert ear.messages == [(topic_from(name, 1), b"gone%d" % first), (topic_from(name, 1), b"back")]
    assert other.connections == [first, first + 1] and len(other.losses) == 1


@needs_mosquitto
def test_why_a_broker_does_not_let_us_back_is_told(fed: Path) -> None:
    ear = Ear()
    with Broker(fed, "mosquitto") as broker, transport(fed, broker.port, "oslo", ear):
        broker.stop(kill=True)
        until(lambda: len(ear.losses) >= 2, 20.0)

    assert ear.losses[0].startswith("connection lost")
    assert "nothing listens" in ear.losses[1]


@needs_mosquitto
def test_a_message_that_was_cut_in_the_middle_arrives_whole(fed: Path) -> None:
    name, ear = federation_of(fed), Ear()
    with Broker(fed, "mosquitto") as broker:
        proxy = Proxy(broker.port)
        with transport(fed, broker.port, "server", ear), transport(fed, proxy.port, "oslo", Ear()) as node:
            proxy.left = 100_000
            node.publish(topic_from(name, 1), bytes(300_000))
            until(lambda: bool(ear.messages), 20.0)
        proxy.close()

    assert proxy.cuts == 1
    assert {len(message) for _, message in ear.messages} == {300_000}


def test_a_very_large_message_is_not_read(fed: Path, broker: Broker) -> None:
    name, ear = federation_of(fed), Ear()
    with (
        transport(fed, broker.port, "server", ear, most=1000) as server,
        transport(fed, broker.port, "oslo", Ear()) as node,
    ):
        node.publish(topic_from(name, 1), bytes(200_000))
        assert node.flush(10.0)
        if server.version == "3.1.1":  # 5 tells the broker not to send it
            until(lambda: len(ear.connections) == 2, 20.0)
        node.publish(topic_from(name, 1), b"small")
        until(lambda: bool(ear.messages), 20.0)
        with pytest.raises(RunError, match="too long, at most 1000"):
            server.publish(topic_to(name, 1), bytes(1001))

    assert ear.messages == [(topic_from(name, 1), b"small")]


@needs_mosquitto
def test_each_way_to_be_refused_is_one_sentence(fed: Path, tmp_path: Path) -> None:
    authority = Authority.read((fed / "ca.key").read_bytes(), (fed / "public" / "ca.pem").read_bytes())
    foreign = Authority.make()

    def made(by: Authority, trusted: Path, days: int) -> TlsFiles:
        folder = tmp_path / f"{id(by)}{days}{trusted.parent.parent.name}"
        folder.mkdir()
        key = new_key()
        ends = datetime.now(UTC) + timedelta(days=days)
        (folder / "cert.pem").write_bytes(certificate_pem(by.client("node-1", "oslo", key.public_key(), ends)))
        (folder / "key.pem").write_bytes(key_pem(key))
        return TlsFiles(folder / "cert.pem", folder / "key.pem", trusted)

    ours, theirs = fed / "public" / "ca.pem", tmp_path / "foreign.pem"
    theirs.write_bytes(certificate_pem(foreign.certificate))
    told: dict[str, str] = {}
    with Broker(fed, "mosquitto") as broker:
        for what, given in {
            "unknown": made(foreign, ours, 1),
            "expired": made(authority, ours, -1),
            "impostor": made(authority, theirs, 1),
        }.items():
            with pytest.raises(RunError) as refused:
                transport(fed, broker.port, "oslo", Ear(), given=given).connect()
            told[what] = str(refused.value)
        port = broker.port
    with pytest.raises(RunError) as refused:
        transport(fed, port, "oslo", Ear()).connect()

    assert "it refuses our certificate" in told["unknown"]
    assert "it refuses our certificate: it has expired" in told["expired"]
    assert "its certificate is of an unknown authority" in told["impostor"]
    assert "unreachable: nothing listens" in str(refused.value)
    assert not any("\n" in words for words in told.values())


def test_an_address_is_taken_apart_or_refused() -> None:
    assert Address.parse("broker.example") == ("broker.example", 8883, True)
    assert Address.parse("mqtt://localhost:1884") == ("localhost", 1884, False)
    assert Address.parse("mqtts://127.0.0.1:9").loopback and not Address.parse("10.0.0.1").loopback
    with pytest.raises(InputError, match="without TLS"):
        Address.parse("mqtt://broker.example")
    for wrong in ("http://broker", "mqtts://", "mqtts://a:b", "mqtts://a/topic"):
        with pytest.raises(InputError, match="broker must be an address"):
            Address.parse(wrong)
    with pytest.raises(InputError, match="needs a certificate"):
        Transport(Address("127.0.0.1", 9), Ear(), name="x", topic="t", credentials=None, most=1)


def test_without_paho_the_extra_is_named() -> None:
    code = "import sys; sys.modules['paho'] = None; import sottovoce.federation.engines.mqtt.transport"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'sottovoce[node]'" in ended.stderr.splitlines()[-1]
