"""Measure a federation over MQTT with mutual TLS, on the loopback device and one Mosquitto.

    python -m benchmarks.network                       bytes, idle, latency, memory
    python -m benchmarks.network --only crowd          a round with a thousand nodes (minutes)

Bytes are those of Linux's TCP_INFO on the node's socket, with headers of TCP and IP, both directions, acknowledgements
included. Beside ours: the same messages by paho alone, without signatures.
"""

from __future__ import annotations

from benchmarks.measure import family, load, quiet_threads

quiet_threads()

import argparse  # noqa: E402
import os  # noqa: E402
import queue  # noqa: E402
import signal  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import ExitStack, contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.table import Row, missed, show  # noqa: E402
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster  # noqa: E402
from sottovoce.deployment.party import Identity  # noqa: E402
from sottovoce.deployment.trial.broker import Broker  # noqa: E402
from sottovoce.federation.engine import Request  # noqa: E402
from sottovoce.federation.engines.mqtt.carrier import Address, Counts, Listener, TlsFiles  # noqa: E402
from sottovoce.federation.engines.mqtt.engine import MqttEngine, ServerPlace  # noqa: E402
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, open_message, topic_from, topic_to  # noqa: E402
from sottovoce.federation.engines.mqtt.greeting import Facts, Hello  # noqa: E402
from sottovoce.federation.engines.mqtt.transport import Transport  # noqa: E402

FACTS = Facts("benchmark", "", "", "", ())
RUN = bytes(range(16))
NODES = 6
PAYLOAD = 1000  # bytes: below one segment of TCP, where headers weigh most
EXCHANGES = 200
DAY = 86400
MOST = 1 << 26
EXPERIMENT = """
[experiment]
name = "memory"
rounds = 3
evaluation = "none"
[data]
source = "fashion-mnist"
clients = 3
records_per_client = 600
[model]
name = "cnn"
[client]
local_steps = 5
batch_size = 10
client_lr = 0.215
[cohort]
sampling = "fixed"
sample_rate = 1.0
[aggregation]
secure = "real"
"""


class Party:
    """A party that answers what it hears by a function, or keeps it."""

    def __init__(self, act: Callable[[str, bytes], None] | None = None) -> None:
        self.came: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.heard = act or (lambda topic, message: self.came.put((topic, message)))
        self.greet: Callable[[int], None] = lambda connection: None

    def connected(self, connection: int) -> None:
        """Greet."""
        self.greet(connection)

    def lost(self, reason: str) -> None:
        """Say it."""
        print(f"lost: {reason}", file=sys.stderr)

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Leave none."""
        return None


def transport(broker: Broker, identity: Identity, listener: Listener, keep_alive: int = 900) -> Transport:
    """Return a connection of a server or node, not connected yet."""
    federation = identity.pinned[:16]
    topic = topic_from(federation, "+") if identity.id is None else topic_to(federation, identity.id)
    files = TlsFiles(identity.certificate, identity.private_key, identity.ca)
    address = Address.parse(broker.url)
    return Transport(
        address, listener, name=identity.user, topic=topic, credentials=files, most=MOST, keep_alive=keep_alive
    )


@contextmanager
def echoing(broker: Broker, identity: Identity, server: bytes) -> Iterator[Transport]:
    """Give the connection of a node that opens every question and answers it with as many bytes, signed."""
    number = identity.id or 0
    topic = topic_from(identity.pinned[:16], number)
    party = Party()
    line = transport(broker, identity, party)

    def act(_: str, message: bytes) -> None:
        came = open_message(message, receiver=number, key_of=lambda _: server, most=MOST)
        if came.kind == Kind.ASK:
            answer = Envelope(Kind.ANSWER, number, SERVER, came.payload, came.run, came.round, came.phase, came.attempt)
            line.publish(topic, answer.sign(identity.signing_key))
        elif came.kind == Kind.HELLO:
            party.greet(1)

    def greet(connection: int) -> None:
        hello = Hello(FACTS, "a life", connection)
        line.publish(topic, Envelope(Kind.HELLO, number, SERVER, hello.pack()).sign(identity.signing_key))

    party.heard, party.greet = act, greet
    with line:
        yield line


def wire(counts: Counts) -> int:
    """Return all bytes on the wire of a link."""
    return (counts.wire_up or 0) + (counts.wire_down or 0)


def bytes_rows(broker: Broker, server: Identity, node: Identity) -> list[Row]:
    """Return the bytes of a message beyond its payload, ours and without signatures."""
    roster = server.read_roster()
    federation = roster.federation
    with ExitStack() as stack:
        far = stack.enter_context(echoing(broker, node, roster.server))
        party = Party()
        near = stack.enter_context(transport(broker, server, party))
        time.sleep(0.5)
        while not party.came.empty():
            party.came.get()  # greetings
        ask = Envelope(Kind.ASK, SERVER, node.id or 0, bytes(PAYLOAD), RUN, 1, "mask").sign(server.signing_key)
        ours = _beyond(far, lambda: _exchange(near, party, topic_to(federation, node.id or 0), ask))
    with ExitStack() as stack:
        plain_party, party = Party(), Party()
        far = stack.enter_context(transport(broker, node, plain_party))
        plain_party.heard = lambda _, message: far.publish(topic_from(federation, node.id or 0), message)
        near = stack.enter_context(transport(broker, server, party))
        plain = _beyond(far, lambda: _exchange(near, party, topic_to(federation, node.id or 0), bytes(PAYLOAD)))
    return [
        Row("bytes a message beyond payload", ours, "B", 600, "without signatures", plain / ours),
        Row("the same without signatures", plain, "B"),
    ]


def _beyond(line: Transport, exchange: Callable[[], None]) -> float:
    exchange()
    before = wire(line.counts)
    for _ in range(EXCHANGES):
        exchange()
    time.sleep(0.2)  # the last acknowledgements
    return (wire(line.counts) - before) / (2 * EXCHANGES) - PAYLOAD


def _exchange(line: Transport, party: Party, topic: str, message: bytes) -> None:
    line.publish(topic, message)
    party.came.get(timeout=10)


def idle_row(broker: Broker, node: Identity, seconds: int = 13, pause: int = 2) -> Row:
    """Return what an idle node sends and receives in a day at 15 minutes, from pings every two seconds."""
    with transport(broker, node, Party(), keep_alive=pause) as line:
        time.sleep(1)
        before = wire(line.counts)
        time.sleep(seconds)
        spent = wire(line.counts) - before
    pings = seconds // pause
    return Row("idle node, a day, keep-alive 15 minutes", spent / pings * DAY / 900, "B", 50_000)


def latency_rows(broker: Broker, server: Identity, nodes: list[Identity]) -> list[Row]:
    """Return the time of a phase that nobody trains in: through the engine, and one exchange by paho alone."""
    roster = server.read_roster()
    place = ServerPlace(roster.federation, RUN, roster.keys, server.signing_key, FACTS, min_nodes=NODES)
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(echoing(broker, node, roster.server))
        engine = stack.enter_context(MqttEngine(place, lambda listener: transport(broker, server, listener)))
        while engine.status.there < NODES:
            time.sleep(0.05)
        times = []
        for round_ in range(1, 101):
            payloads = {number: bytes(PAYLOAD) for number in range(NODES)}
            began = time.perf_counter()
            reply = engine.send(Request(round_, "unmask", payloads, lambda number, payload: None))
            times.append(time.perf_counter() - began)
            if len(reply.sizes) != NODES:
                raise SystemExit(f"a phase lost answers: {reply}")
    median, worst = statistics.median(times) * 1e3, max(times) * 1e3
    return [
        Row(f"phase, {NODES} nodes, median of {len(times)}", median, "ms", 50),
        Row("phase, the slowest", worst, "ms"),
    ]


def waiting_rows(broker: Broker, fed: Path) -> list[Row]:
    """Return what `sottovoce join` holds resident when it is connected and waits."""
    experiment, records = fed.parent / "run.toml", fed.parent / "records.npz"
    experiment.write_text(EXPERIMENT.replace("clients = 3", f"clients = {NODES}"))
    rng = np.random.default_rng(1)
    np.savez(records, x=rng.integers(0, 256, (600, 28, 28, 1), np.uint8), y=rng.integers(0, 10, 600))
    rows = []
    for number, (words, limit, trainer) in enumerate((("without torch", 120, "fast"), ("with torch", 300, "torch"))):
        command = [
            sys.executable,
            "-m",
            "sottovoce",
            "join",
            broker.url,
            "--run",
            str(experiment),
            "--data",
            str(records),
        ]
        command += ["--keys", str(fed / "nodes" / f"lab-{number}"), "--set", f"client.trainer={trainer}"]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        if child.stderr is None or not any("connected" in line for line in child.stderr):
            raise SystemExit(f"a node did not start: {' '.join(command)}")
        time.sleep(1)
        rows.append(Row(f"a node that waits, CNN, {words}", _resident(child.pid)[0], "MB", limit))
        child.send_signal(signal.SIGINT)
        child.communicate()
    return rows


def peak_rows() -> list[Row]:
    """Return the most that a node held resident in three rounds of a trial, and in those of a small model."""
    top = ["scheme.name=fl-top", "scheme.ratio=0.005", "scheme.public=mnist"]
    cases = (
        ("CNN, FL-TOP, without torch", ["client.trainer=fast", *top], 120),
        ("CNN, FL-TOP, with torch", ["client.trainer=torch", *top], 300),
        ("CNN, FL-STD, without torch", ["client.trainer=fast"], 120),
        ("MLP, FL-STD, without torch", ["client.trainer=fast", "model.name=mlp"], 120),
    )
    return [Row(f"peak: {words}", node_peak(changes), "MB", limit) for words, changes, limit in cases]


def node_peak(changes: list[str]) -> float:
    """Return the most megabytes of any node of a trial."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = Path(folder) / "run.toml"
        experiment.write_text(EXPERIMENT)
        command = [sys.executable, "-m", "sottovoce", "serve", str(experiment), "--local", "3", "--quiet"]
        command += ["--out", str(Path(folder) / "run"), *(word for change in changes for word in ("--set", change))]
        child, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0.0
        while child.poll() is None:
            nodes = [pid for pid in family(child.pid)[1:] if b"join" in _words(pid)]
            peak = max([peak, *(_resident(pid)[1] for pid in nodes)])
            time.sleep(0.05)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with code {child.returncode}")
        return peak


def _resident(pid: int) -> tuple[float, float]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0.0, 0.0
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return sizes.get("VmRSS", 0.0), sizes.get("VmHWM", 0.0)


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def main() -> int:
    """Print the table; return 1 if something asked was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network")
    parser.add_argument("--only", choices=("bytes", "idle", "latency", "memory", "crowd"))
    parser.add_argument("--nodes", type=int, default=1000, help="of the crowd")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="of the crowd's experiment")
    asked = parser.parse_args()
    if asked.only == "crowd":
        from benchmarks.crowd import play

        return play(asked.nodes, asked.changes)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        fed = Path(folder) / "fed"
        init_federation(fed)
        names = [f"lab-{number}" for number in range(NODES)]
        add_nodes(fed, names)
        sign_roster(fed)
        server, nodes = Identity.read(fed / "server"), [Identity.read(fed / "nodes" / name) for name in names]
        with Broker(fed) as broker:
            print(f"{broker.kind}, {load()}, process {os.getpid()}", flush=True)
            if asked.only in (None, "bytes"):
                rows += bytes_rows(broker, server, nodes[0])
            if asked.only in (None, "idle"):
                rows.append(idle_row(broker, nodes[0]))
            if asked.only in (None, "latency"):
                rows += latency_rows(broker, server, nodes)
            if asked.only in (None, "memory"):
                rows += waiting_rows(broker, fed)
        if asked.only in (None, "memory"):
            rows += peak_rows()
    show(rows)
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
