"""A round of FL-TOP-DP with a thousand nodes on one Mosquitto, and where its seconds go.

The server is the real one: `MqttEngine`, one paho connection. The nodes are real too, `deployment.node.Node` with their
own keys, certificates and secrets from the operating system, but they live in one process: a thousand TLS connections
in one loop of asyncio, one core. So training takes as long as on one machine that trains for all of them.

Run as a program this file is that process.
"""

from __future__ import annotations

from benchmarks.measure import cost_of, family_cpu, load, memory, quiet_threads

quiet_threads()

import asyncio  # noqa: E402
import ssl  # noqa: E402
import struct  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

from sottovoce.assembly.engines import start_engine  # noqa: E402
from sottovoce.assembly.parties import Parties  # noqa: E402
from sottovoce.assembly.parts import Parts, gather  # noqa: E402
from sottovoce.assembly.protection import Protection, protect  # noqa: E402
from sottovoce.assembly.stages import TRAINING, stages  # noqa: E402
from sottovoce.config.experiment import Experiment  # noqa: E402
from sottovoce.config.experiment import load as load_experiment  # noqa: E402
from sottovoce.core.streams import Secrets  # noqa: E402
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster  # noqa: E402
from sottovoce.deployment.node.node import Conversation, Member, Node  # noqa: E402
from sottovoce.deployment.node.state import Book  # noqa: E402
from sottovoce.deployment.party import Identity  # noqa: E402
from sottovoce.deployment.roster import Roster  # noqa: E402
from sottovoce.deployment.trial.broker import Broker  # noqa: E402
from sottovoce.federation.client import Client, Credentials, Knowledge  # noqa: E402
from sottovoce.federation.engine import Enrolment, Reply, Request, drive  # noqa: E402
from sottovoce.federation.engines.mqtt.engine import MqttEngine, ServerPlace  # noqa: E402
from sottovoce.federation.engines.mqtt.envelope import topic_from, topic_to  # noqa: E402
from sottovoce.federation.engines.mqtt.greeting import Facts  # noqa: E402
from sottovoce.federation.round import server_round  # noqa: E402
from sottovoce.models import Shard, make_trainer  # noqa: E402
from sottovoce.privacy import Ledger  # noqa: E402

FACTS = Facts("benchmark", "", "", "", ())
RUN = bytes(range(16))
MOST = 1 << 26
EXPERIMENT = Path(__file__).parents[1] / "experiments" / "fashion-top-dp.toml"
SETTING = ("cohort.sample_rate=0.5", "aggregation.secure=real", "experiment.rounds=10")


def name(number: int) -> str:
    """Return a node's name."""
    return f"lab-{number}"


def setting(nodes: int, changes: list[str]) -> Experiment:
    """Return the experiment that both processes play."""
    return load_experiment(EXPERIMENT, [f"data.clients={nodes}", *SETTING, *changes])


def solved(experiment: Experiment, roster: Roster) -> Protection:
    """Return the plan, as every node would solve it, with the roster's keys and this process's secrets."""
    parties = Parties.of_machines(Secrets(experiment.experiment.seed), roster.keys, seeded=True).in_run(RUN)
    return protect(gather(experiment, parties=replace(parties, machines=False)))


class Spent(NamedTuple):
    """Seconds: on the wall, and of CPU by process."""

    wall: float
    server: float
    crowd: float
    broker: float

    def since(self, before: Spent) -> Spent:
        """Return what passed."""
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Timed:
    """An engine around an engine that notes how long each phase took, and the CPU seconds of three processes."""

    def __init__(self, engine: MqttEngine, crowd: int, broker: int) -> None:
        self._engine = engine
        self._crowd, self._broker = crowd, broker
        self.phases: list[tuple[str, Spent, Reply, int]] = []

    def enrol(self, enrolment: Enrolment) -> None:
        """Pass on."""
        self._engine.enrol(enrolment)

    def send(self, request: Request) -> Reply:
        """Pass on, and note."""
        before = self.clocks()
        reply = self._engine.send(request)
        sent = sum(map(len, request.payloads.values()))
        self.phases.append((request.phase, self.clocks().since(before), reply, sent))
        return reply

    def clocks(self) -> Spent:
        """Read all clocks."""
        return Spent(time.perf_counter(), time.process_time(), family_cpu(self._crowd), family_cpu(self._broker))


def play(nodes: int, changes: list[str]) -> int:
    """Play one round and print where the seconds went."""
    from benchmarks.network import transport

    experiment = setting(nodes, changes)
    with tempfile.TemporaryDirectory() as folder:
        fed = Path(folder) / "fed"
        made = cost_of(
            lambda: (init_federation(fed), add_nodes(fed, [name(n) for n in range(nodes)]), sign_roster(fed))
        )
        server = Identity.read(fed / "server")
        roster = server.read_roster()
        with Broker(fed, "mosquitto") as broker:
            print(f"{nodes} nodes, mosquitto, {load()}; keys made in {made.wall:.1f} s", flush=True)
            words = [sys.executable, "-m", "benchmarks.crowd", str(fed), str(broker.port), str(nodes), *changes]
            crowd = subprocess.Popen(words, stdin=subprocess.PIPE)
            try:
                return _server(experiment, server, roster, broker, crowd.pid, transport)
            finally:
                crowd.communicate(b"\n")


def _server(
    experiment: Experiment, own: Identity, roster: Roster, broker: Broker, crowd: int, transport: Callable[..., object]
) -> int:
    protection = solved(experiment, roster)
    place = ServerPlace(
        roster.federation,
        RUN,
        roster.keys,
        own.signing_key,
        FACTS,
        phase_timeout=600,
        train_timeout=1800,
        min_nodes=len(roster.entries),
        most=MOST,
    )
    with start_engine(protection.parts, only=("public",)) as (_, evaluator):
        ready = stages(protection)[TRAINING].server_side(evaluator)
    with MqttEngine(place, lambda listener: transport(broker, own, listener)) as engine:
        timed = Timed(engine, crowd, broker.pid)
        began = time.perf_counter()
        ready.enrol(timed, None)
        print(f"all {engine.status.there} connected and greeted after {time.perf_counter() - began:.1f} s", flush=True)
        time.sleep(3)  # welcomes
        state, before = ready.server.init(protection.parts.start), timed.clocks()
        with Ledger.of_server(own.ca.with_name("ledger.jsonl"), protection.plan) as ledger:
            drive(timed, server_round(ready.server.with_account(ledger), state, 1))
        _tell(timed, timed.clocks().since(before))
        print(f"late {engine.status.late}, foreign {engine.status.foreign}")
        print(f"memory: broker {memory([broker.pid]):.0f} MB, all nodes together {memory([crowd]):.0f} MB")
        return 0


def _tell(timed: Timed, whole: Spent) -> None:
    print(
        f"{'':14}{'seconds':>9}{'CPU server':>12}{'nodes':>8}{'broker':>8}"
        f"{'asked':>8}{'answers':>9}{'KB down':>9}{'KB up':>8}"
    )
    for phase, spent, reply, sent in timed.phases:
        up = sum(reply.sizes.values()) / 1e3
        asked = len(reply.sizes) + len(reply.failures) + len(reply.left)
        print(f"{phase:14}{_times(spent)}{asked:8}{len(reply.sizes):9}{sent / 1e3:9.0f}{up:8.0f}")
        for why in sorted(set(reply.failures.values()))[:2]:
            print(f"    failed: {why}")
    print(f"{'all':14}{_times(whole)}")


def _times(spent: Spent) -> str:
    return f"{spent.wall:9.1f}{spent.server:12.1f}{spent.crowd:8.1f}{spent.broker:8.1f}"


class Link:
    """One node's connection: just enough of MQTT 3.1.1, QoS 1, in a loop that a thousand of them share."""

    def __init__(self, node: Node, federation: str, user: str) -> None:
        self.node = node
        self._user = user
        self._to, self._from = (topic(federation, node.member.number) for topic in (topic_to, topic_from))
        self._packets = 0

    async def live(self, port: int, context: ssl.SSLContext, gate: asyncio.Semaphore) -> None:
        """Connect, subscribe, greet, and answer until the connection ends."""
        async with gate:  # a thousand handshakes at once would time out
            reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            connect = _text("MQTT") + bytes([4, 2]) + struct.pack(">H", 900) + _text(self._user)
            self._writer.write(_packet(0x10, connect))
            await _read(reader)
            self._writer.write(_packet(0x82, struct.pack(">H", 1) + _text(self._to) + b"\x01"))
            await _read(reader)
        self._publish(self.node.hello(1))
        try:
            while True:
                kind, body = await _read(reader)
                if kind >> 4 == 3:
                    size = 2 + struct.unpack_from(">H", body)[0]
                    if kind & 6:
                        self._writer.write(_packet(0x40, body[size : size + 2]))
                        size += 2
                    for answer in self.node.receive(body[size:]):
                        self._publish(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _publish(self, message: bytes) -> None:
        self._packets = self._packets % 0xFFFF + 1
        self._writer.write(_packet(0x32, _text(self._from) + struct.pack(">H", self._packets) + message))


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, shift, size = (await reader.readexactly(1))[0], 0, 0
    while True:
        (byte,) = await reader.readexactly(1)
        size |= (byte & 127) << shift
        if byte < 128:
            return kind, await reader.readexactly(size)
        shift += 7


def _packet(kind: int, body: bytes) -> bytes:
    head, size = bytearray([kind]), len(body)
    while True:
        size, low = size >> 7, size & 127
        head.append(low | 128 * (size > 0))
        if not size:
            return bytes(head) + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def clients(protection: Protection, parts: Parts, keys: dict[int, bytes]) -> Callable[[int], Callable[[bytes], Client]]:
    """Return what makes the client of a node from the run's set-up; what all know is read once."""
    trainer = make_trainer(parts.network, parts.training())
    data = parts.dataset

    @cache
    def knowledge(setup: bytes) -> Knowledge:
        return stages(protection)[TRAINING].client_side(setup)

    def of(number: int) -> Callable[[bytes], Client]:
        records = parts.partition.records(number)

        def client(setup: bytes) -> Client:
            streams = parts.seeds.client(number)
            shard = lambda: Shard(data.x_train[records], data.y_train[records])  # noqa: E731
            return Client(knowledge(setup), number, streams, shard, trainer, Credentials(keys[number]))

        return client

    return of


async def crowd(fed: Path, port: int, nodes: int, changes: list[str]) -> None:
    """Be all nodes until stdin says so."""
    identities = [Identity.read(fed / "nodes" / name(number)) for number in range(nodes)]
    roster = identities[0].read_roster()
    protection = solved(setting(nodes, changes), roster)
    keys = {number: identity.signing_key for number, identity in enumerate(identities)}
    client_of = clients(protection, protection.parts, keys)
    gate, tasks = asyncio.Semaphore(20), []
    for number, identity in enumerate(identities):
        context = ssl.create_default_context(cafile=str(identity.ca))
        context.load_cert_chain(identity.certificate, identity.private_key)
        member = Member(
            number,
            identity.signing_key,
            roster.server,
            FACTS,
            (Conversation(protection.parts.scheme.name, range(1, 1 << 32), client_of(number)),),
            private=True,
            most=MOST,
        )
        book = Book(fed / "nodes" / name(number) / "state", protection.plan)
        tasks.append(
            asyncio.create_task(Link(Node(member, book), roster.federation, identity.user).live(port, context, gate))
        )
        await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(crowd(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
