"""A whole federation in one process: the real engine and real nodes, and a broker of Python queues between them.

Whoever plays the evil broker gives `Loop.meddle`, which sees every message and says what is delivered instead.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import Parts, gather
from sottovoce.config.experiment import Experiment
from sottovoce.core.streams import Seeds
from sottovoce.deployment.node.build import facts_of, largest_message, make_member
from sottovoce.deployment.node.join import Ear, talk
from sottovoce.deployment.node.node import Member, Node, Over
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster, RosterEntry
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.engines.mqtt.carrier import UNKNOWN, LinkQuality, Listener
from sottovoce.federation.engines.mqtt.engine import MqttEngine, ServerPlace
from sottovoce.federation.engines.mqtt.envelope import topic_from, topic_to
from sottovoce.models import Shard
from sottovoce.runs.loop import run
from sottovoce.secagg import run_digest, verifying_key
from tests.runs.played import model

__all__ = [
    "Loop",
    "Wired",
    "alone_and_together",
    "identity_of",
    "member_of",
    "parts_of",
    "roster_of",
    "server_key",
    "signing_key",
    "wired",
]

Meddle = Callable[[str, bytes], list[tuple[str, bytes]]]
RUN = bytes(range(16))


def signing_key(number: int) -> bytes:
    return bytes([number + 1]) * 32


server_key, root_key = b"s" * 32, b"r" * 32


@cache
def roster_of(clients: int) -> Roster:
    entries = [
        RosterEntry(number, f"node{number}", verifying_key(signing_key(number)), f"{number:064x}")
        for number in range(clients)
    ]
    return Roster(tuple(entries), verifying_key(server_key), verifying_key(root_key))


def identity_of(number: int) -> Identity:
    nowhere = Path("nowhere")
    return Identity(
        id=number,
        name=f"node{number}",
        signing_key=signing_key(number),
        certificate=nowhere,
        private_key=nowhere,
        ca=nowhere,
        roster=nowhere,
        pinned="0" * 64,
        fingerprint="0" * 64,
        expires=datetime.max.replace(tzinfo=UTC),
    )


class Loop:
    """A broker of one process: it delivers to whoever listens to a topic at that moment, on a thread of its own."""

    def __init__(self, meddle: Meddle = lambda topic, message: [(topic, message)]) -> None:
        self.meddle = meddle
        self._ears: dict[str, Listener] = {}
        self._queue: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, daemon=True)
        self._thread.start()

    def publish(self, topic: str, message: bytes) -> None:
        for delivered in self.meddle(topic, message):
            self._queue.put(delivered)

    def later(self, seconds: float, topic: str, message: bytes) -> None:
        timer = threading.Timer(seconds, self._queue.put, [(topic, message)])
        timer.daemon = True
        timer.start()

    def listen(self, topic: str, listener: Listener | None) -> None:
        if listener is None:
            self._ears.pop(topic, None)
        else:
            self._ears[topic] = listener

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _deliver(self) -> None:
        while (item := self._queue.get()) is not None:
            topic, message = item
            general = topic.rsplit("/", 1)[0] + "/+"
            for ear in (self._ears.get(topic), self._ears.get(general)):
                if ear is not None:
                    ear.heard(topic, message)


@dataclass
class Carried:
    """A connection to the loop."""

    loop: Loop
    listener: Listener
    topic: str
    connections: int = 0
    will: tuple[str, bytes] | None = None
    quality: LinkQuality = UNKNOWN
    busy: bool = False

    def connect(self) -> None:
        self.connections += 1
        self.will = self.listener.last_will(self.connections)
        self.loop.listen(self.topic, self.listener)
        self.listener.connected(self.connections)

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        self.loop.publish(topic, message)
        return True

    def flush(self, seconds: float) -> bool:
        return True

    def wire(self) -> tuple[int, int]:
        return 0, 0

    def link(self) -> LinkQuality:
        return self.quality

    def attend(self, *, busy: bool) -> None:
        self.busy = busy

    def close(self) -> None:
        self.loop.listen(self.topic, None)

    def cut(self) -> None:
        """Lose the connection without a word: the broker speaks for it."""
        self.loop.listen(self.topic, None)
        if self.will is not None:
            self.loop.publish(*self.will)


def parts_of(experiment: Experiment) -> Parts:
    """Return the server's parts, simulated."""
    seeds = Seeds(experiment.experiment.seed)
    keys = SimulatedKeys(seeds, experiment.data.clients)
    run = run_digest(roster_of(experiment.data.clients).digest, RUN)
    parties = replace(Parties.of_machines(seeds, keys, seeded=True), run=run)
    return gather_without_records(experiment, parties, server=True)


def records_of(dealt: Parts, number: int) -> Shard:
    places = dealt.partition.records(number)
    persons = dealt.dataset.persons
    return Shard(
        dealt.dataset.x_train[places],
        dealt.dataset.y_train[places],
        persons=None if persons is None else persons[places],
    )


def member_of(experiment: Experiment, number: int, dealt: Parts | None = None, *, simulated: bool = True) -> Member:
    shard = records_of(dealt or gather(experiment), number)
    roster = roster_of(experiment.data.clients)
    return make_member(experiment, identity_of(number), roster, shard, simulated=simulated, apart=False)[0]


@dataclass
class Wired:
    """What a test of a wired federation holds."""

    engine: MqttEngine
    loop: Loop
    federation: str
    quality: LinkQuality = UNKNOWN  # of every node's link
    nodes: dict[int, Node] = field(default_factory=dict)
    carriers: dict[int, Carried] = field(default_factory=dict)
    ears: dict[int, Ear] = field(default_factory=dict)
    overs: dict[int, Over] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, member: Member, book: Book | None = None) -> Node:
        """Start a node in a thread; one of the same number is gone by then."""
        number = member.number
        node = self.nodes[number] = Node(member, book or Book(None, None))
        ear = self.ears[number] = Ear(node, self.federation, queue.SimpleQueue())
        carrier = Carried(self.loop, ear, topic_to(self.federation, number), quality=self.quality)
        self.carriers[number] = carrier

        def run() -> None:
            self.overs[number] = talk(node, ear, carrier)

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()
        return node

    def kill(self, number: int) -> None:
        """Let a node vanish, as kill -9 does."""
        self.carriers[number].cut()
        self.carriers[number].publish = lambda *_, **__: True  # type: ignore[method-assign]
        self.ears[number].events.put(None)


@contextmanager
def wired(
    experiment: Experiment,
    *,
    nodes: bool = True,
    meddle: Meddle | None = None,
    quality: LinkQuality = UNKNOWN,
    **place: Any,
) -> Iterator[Wired]:
    """Start an engine and, with `nodes`, a node for every client."""
    parts, roster = parts_of(experiment), roster_of(experiment.data.clients)
    settings = {"phase_timeout": 20.0, "train_timeout": 20.0, "min_nodes": experiment.data.clients, **place}
    where = ServerPlace(
        federation=roster.federation,
        run=RUN,
        keys=roster.keys,
        signing_key=server_key,
        facts=facts_of(parts, roster),
        most=largest_message(parts),
        **settings,
    )
    loop = Loop() if meddle is None else Loop(meddle)
    engine = MqttEngine(where, lambda ear: Carried(loop, ear, topic_from(roster.federation, "+")))
    held = Wired(engine, loop, roster.federation, quality)
    try:
        with engine:
            if nodes:
                dealt = gather(experiment)
                for number in range(experiment.data.clients):
                    held.start(member_of(experiment, number, dealt))
            yield held
    finally:
        for ear in held.ears.values():
            ear.events.put(None)
        for thread in held.threads:
            thread.join(5)
        loop.close()


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.01)


def alone_and_together(experiment: Experiment, folder: Path) -> tuple[Any, Any]:
    """Return the final model of a simulation, and that of nodes behind a broker with the same seed."""
    run(experiment, folder / "alone")
    with wired(experiment) as held:
        keys = SimulatedKeys(Seeds(experiment.experiment.seed), experiment.data.clients)
        owners = Seeds(experiment.experiment.seed)
        parties = Parties.of_machines(
            owners,
            keys,
            roster_of(experiment.data.clients).digest,
            lambda parts, run_id: nullcontext(held.engine),
            new_run=RUN,
            seeded=True,
        )
        run(experiment, folder / "together", parties=parties)
    return model(folder / "alone"), model(folder / "together")
