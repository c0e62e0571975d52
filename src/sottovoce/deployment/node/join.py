"""Be a node: connect to the broker, answer the server until the run is over, and leave in order."""

from __future__ import annotations

import ctypes
import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, Protocol

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.statistics import own_codes
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.deployment.node.build import make_member, state_folder
from sottovoce.deployment.node.node import Member, Node, Over
from sottovoce.deployment.node.permit import Permit
from sottovoce.deployment.node.records import check_unchanged, read_own_records
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.party import Identity
from sottovoce.deployment.policy import Guard, SitePolicy
from sottovoce.federation.engines.mqtt.carrier import Address, Carrier, Counts, TlsFiles
from sottovoce.federation.engines.mqtt.envelope import topic_from, topic_to
from sottovoce.models import Shard
from sottovoce.privacy import PrivacyPlan

_AHEAD: Final = 2  # largest messages that wait while a node trains: a set-up, and the request after it
_ROOM: Final = 60.0  # seconds that an answer waits until those before it have left
_QUIET: Final = 900.0  # seconds without a word after which no round waits for this node
KEEP_ALIVE: Final = 220  # seconds: an idle node sends some 100 bytes so often; carriers' NAT forgets after 240

INTERRUPTED: Final = "interrupted"

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who is told how a node's connection goes."""

    def up(self, *, up: bool, reason: str = "") -> None:
        """Take in that the connection stands, or why it was lost."""
        ...

    def beat(self) -> None:
        """Take in that the node is at work, and not stuck."""
        ...


@dataclass
class Ear:
    """What a node's connection tells; its thread only passes messages on to the one that trains."""

    node: Node
    federation: str
    events: queue.SimpleQueue[bytes | int | None]
    waiting: int = 0  # bytes of messages that the other thread has not taken yet
    watch: Watcher | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def heard(self, topic: str, message: bytes) -> None:
        """Pass a message on; while the node trains, no more than it may need afterwards is kept for it."""
        with self._lock:
            if self.waiting and self.waiting + len(message) > _AHEAD * self.node.member.most:
                return
            self.waiting += len(message)
        self.events.put(message)

    def taken(self, event: bytes | int | None) -> None:
        """Make room for what comes next."""
        if self.watch is not None:
            self.watch.beat()
        if isinstance(event, bytes):
            with self._lock:
                self.waiting -= len(event)

    def connected(self, connection: int) -> None:
        """Pass on that the connection stands: the node says hello."""
        if self.watch is not None:
            self.watch.up(up=True)
        self.events.put(connection)

    def lost(self, reason: str) -> None:
        """Say that the broker cannot be reached; the connection is being made anew."""
        if self.watch is not None:
            self.watch.up(up=False, reason=reason)
        else:
            log.warning("broker: %s; trying again", reason)

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Return what the broker is to say when this connection is lost."""
        return topic_from(self.federation, self.node.member.number), self.node.last_will(connection)


@dataclass(frozen=True)
class Prepared:
    """A node that is ready to meet its server: its plan is solved and its records are checked."""

    address: Address | None  # None: there is no broker
    identity: Identity
    federation: str
    member: Member
    plan: PrivacyPlan | None
    state: Path | None
    reserve: Callable[[], None] | None = None  # charges the account of the data set
    guard: Guard | None = None  # what the site's policy allows while it plays


def prepare(
    experiment: Experiment,
    broker: str | None,
    keys: Path,
    data: str,
    *,
    label: str | None = None,
    state: Path | None = None,
    simulated: bool = False,
    policy: SitePolicy | None = None,
    dataset: str | None = None,
    file: Path | None = None,
) -> Prepared:
    """Read keys and records and solve the plan, before anybody is met.

    `policy` is the site's; it is enforced before records are read. `dataset` is the name by which the site keeps the
    account of these records, and `file` the experiment's, beside which signatures for it may lie.
    """
    address = None if broker is None else Address.parse(broker)
    if address is not None:
        check_simulated(address, simulated=simulated)
    identity = Identity.read(keys)
    roster = identity.read_roster()
    folder = None if simulated else state or state_folder(keys, experiment)
    permit = Permit.make(experiment, policy, dataset, folder)
    permit.check(experiment, roster, file, now=address is not None)
    member, protection = make_member(
        experiment,
        identity,
        roster,
        partial(_records, experiment, data, label),
        simulated=simulated,
        allow=permit.allow,
    )
    plan = protection.plan
    if plan is not None and folder is not None:
        check_unchanged(folder, keys, data)
    reserve = None if plan is None else partial(permit.charge, experiment.experiment.name, plan)
    return Prepared(address, identity, roster.federation, member, plan, folder, reserve, permit.guard)


def _records(experiment: Experiment, data: str, label: str | None) -> Shard:
    """Read the node's records as the experiment wants them."""
    if experiment.statistics is not None:
        return own_codes(experiment, data)
    return read_own_records(data, label, experiment.data, gather_without_records(experiment).dataset)


class Outcome(NamedTuple):
    """How a node's part ended, and what it gave and sent."""

    over: Over
    node: int
    answers: int
    participations: int
    counts: Counts
    offer: bytes = b""  # that an agent left the run for


def join(
    ready: Prepared,
    *,
    keep_alive: int = KEEP_ALIVE,
    stays: bool = False,
    leaves: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Take part in a run until the server says that it is over, or this process is told to stop.

    One that `stays` outlives refusals by the server; one that `leaves` goes when it is offered something else.
    """
    from sottovoce.federation.engines.mqtt.transport import Transport

    if ready.address is None:
        raise InputError("a node needs the address of a broker")
    member, identity = ready.member, ready.identity
    opening = member.opening is not None
    with Book(ready.state, ready.plan, opening=opening, reserve=ready.reserve) as book, interrupted() as stop:
        if ready.plan is not None and (given := book.given_elsewhere):
            log.warning(
                "this node has taken part %d times in other private experiments; if its records are the same, what all "
                "of them learn adds up: see %s",
                given,
                None if ready.state is None else ready.state.parent,
            )
        node = Node(member, book, guard=ready.guard, stays=stays, leaves=leaves)
        ear = Ear(node, ready.federation, queue.SimpleQueue(), watch=watch)
        stop.append(lambda: ear.events.put(None))
        transport = Transport(
            ready.address,
            ear,
            name=f"sottovoce-{ready.federation}-{member.number}",
            topic=topic_to(ready.federation, member.number),
            credentials=TlsFiles(identity.certificate, identity.private_key, identity.ca),
            most=member.most,
            keep_alive=keep_alive,
            lasting=True,
            until_refused=not (stays or leaves),
        )
        stop.append(transport.stop)
        over = talk(node, ear, transport)
        return Outcome(over, member.number, node.answered, book.spent, transport.counts, node.offer)


def talk(node: Node, ear: Ear, carrier: Carrier) -> Over:
    """Connect, and answer whatever comes until the node is over or interrupted."""
    carrier.connect()
    topic = topic_from(ear.federation, node.member.number)
    try:
        while node.over is None:
            try:
                event = ear.events.get(timeout=_QUIET if node.busy else None)
            except queue.Empty:
                node.busy = False
                carrier.attend(busy=False)
                continue
            ear.taken(event)
            if event is None:
                return Over(0, INTERRUPTED)
            if isinstance(event, int) and not node.connection:
                log.info("connected as node %d", node.member.number)
            sent = [node.hello(event, carrier.link())] if isinstance(event, int) else node.receive(event)
            carrier.attend(busy=node.busy)
            for message in sent:
                if not carrier.publish(topic, message, patience=_ROOM):
                    carrier.flush(_ROOM)
                    carrier.publish(topic, message)  # if there is still no room the server asks again
        return node.over
    finally:
        if node.connection:
            carrier.flush(2.0)
            carrier.publish(topic, node.last_will(node.connection))  # in order: the broker sends no will then
            carrier.flush(2.0)
        carrier.close()


def check_simulated(address: Address, *, simulated: bool) -> None:
    """Refuse randomness that everybody can repeat anywhere but on one machine."""
    if simulated and not address.loopback:
        raise InputError(
            f"--simulate-randomness gives everybody the same secrets and is for tests on one machine; the broker "
            f"{address} is not on this one"
        )


@contextmanager
def interrupted() -> Iterator[list[object]]:
    """Call what is in the list when the process is told to stop by Ctrl-C or SIGTERM; elsewhere do nothing."""
    calls: list[object] = []
    if threading.current_thread() is not threading.main_thread():
        yield calls
        return

    def stop(_: int, __: FrameType | None) -> None:
        for call in calls:
            if callable(call):
                call()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield calls
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE: Final = 1 << 20  # bytes


def give_back_large_pieces() -> None:
    """Let large arrays go back to the system as soon as nobody holds them; glibc would keep them for later.

    Whoever trains without a pause is quicker when they are kept.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such switch
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
