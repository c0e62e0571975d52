"""B3: one registered node filled the memory of server and broker with 41 kB of repeated greetings (2.1 and 2.5 GB)."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sottovoce.checks.twin import few
from sottovoce.config.experiment import Experiment
from sottovoce.deployment.acl import MESSAGE_LIMIT, emqx_conf, mosquitto_conf
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.node.join import Ear
from sottovoce.deployment.node.node import REPEATS, Node
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.trial.broker import Broker, mosquitto
from sottovoce.federation.engine import Request
from sottovoce.federation.engines.mqtt import engine as engine_module
from sottovoce.federation.engines.mqtt.carrier import Address
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, topic_from, topic_to
from sottovoce.federation.engines.mqtt.greeting import Hello, Welcome
from sottovoce.federation.engines.mqtt.transport import Transport
from tests.deployment import test_transport
from tests.deployment.test_broker import Guest
from tests.deployment.wired import RUN, Wired, member_of, server_key, signing_key, until, wired
from tests.engines.test_mqtt_engine import asking

needs_mosquitto = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
SETUP = 1 << 20  # bytes


def experiment() -> Experiment:
    return few("fl-std", clients=4)


class Downlink:
    """Counts what the server sends to one node."""

    def __init__(self, number: int) -> None:
        self.number, self.sent = number, [0] * 8
        self.bytes = 0

    def __call__(self, topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith(f"to/{self.number}"):
            self.sent[message[4]] += 1
            self.bytes += len(message)
        return [(topic, message)]


@contextmanager
def greeted(down: Downlink, **place: Any) -> Iterator[tuple[Wired, Request]]:
    """Give a server that waits for node 1, with a set-up of a megabyte."""
    with wired(experiment(), nodes=False, min_nodes=0, meddle=down, **place) as held, asking(held, experiment()) as ask:
        assert held.engine._enrolment is not None
        held.engine._enrolment = replace(held.engine._enrolment, setup=bytes(SETUP))
        yield held, ask


def say_hello(held: Wired, life: str, connection: int, run: str = "") -> int:
    """Let node 1 greet the server; return the bytes that this took."""
    hello = Hello(held.engine.place.facts, life, connection, run).pack()
    message = Envelope(Kind.HELLO, 1, SERVER, hello).sign(signing_key(1))
    held.engine.heard(topic_from(held.federation, 1), message)
    return len(message)


def test_a_repeated_greeting_is_welcomed_once() -> None:
    down = Downlink(1)
    with greeted(down) as (held, _):
        asked = sum(say_hello(held, "ab" * 8, 1) for _ in range(70))

    assert asked > 30_000
    assert down.sent[Kind.WELCOME] == 1
    assert down.bytes < 2 * SETUP


@pytest.mark.parametrize("what", ["life", "connection"])
def test_a_node_that_makes_up_lives_or_connections_gets_no_more_than_a_handful_of_welcomes(what: str) -> None:
    down = Downlink(1)
    with greeted(down) as (held, _):
        for number in range(1, 200):
            say_hello(held, f"{number:016x}" if what == "life" else "ab" * 8, 1 if what == "life" else number)

    assert down.sent[Kind.WELCOME] == engine_module._AT_ONCE


def test_a_node_that_greets_without_end_is_not_sent_the_model_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    down = Downlink(1)
    with greeted(down, train_timeout=1.0) as (held, request):
        ask = request._replace(payloads={1: bytes(SETUP)}, take=lambda client, payload: None, sum=None)
        told = engine_module.MqttEngine._next_event

        def greet_meanwhile(engine: Any, seconds: float) -> Any:
            for number in range(1, 50):
                say_hello(held, f"{number:016x}", 1)
            return told(engine, 0.05)

        monkeypatch.setattr(engine_module.MqttEngine, "_next_event", greet_meanwhile)
        held.engine.send(ask)

    assert down.sent[Kind.ASK] <= 2 + engine_module._AT_ONCE


def test_a_refused_node_that_greets_without_end_is_refused_a_few_times() -> None:
    down = Downlink(1)
    with greeted(down) as (held, _):
        facts = replace(held.engine.place.facts, config="another")
        for number in range(100):
            hello = Hello(facts, f"{number:016x}", 1).pack()
            held.engine.heard(
                topic_from(held.federation, 1), Envelope(Kind.HELLO, 1, SERVER, hello).sign(signing_key(1))
            )

    assert 1 <= down.sent[Kind.REFUSAL] <= engine_module._AT_ONCE


def test_a_greeting_that_came_too_early_is_answered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest node that restarts often waits; it is not forgotten."""
    down, now = Downlink(1), time.monotonic()
    with greeted(down) as (held, _):
        for number in range(10):
            say_hello(held, f"{number:016x}", 1)
        before = down.sent[Kind.WELCOME]
        monkeypatch.setattr(engine_module.time, "monotonic", lambda: now + 10 * engine_module._PAUSE)
        held.engine._pay_debts()
        held.engine._pay_debts()

    assert (before, down.sent[Kind.WELCOME]) == (4, 5)


def test_a_node_that_missed_its_welcome_is_welcomed_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    down, now = Downlink(1), time.monotonic()
    with greeted(down) as (held, _):
        say_hello(held, "ab" * 8, 1)
        say_hello(held, "ab" * 8, 1)
        monkeypatch.setattr(engine_module.time, "monotonic", lambda: now + 2 * engine_module._PAUSE)
        say_hello(held, "ab" * 8, 1)
        say_hello(held, "ab" * 8, 1, run=RUN.hex())

    assert down.sent[Kind.WELCOME] == 2


def test_greetings_that_nobody_looks_at_take_no_memory() -> None:
    with greeted(Downlink(1)) as (held, _):
        for number in range(500):
            say_hello(held, f"{number:016x}", 1)

        assert held.engine._answers.qsize() <= 1


def test_whoever_replays_a_request_to_a_node_gets_a_bounded_number_of_answers() -> None:
    """The broker has every signed request, and an answer is a whole vector."""
    member = member_of(experiment(), 1)
    node = Node(member, Book(None, None), life="ab" * 8)
    with wired(experiment(), nodes=False, min_nodes=0) as held, asking(held, experiment()) as request:
        setup = held.engine._enrolment
        assert setup is not None
        welcome = Welcome(member.facts, "ab" * 8, member.training.scheme, setup.setup).pack()
        node.receive(Envelope(Kind.WELCOME, SERVER, 1, welcome, RUN).sign(server_key))
        ask = Envelope(Kind.ASK, SERVER, 1, request.payloads[1], RUN, 1, "train").sign(server_key)
        other = Envelope(Kind.ASK, SERVER, 1, request.payloads[1] + b"x", RUN, 1, "train").sign(server_key)

    answers = [node.receive(message) for _ in range(200) for message in (ask, other)]

    assert len(answers[0]) == 1
    assert sum(map(len, answers)) == REPEATS


def test_messages_that_come_while_a_node_trains_are_kept_up_to_a_bound() -> None:
    member = replace(member_of(experiment(), 1), most=1000)
    ear = Ear(Node(member, Book(None, None)), "f", queue.SimpleQueue())
    for _ in range(100):
        ear.heard("t", bytes(400))

    kept = ear.events.qsize()
    for _ in range(kept):
        ear.taken(ear.events.get())
    ear.heard("t", bytes(5000))

    assert kept == 5
    assert ear.events.qsize() == 1 and ear.waiting == 5000


def test_what_waits_for_one_receiver_is_bounded_and_holds_up_nobody_else() -> None:
    transport = Transport(
        Address("127.0.0.1", 1, tls=False), test_transport.Ear(), name="x", topic="t", credentials=None, most=1000
    )

    sent = [transport.publish("to/1", bytes([number]) * 900) for number in range(50)]

    assert sent.count(True) == 2, "the broker has acknowledged nothing"
    assert transport.publish("to/2", bytes(900))
    assert len(transport._client._out_messages) == 3


def test_what_waits_for_a_broker_that_does_not_answer_is_bounded() -> None:
    transport = Transport(
        Address("127.0.0.1", 1, tls=False), test_transport.Ear(), name="x", topic="t", credentials=None, most=4 << 20
    )

    sent = sum(transport.publish(f"to/{number}", bytes(4 << 20)) for number in range(40))

    assert sent == 9, "32 MiB, and one more"
    assert transport.publish("to/50", b"who is there?"), "small ones go"


def test_the_brokers_files_bound_what_waits_for_one_client() -> None:
    lines = dict(line.split(" ", 1) for line in mosquitto_conf().splitlines() if line and not line.startswith("#"))

    assert MESSAGE_LIMIT <= int(lines["max_queued_bytes"]) <= 4 * MESSAGE_LIMIT
    assert MESSAGE_LIMIT <= int(lines["max_inflight_bytes"]) <= 4 * MESSAGE_LIMIT
    assert int(lines["max_queued_messages"]) > 0 and int(lines["memory_limit"]) > 0
    for name in ("mqtt.max_inflight", "mqtt.max_mqueue_len", "mqtt.max_packet_size", "force_shutdown"):
        assert name in emqx_conf()


def resident(pid: int | str) -> int:
    """Return the resident bytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(text.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize("kind", [pytest.param("mosquitto", marks=needs_mosquitto), "amqtt"])
@pytest.mark.parametrize("quality", [0, 1])
def test_a_node_that_greets_and_never_reads_fills_neither_server_nor_broker(
    tmp_path: Path, kind: Any, quality: int
) -> None:
    """The attack itself, through a real broker: 70 greetings, a set-up of 8 MB, and a node that does not read."""
    fed = tmp_path / "fed"
    init_federation(fed)
    add_nodes(fed, ["lyon", "oslo", "turin"])
    sign_roster(fed)
    federation, size = test_transport.federation_of(fed), 8 << 20
    with Broker(fed, kind) as broker, wired(experiment(), nodes=False, min_nodes=0) as held:
        engine = held.engine
        with asking(held, experiment()):
            assert engine._enrolment is not None
        engine._enrolment = replace(engine._enrolment, setup=bytes(size))
        engine.place = replace(engine.place, federation=federation, most=size + (1 << 20))
        server = test_transport.transport(fed, broker.port, "server", engine, most=engine.place.most)  # type: ignore[arg-type]
        engine._carrier = server
        node = Guest(broker.port, fed / "nodes" / "oslo")
        with server:
            assert node.enter()
            node.client.subscribe(topic_to(federation, 1), qos=quality)
            node.granted.get(timeout=10)
            node.client.loop_stop()  # from now on nobody reads
            before = resident("self"), resident(broker.pid)
            for number in range(70):
                hello = Hello(engine.place.facts, f"{number:016x}", 1).pack()
                message = Envelope(Kind.HELLO, 1, SERVER, hello).sign(signing_key(1))
                node.client.publish(topic_from(federation, 1), message, qos=0)
                node.client.loop_write()
            until(lambda: engine._nodes[1].life == f"{69:016x}", 20.0)
            server.flush(10.0)
            time.sleep(0.5)
            grown = [
                after - begun for after, begun in zip((resident("self"), resident(broker.pid)), before, strict=True)
            ]
            node.client._sock_close()
    print(f"{kind}, qos {quality}: server {grown[0] >> 20} MiB, broker {grown[1] >> 20} MiB")

    assert max(grown) < 12 * size, "greetings of a node that makes up lives: 4 at once, and copies of them"
