"""Reach clients on other machines: ask over MQTT, wait no longer than agreed, and hand on what comes.

Two threads meet here. The connection's thread opens messages, greets nodes and puts answers into a queue; the thread
that plays the round takes them out and hands each to its request. What both touch is under one lock.

Who is there is known from greetings and last wills. It shortens the wait for those who are gone, and decides nothing
else: a client that was drawn is asked whether it is there or not.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from sottovoce.core.errors import RunError, SottovoceError, WireError
from sottovoce.core.remote import one_line
from sottovoce.federation.client import UPDATE_PHASES
from sottovoce.federation.engine import Enrolment, Reply, Request
from sottovoce.federation.engines.mqtt.carrier import SLOW_TRIP, UNKNOWN, Carrier, DeclaredLink, LinkQuality, Listener
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, open_message, topic_from, topic_to
from sottovoce.federation.engines.mqtt.greeting import Facts, Gone, Hello, Refusal, Welcome
from sottovoce.federation.engines.mqtt.parts import Assembly, digest, parts

GRACE: Final = 2.0  # seconds that a client which is gone has to come back before its round goes on without it
SHORT: Final = 4096  # bytes of a request that leaves at once on any link; a longer one has time to travel
SLACK: Final = 3.0  # times as long as its bytes need may a message travel
_TRIPS: Final = 10  # round trips in which whoever lost its connection is back
_RETURNS: Final = 3  # of one node, which show that its link flaps
_TICK: Final = 0.5  # seconds between two looks at the clock
_LONGEST_BYE: Final = 2000  # bytes
_AT_ONCE: Final = 4.0  # greetings of a node that are answered without delay; every further one waits
_LIVES: Final = 8  # of a node that are remembered, to see one of them come back
_PAUSE: Final = 15.0  # seconds until one more greeting is answered

log = logging.getLogger(__name__)


class Greeted(Protocol):
    """Who greets: which life of a node, over which connection of it, and until when its certificate holds."""

    @property
    def life(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> int: ...  # noqa: D102
    @property
    def expires(self) -> int | None: ...  # noqa: D102


AnswerWant = Callable[[int, bytes], tuple[bytes, str | None, Greeted]]
"""What an agent is offered, by its number and what it wants: the payload, why it does not play, and who it is."""


@dataclass(frozen=True)
class ServerPlace:
    """Where a server stands: its keys, its run, and how long it waits."""

    federation: str
    run: bytes
    keys: Mapping[int, bytes]
    signing_key: bytes = field(repr=False)
    facts: Facts
    attempt: int = 0
    phase_timeout: float = 60.0
    train_timeout: float = 600.0
    min_nodes: int = 1
    most: int = 1 << 28
    slowest: DeclaredLink | None = None  # what the operator says of the links
    close: float = 1.0  # share of a round's nodes at which a phase goes on without the others
    names: Mapping[int, str] = field(default_factory=dict)  # of nodes, as the roster has them
    offer: AnswerWant | None = field(default=None, repr=False)  # None: agents are offered nothing


class Presence(NamedTuple):
    """What the server knows of one node now."""

    id: int
    name: str
    there: bool
    seen: float | None  # when a message of it last opened, by time.time; None: never
    waited_for: bool
    refused: str | None  # why its greeting is refused
    cloned: bool  # two processes use its key
    expires: int | None  # its certificate, by time.time; None: it did not say


@dataclass
class Status:
    """What the operator is shown of a federation at work."""

    nodes: int = 0
    there: int = 0
    round: int = 0
    phase: str = ""
    waiting_for: int = 0
    late: int = 0  # answers that came after their phase was closed, or twice
    foreign: int = 0  # messages that did not open
    broker: bool = False  # the connection to it stands
    since: float = 0.0  # when the phase began, by time.time
    expires: float | None = None  # when the server's certificate does, by time.time
    presence: Callable[[], list[Presence]] = field(default=list, repr=False)  # of every node, asked for when wanted


@dataclass
class _Allowance:
    """How often something may be done for a node: `most` times at once, and once more after every pause."""

    most: float
    left: float
    counted_at: float = field(default_factory=time.monotonic)

    def take(self, cost: float = 1.0) -> bool:
        """Tell whether it may be done now; if so, it counts."""
        now = time.monotonic()
        self.left = min(self.most, self.left + (now - self.counted_at) / _PAUSE)
        self.counted_at = now
        if self.left < cost:
            return False
        self.left -= cost
        return True


@dataclass
class _Node:
    """What the server knows of a node's presence.

    An answer can be a million times as long as a greeting, and any node can greet as often as it likes, with facts,
    lives and connections of its own making. So answers have an allowance, and so have lines of the log.
    """

    life: str = ""
    connection: int = 0
    run: str = ""  # that it has joined, in hex
    there: bool = False
    gone_at: float = 0.0
    seen: float | None = None  # by time.time
    expires: int | None = None
    lives: dict[str, int] = field(default_factory=dict)  # that it had before, with the last connection of each
    cloned: bool = False
    said_gone: bool = False  # the log's last word on it
    refusal: Refusal | None = None  # what its greeting was refused for
    want: bytes | None = None  # what an agent asked that does not play yet
    answered: tuple[str, int, int] | None = None  # life, its connection and ours of the greeting answered last
    answered_at: float = -math.inf
    owed: bool = False  # its greeting is answered as soon as it may be
    link: LinkQuality = UNKNOWN  # as it says
    has: str = ""  # digest of the request that it has, or has a part of
    held: int = 0  # bytes of it
    coming: Assembly | None = None  # its answer, if that comes in parts
    heard_at: float = -math.inf  # by time.monotonic
    absence: float = 0.0  # the longest that it came back from
    returns: int = 0  # connections that this life of it made anew
    answers: _Allowance = field(default_factory=lambda: _Allowance(_AT_ONCE, _AT_ONCE))
    lines: _Allowance = field(default_factory=lambda: _Allowance(2 * _AT_ONCE, 2 * _AT_ONCE))


@dataclass(eq=False)
class _Pending:
    """One request under way: who has not answered, and what each was sent."""

    request: Request
    waiting: set[int]
    began: float
    limits: dict[int, float] = field(default_factory=dict)  # until when each node is waited for, by time.monotonic
    came: set[int] = field(default_factory=set)  # whose answer is in the queue, or was
    enough_at: float | None = None  # since when as many have answered as are needed


class MqttEngine:
    """An engine whose clients are nodes of a roster, behind a broker."""

    def __init__(
        self, place: ServerPlace, carrier: Callable[[Listener], Carrier], check: Callable[[], None] = lambda: None
    ) -> None:
        self.place = place
        self._check = check  # called while nodes are waited for; it raises if waiting is in vain
        self._carrier = carrier(self)
        self._lock = threading.RLock()
        self._nodes = {node: _Node() for node in place.keys}
        self._answers: queue.SimpleQueue[Envelope | None] = queue.SimpleQueue()
        self._enrolment: Enrolment | None = None
        self._pending: _Pending | None = None
        self._refused: dict[int, str] = {}
        self._wire = (0, 0)
        self._cohort = (-1, 0)  # round, and how many nodes it began with
        self._flaps_told = False
        self._over = False
        self._connection = 0
        self.status = Status(nodes=len(self._nodes), presence=self._presence)

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every node that is there the set-up, and whoever comes later; waits until enough are there."""
        if enrolment.memory:
            raise RunError(
                f"{enrolment.scheme.name} lets clients keep a copy of the model, which a node that missed a round "
                "does not have; choose another scheme"
            )
        if enrolment.measures:
            return  # nodes know all of it from their own file
        with self._lock:
            self._enrolment = enrolment
            for number, node in self._nodes.items():
                if node.life:
                    node.owed = not self._answer_greeting(number, node)
        self._await_nodes()

    def send(self, request: Request) -> Reply:
        """Ask the clients of a request, and hand it what they answer in time."""
        asked = set(request.payloads)
        for stranger in asked - self._nodes.keys():
            raise RunError(f"client {stranger} is not in the roster; [data] clients must be the number of its nodes")
        began = time.monotonic()
        if self._cohort[0] != request.round:
            self._cohort = request.round, len(asked)
        with self._lock:
            limits = {client: began + self._seconds(request, client) for client in asked}
            pending = self._pending = _Pending(request, asked - request.silent, began, limits)
            for client in asked:
                self._nodes[client].coming = None
        self.status.round, self.status.phase, self.status.since = request.round, request.phase, time.time()
        for client in request.payloads:
            if not self._ask(client, request, patience=max(0.0, limits[client] - time.monotonic())):
                self._nodes[client].owed = True  # it is asked when there is room
        sizes: dict[int, int] = {}
        failures: dict[int, str] = {}
        left: dict[int, str] = {}
        while pending.waiting:
            self.status.waiting_for = len(pending.waiting)
            self._pay_debts()
            left |= self._give_up(pending, len(sizes))
            if pending.waiting and (answer := self._next(pending)) is not None:
                self._hand_over(pending, answer, sizes, failures)
        with self._lock:
            self._pending = None
        self.status.waiting_for, self.status.phase = 0, ""
        taken, asked_ = time.monotonic() - began, len(asked)
        log.debug("round %d, %s: %d of %d answered in %.1f s", request.round, request.phase, len(sizes), asked_, taken)
        return Reply(sizes, failures, left, self._wire_since())

    def say_bye(self, words: str, *, done: bool) -> None:
        """Tell all nodes that the run is over, or that the server stops and may come back."""
        self._over = True
        for number in self._nodes:
            payload = bytes([done]) + words.encode()[:_LONGEST_BYE]
            self._post(Envelope(Kind.BYE, SERVER, number, payload, self.place.run, attempt=self.place.attempt))
        self._carrier.flush(5.0)

    def announce(self, offers: Mapping[int, bytes]) -> None:
        """Tell nodes what is new, such as a roster in which they have other numbers; whoever is an agent leaves."""
        for number, payload in offers.items():
            self._post(Envelope(Kind.OFFER, SERVER, number, payload, self.place.run, attempt=self.place.attempt))
        self._carrier.flush(5.0)

    def close(self) -> None:
        """Disconnect."""
        self._carrier.close()

    def __enter__(self) -> Self:
        self._carrier.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What follows is called by the connection's thread.

    def heard(self, topic: str, message: bytes) -> None:
        """Take in a message; one that does not open, or comes over another node's topic, is counted and dropped."""
        try:
            envelope = open_message(message, receiver=SERVER, key_of=self.place.keys.get, most=self.place.most)
            if topic != topic_from(self.place.federation, envelope.sender):
                raise WireError(f"message of node {envelope.sender} came over {topic}")
            self._nodes[envelope.sender].seen, self._nodes[envelope.sender].heard_at = time.time(), time.monotonic()
            if envelope.kind == Kind.HELLO:
                self._greet(envelope.sender, Hello.unpack(envelope.payload))
            elif envelope.kind == Kind.GONE:
                self._part(envelope.sender, Gone.unpack(envelope.payload))
            elif envelope.kind == Kind.WANT and self.place.offer is not None and not self._over:
                self._wanted(envelope.sender, envelope.payload)
            elif envelope.kind == Kind.PART:
                self._take_part(envelope)
            elif envelope.kind in (Kind.ANSWER, Kind.REFUSAL):
                self._take_in(envelope)
        except SottovoceError as error:
            self.status.foreign += 1
            log.debug("dropped: %s", error)

    def connected(self, connection: int) -> None:
        """Ask who is there: every node says hello, and whoever owes an answer, which may be lost, is asked again."""
        self._connection, self.status.broker = connection, True
        for number in self._nodes:
            self._post(Envelope(Kind.HELLO, SERVER, number, b"", self.place.run, attempt=self.place.attempt))

    def lost(self, reason: str) -> None:
        """Say that the broker cannot be reached; the connection is being made anew."""
        self.status.broker = False
        log.warning("broker: %s; trying again", reason)

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Return nothing: nodes wait for a server however long it is gone."""
        return None

    def _greet(self, number: int, hello: Hello) -> None:
        """Note who is there, and answer: once for each life and connection, a repeated greeting after a pause."""
        difference = self.place.facts.difference(hello.facts)
        with self._lock:
            node = self._nodes[number]
            node.expires, node.want = hello.expires, None
            cloned = self._clone_shows(node, hello)
            if difference is not None:
                said, self._refused[number] = self._refused.get(number), difference
                node.refusal, node.owed = Refusal(hello.life, difference), True
            elif hello.life == node.life and hello.connection < node.connection:
                return  # an old one, late
            else:
                new = not node.there
                self._note_return(node, hello)
                node.link = LinkQuality(min(hello.round_trip / 1e3, 60.0), float(hello.rate))
                node.has, node.held = hello.has, hello.held
                node.life, node.connection, node.run, node.there = hello.life, hello.connection, hello.run, True
                node.refusal = None
                node.owed = node.owed or self._unanswered(node)
                self._refused.pop(number, None)
                self._count()
        if cloned:
            self._tell_clone(number, node)
        if difference is None and new and (node.said_gone or node.lines.take()):
            node.said_gone = False
            log.info("%s is there", self._name(number))
        elif difference is not None and said != difference and node.lines.take():
            log.warning("%s is refused: %s", self._name(number), difference)
        self._pay(number)
        self._advise()
        self._wake()

    def _wanted(self, number: int, want: bytes) -> None:
        """Note that an agent is there and plays nothing; it is offered the experiment as often as greetings are."""
        with self._lock:
            node = self._nodes[number]
            node.want, node.refusal, node.owed = want, None, True
            node.there = False
            self._count()
        self._pay(number)

    def _make_offer(self, number: int, node: _Node) -> bool:
        """Send an offer, and say once why an agent does not play what it was offered; tell whether there was room."""
        if self.place.offer is None or node.want is None:
            return True
        try:
            payload, remark, who = self.place.offer(number, node.want)
        except SottovoceError as error:
            self.status.foreign += 1
            log.debug("dropped: %s", error)
            return True
        if self._clone_shows(node, who):
            self._tell_clone(number, node)
        node.life, node.connection, node.expires = who.life, who.connection, who.expires
        said = self._refused.pop(number, None)
        if remark is not None:
            self._refused[number] = remark
            if remark != said and node.lines.take():
                log.warning("%s does not play: %s", self._name(number), remark)
        envelope = Envelope(Kind.OFFER, SERVER, number, payload, self.place.run, attempt=self.place.attempt)
        return self._post(envelope)

    def _tell_clone(self, number: int, node: _Node) -> None:
        if node.lines.take():
            log.warning(
                "%s: two processes use its key: one that was followed by another has come back; if its operator did "
                "not start both, the key was copied: revoke it",
                self._name(number),
            )

    def _note_return(self, node: _Node, hello: Hello) -> None:
        """Learn from a node that comes back how long its link may be gone."""
        if hello.life == node.life and hello.connection > node.connection:
            node.returns += 1
            if not node.there:
                node.absence = max(node.absence, time.monotonic() - node.gone_at)

    def _advise(self) -> None:
        """Say once that links flap, where a protocol of one message would do better."""
        phase = self.status.phase
        if self._flaps_told or phase in ("", "train"):
            return
        flapping = [number for number, node in self._nodes.items() if node.returns >= _RETURNS]
        if flapping:
            self._flaps_told = True
            log.warning(
                'the link of %s breaks again and again; with [aggregation] secure = "ballot" a round is one message '
                "of each node, and waits for nobody twice (docs/ballots.md)",
                self._name(flapping[0]),
            )

    def _clone_shows(self, node: _Node, hello: Greeted) -> bool:
        """Tell whether a process greets that another one of the same key had followed; lives that ended never greet.

        A greeting that comes late is of a connection that was seen, so it is none.
        """
        if hello.life != node.life and node.life:
            node.lives[node.life] = node.connection
            if len(node.lives) > _LIVES:
                del node.lives[next(iter(node.lives))]
        back = hello.life != node.life and hello.connection > node.lives.get(hello.life, hello.connection)
        shown, node.cloned = node.cloned, node.cloned or back
        return back and not shown

    def _unanswered(self, node: _Node) -> bool:
        """Tell whether a node's greeting is to be answered: it is the first of its life and connection, or a repeated
        one of a node that has missed the answer before."""
        if (node.life, node.connection, self._connection) != node.answered:
            return True
        return node.run != self.place.run.hex() and time.monotonic() >= node.answered_at + _PAUSE

    def _pay(self, number: int) -> None:
        """Answer a greeting that is owed an answer, if it may be answered now; else `_pay_debts` tries again."""
        with self._lock:
            node = self._nodes[number]
            ready = node.refusal is not None or self._enrolment is not None or node.want is not None
            if not node.owed or not ready or not node.answers.take():
                return
            node.owed = not self._answer_greeting(number, node)

    def _answer_greeting(self, number: int, node: _Node) -> bool:
        """Send an offer, a refusal, or a welcome and the request that the node has not answered; tell whether there was
        room."""
        if node.want is not None:
            return self._make_offer(number, node)
        if node.refusal is not None:
            words = node.refusal.pack()
            return self._post(Envelope(Kind.REFUSAL, SERVER, number, words, self.place.run, attempt=self.place.attempt))
        node.answered, node.answered_at = (node.life, node.connection, self._connection), time.monotonic()
        return self._welcome(number, node) and self._ask_again(number)

    def _wake(self) -> None:
        """Let whoever waits for nodes look again."""
        if self._answers.empty():
            self._answers.put(None)

    def _take_part(self, part: Envelope) -> None:
        """Put a part of an answer to what is there of it; only of a node that is waited for, one answer each."""
        with self._lock:
            pending, node = self._pending, self._nodes[part.sender]
            if pending is None or part.sender in pending.came or not self._fits(pending, part):
                self.status.late += 1
                return
            node.coming = node.coming or Assembly(self.place.most)
            whole = node.coming.add(part, Kind.ANSWER)
        if whole is not None:
            node.coming = None
            self._take_in(whole)

    def _take_in(self, answer: Envelope) -> None:
        """Keep an answer that is waited for: one of each node, so that nobody can fill the memory."""
        with self._lock:
            pending = self._pending
            if pending is None or answer.sender in pending.came or not self._fits(pending, answer):
                self.status.late += 1
                return
            pending.came.add(answer.sender)
        self._answers.put(answer)

    def _part(self, number: int, gone: Gone) -> None:
        with self._lock:
            node = self._nodes[number]
            if (gone.life, gone.connection) != (node.life, node.connection):
                return  # of an earlier connection: the node is back already
            node.there, node.gone_at, node.owed = False, time.monotonic(), False
            self._count()
        if not self._over and node.lines.take(2.0):  # with it the line that says that it is back
            node.said_gone = True
            log.info("%s is gone", self._name(number))
        self._wake()

    def _welcome(self, number: int, node: _Node) -> bool:
        told = self._enrolment
        if told is None:
            return False
        place = self.place
        setup = b"" if node.run == place.run.hex() else told.setup
        welcome = Welcome(place.facts, node.life, told.scheme.name, setup)
        return self._post(Envelope(Kind.WELCOME, SERVER, number, welcome.pack(), place.run, attempt=place.attempt))

    def _ask_again(self, number: int) -> bool:
        with self._lock:
            pending = self._pending
            if pending is None or number not in pending.waiting:
                return True
        return self._ask(number, pending.request, patience=0.0)

    def _name(self, number: int) -> str:
        name = self.place.names.get(number)
        return f"node {number}" if name is None else f"node {name}"

    def _presence(self) -> list[Presence]:
        """Return what is known of every node; any thread may ask."""
        with self._lock:
            waiting = frozenset() if self._pending is None else frozenset(self._pending.waiting)
            return [
                Presence(
                    number,
                    self.place.names.get(number, str(number)),
                    node.there,
                    node.seen,
                    number in waiting,
                    self._refused.get(number),
                    node.cloned,
                    node.expires,
                )
                for number, node in self._nodes.items()
            ]

    def _count(self) -> None:
        self.status.there = sum(node.there for node in self._nodes.values())

    # What follows is called by either.

    def _fits(self, pending: _Pending, answer: Envelope) -> bool:
        place, request = self.place, pending.request
        fits = answer.fits(answer.kind, place.run, request.round, request.phase, place.attempt)
        return fits and answer.sender in pending.waiting

    def _ask(self, client: int, request: Request, patience: float) -> bool:
        place, payload = self.place, request.payloads[client]
        asking = Envelope(
            Kind.ASK, SERVER, client, payload, place.run, request.round, request.phase, attempt=place.attempt
        )
        node = self._nodes[client]
        if not 0 < node.link.part < len(payload):
            return self._post(asking, patience)
        held = node.held if node.has == digest(payload).hex() else 0
        return all(self._post(part, patience) for part in parts(asking, node.link.part, held))

    def _seconds(self, request: Request, client: int) -> float:
        """Return how long a node may take to answer: what phases of the kind may, and before it what bytes need.

        Guarantee: never more than `phase_timeout` and `train_timeout` together, whatever a node says of its link.
        """
        place = self.place
        if request.phase in UPDATE_PHASES:
            return place.train_timeout
        node, size = self._nodes[client], len(request.payloads[client])
        if self._enrolment is not None and node.run != place.run.hex():
            size += len(self._enrolment.setup)  # it may still be on its way
        rates = [rate for rate in (node.link.least_rate, place.slowest and place.slowest.rate) if rate]
        travel = SLACK * size / min(rates) if rates and size > SHORT else 0.0
        return place.phase_timeout + min(place.train_timeout, travel)

    def _post(self, envelope: Envelope, patience: float = 0.0) -> bool:
        topic = topic_to(self.place.federation, envelope.receiver)
        return self._carrier.publish(topic, envelope.sign(self.place.signing_key), patience=patience)

    # What follows is called by the thread that plays the round.

    def _await_nodes(self) -> None:
        told = False
        while (there := self.status.there) < self.place.min_nodes:
            if not told:
                log.info("waiting for nodes: %d of %d are there", there, self.place.min_nodes)
                told = True
            self._check()
            self._pay_debts()
            self._next_event(_TICK)

    def _pay_debts(self) -> None:
        for number in [number for number, node in self._nodes.items() if node.owed]:
            self._pay(number)

    def _next_event(self, seconds: float) -> Envelope | None:
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def _next(self, pending: _Pending) -> Envelope | None:
        """Return the next answer to this request; what belongs elsewhere is dropped."""
        answer = self._next_event(_TICK)
        if answer is None:
            return None
        if not self._fits(pending, answer):
            self.status.late += 1
            return None
        return answer

    def _hand_over(self, pending: _Pending, answer: Envelope, sizes: dict[int, int], failures: dict[int, str]) -> None:
        with self._lock:
            pending.waiting.discard(answer.sender)
        if answer.kind == Kind.REFUSAL:
            failures[answer.sender] = one_line(answer.payload)
            return
        try:
            pending.request.take(answer.sender, answer.payload)
            sizes[answer.sender] = len(answer.payload)
        except SottovoceError as error:
            failures[answer.sender] = str(error)

    def _give_up(self, pending: _Pending, answers: int) -> dict[int, str]:
        """Return whom nobody waits for any longer: whose time is over, who is gone, and all once enough have answered.

        Of those whose answers are not needed nothing is said: they did nothing wrong.
        """
        now, request = time.monotonic(), pending.request
        with self._lock:
            over = {
                number: f"did not answer within {limit - pending.began:g} s"
                for number in pending.waiting
                if now >= (limit := pending.limits[number])
            }
            for number in pending.waiting - over.keys():
                node = self._nodes[number]
                if not node.there and now >= max(node.gone_at, pending.began, node.heard_at) + self._grace(node):
                    over[number] = self._refused.get(number, "is gone")
            pending.waiting.difference_update(over)
            if self._enough(request, answers):
                pending.enough_at = now if pending.enough_at is None else pending.enough_at
                if now - pending.enough_at >= self._margin(pending):
                    if not request.enough:
                        over |= dict.fromkeys(pending.waiting, "was not waited for: enough had answered")
                    pending.waiting.clear()
        return over

    def _enough(self, request: Request, answers: int) -> bool:
        """Tell whether a phase may close without those who have not answered."""
        if request.enough:
            return answers >= request.enough
        share = self.place.close
        return share < 1 and answers >= max(request.least, math.ceil(share * self._cohort[1]))

    def _margin(self, pending: _Pending) -> float:
        """Return how long to wait for the others when enough have answered: on links of seconds, little of a phase."""
        taken = 0.0 if pending.enough_at is None else pending.enough_at - pending.began
        slow = any(self._nodes[number].link.round_trip >= SLOW_TRIP for number in pending.request.payloads)
        return taken / 4 if slow else max(GRACE, taken / 4)

    def _grace(self, node: _Node) -> float:
        """Return how long a node that is gone has to come back: as its link needs, but no longer than a phase has."""
        slowest, link = self.place.slowest, node.link
        trips = max(link.round_trip, 0.0 if slowest is None else slowest.round_trip)
        outage = max(1.5 * node.absence, 0.0 if slowest is None else slowest.outage)
        carrying = 2 * link.part / link.rate if link.rate else 0.0
        return min(self.place.phase_timeout, max(GRACE, _TRIPS * trips + carrying + outage))

    def _wire_since(self) -> tuple[int, int]:
        before, self._wire = self._wire, self._carrier.wire()
        return self._wire[0] - before[0], self._wire[1] - before[1]
