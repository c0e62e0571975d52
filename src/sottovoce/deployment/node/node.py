"""One node of a federation as a state machine: messages in, messages out; no network and no clock.

It believes nobody. Every message must be signed by the server of its roster and fit the run that it joined; set-up,
session and terms are compared with what follows from its own copy of the experiment (`federation.client`,
`secagg.policy`); a round's phase is answered once, and a repeated request gets the same bytes again.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from sottovoce.core.errors import InputError, PolicyError, PrivacyError, SecAggError, SottovoceError
from sottovoce.core.remote import one_line
from sottovoce.deployment import countersign
from sottovoce.deployment.countersign import NO_PROMISE, Claim, Countersignature, Promise
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.offer import RunOffer
from sottovoce.deployment.policy import Guard
from sottovoce.federation.aggregation.ballots.count import in_run
from sottovoce.federation.client import Client, ClientState, Knowledge
from sottovoce.federation.engines.mqtt.carrier import LinkQuality
from sottovoce.federation.engines.mqtt.envelope import NO_RUN, SERVER, Envelope, Kind, open_message
from sottovoce.federation.engines.mqtt.greeting import Facts, Gone, Hello, Refusal, Welcome
from sottovoce.federation.engines.mqtt.parts import Assembly, parts
from sottovoce.federation.stages.evaluation import EVALUATION

CHARGED: Final = "mask"  # the phase whose answer is a protected vector; where ballots are cast it is "train"
REPEATS: Final = 32  # times that one answer is sent: whoever replays a request gets no more
POLICY: Final = b"policy"  # all that a server hears of a site's policy
LAST: Final = "unmask"  # the phase after which nothing of a round is needed any more

log = logging.getLogger(__name__)


class Over(NamedTuple):
    """Why a node stops, and with which exit code."""

    code: int
    words: str


@dataclass(frozen=True)
class Conversation:
    """A stage of a run as a node plays it."""

    scheme: str  # its name, by which the server names the stage
    rounds: range
    client: Callable[[bytes], Client] = field(repr=False)  # made from the set-up message
    beside: bool = False  # beside the training, on its set-up message

    @property
    def opens(self) -> bool:
        """Tell whether it is round 0."""
        return self.rounds[0] == 0


@dataclass(frozen=True)
class Member:
    """What a node is before it meets anybody: its number and keys, and what it made of its experiment."""

    number: int
    signing_key: bytes = field(repr=False)
    server: bytes  # the training server's verifying key, from the roster
    facts: Facts
    conversations: tuple[Conversation, ...]  # of a run, in the order in which they begin
    private: bool
    promise: Promise = NO_PROMISE  # what its own plan says
    most: int = 1 << 28  # bytes of the largest message that is read
    expires: int | None = None  # its certificate, in seconds since 1970

    @property
    def training(self) -> Conversation:
        """Return the training."""
        return next(each for each in self.conversations if not each.opens and not each.beside)

    @property
    def opening(self) -> Conversation | None:
        """Return what it plays in round 0; None: there is none."""
        return next((each for each in self.conversations if each.opens), None)

    def measurer(self, setup: bytes) -> Client | None:
        """Return itself as it measures the model, beside the training; None: it does not."""
        return next((each.client(setup) for each in self.conversations if each.beside), None)


class _Stored(NamedTuple):
    """An answer that was given, and the hash of what was asked."""

    asked: bytes
    kind: Kind
    payload: bytes
    sent: int = 1


class Kept(NamedTuple):
    """What a node remembers of one seat."""

    round: int
    answers: dict[str, _Stored]
    state: ClientState


class Memory(NamedTuple):
    """What a node remembers from one message to the next; it holds secrets while a round lasts."""

    life: str
    connection: int
    run: bytes
    attempt: int
    setup: bytes
    seat: Kept | None
    beside: Kept | None
    opening: bool = False  # it is in round 0


@dataclass
class _Seat:
    """One of the two conversations that a node has in a run: its rounds, and the measurements beside them."""

    client: Client
    state: ClientState
    round: int = -1
    answers: dict[str, _Stored] = field(default_factory=dict)  # of the newest round, by phase

    def kept(self, *, over: bool) -> Kept:
        """Return what to remember; of a round that was answered to the end no secrets, unless keys outlive it."""
        policy = self.client.knowledge.policy
        ended = LAST in self.answers and not (policy is not None and policy.key_life == "session")
        state = replace(self.state, masking=None, heard=None) if ended or over else self.state
        return Kept(self.round, self.answers, state)


class Node:
    """A node that talks to one server; secrets are in memory only.

    Guarantee: of a run at most one vector is masked for each round, and it leaves after its charge is on disk.
    """

    def __init__(
        self,
        member: Member,
        book: Book,
        life: str | None = None,
        guard: Guard | None = None,
        *,
        stays: bool = False,
        leaves: bool = False,
    ) -> None:
        self._stays = stays  # when it is refused: the server may come back with another file
        self._leaves = leaves  # when it is offered something else: an agent decides then
        self.offer = b""  # that it left for
        self._refusal = ""  # what was said of it last
        self.member = member
        self._book = book
        self._guard = guard  # what the site's policy allows now; None: there is none
        self._life = life or os.urandom(8).hex()
        self._connection = 0
        self._run = NO_RUN
        self._attempt = 0
        self._setup = b""
        self._opening = False  # it plays round 0
        self._seat: _Seat | None = None
        self._beside: _Seat | None = None  # where it measures
        self._link = LinkQuality()
        self.part = 0  # bytes of a part of an answer, as its link wants them; 0: answers go whole
        self._coming = Assembly(member.most)
        self.busy = False  # a round waits for it
        self.answered = 0
        self.dropped = 0  # messages that did not open or did not fit
        self.over: Over | None = None

    @property
    def knowledge(self) -> Knowledge | None:
        """Return what the node knows of the run; None before it was welcomed."""
        return None if self._seat is None else self._seat.client.knowledge

    @property
    def connection(self) -> int:
        """Return the number of the connection that the node last said hello over."""
        return self._connection

    def memory(self) -> Memory:
        """Return what the node remembers, for a process that will go on for it; `recall` takes it.

        The secrets of a round that it has answered to the end are not in it, unless keys live for the session.
        """
        over = self.over is not None
        seat, beside = (None if seat is None else seat.kept(over=over) for seat in (self._seat, self._beside))
        return Memory(self._life, self._connection, self._run, self._attempt, self._setup, seat, beside, self._opening)

    def recall(self, memory: Memory) -> None:
        """Go on as the process whose memory this is."""
        self._life, self._connection, self._run = memory.life, memory.connection, memory.run
        self._attempt, self._setup, self._opening = memory.attempt, memory.setup, memory.opening
        self._seat = self._beside = None
        if memory.seat is not None:
            kept = memory.seat
            client = self._in_run(self._client(memory.setup), memory.run)
            self._seat = _Seat(client, kept.state, kept.round, kept.answers)
        if memory.beside is not None and (measurer := self.member.measurer(memory.setup)) is not None:
            kept = memory.beside
            self._beside = _Seat(self._in_run(measurer, memory.run), kept.state, kept.round, kept.answers)

    def hello(self, connection: int | None = None, link: LinkQuality | None = None) -> bytes:
        """Return the greeting to send over a connection; what it showed of the link sets how answers are sent."""
        self._connection = connection or self._connection
        if link is not None:
            self._link, self.part = link, link.part
        joined = "" if self._run == NO_RUN or self._opening else self._run.hex()  # in round 0 a set-up is yet to come
        has, held = self._coming.held
        hello = Hello(
            self.member.facts,
            self._life,
            self._connection,
            joined,
            self.member.expires,
            round_trip=round(1e3 * self._link.round_trip),
            rate=math.ceil(self._link.rate),
            has=has,
            held=held,
        )
        return self._sign(Kind.HELLO, hello.pack())

    def last_will(self, connection: int) -> bytes:
        """Return what the broker is to send when a connection is lost."""
        return self._sign(Kind.GONE, Gone(self._life, connection).pack())

    def receive(self, message: bytes) -> list[bytes]:
        """Take in a message and return what to send; one that is not the server's, or does not fit, is dropped."""
        member = self.member
        try:
            came = open_message(
                message,
                receiver=member.number,
                key_of=lambda sender: member.server if sender == SERVER else None,
                most=member.most,
            )
            if came.kind != Kind.PART:
                return self._allowed(came, len(message))
            self.busy = True
            whole = self._coming.add(came, Kind.ASK)
            return self._counted(len(message)) if whole is None else self._allowed(whole, len(message))
        except SottovoceError as error:
            self.dropped += 1
            log.debug("dropped: %s", error)
            return []

    def _allowed(self, came: Envelope, size: int) -> list[bytes]:
        """Act on a message if the site's policy allows it now; a request that it does not allow is told "policy"."""
        guard = self._guard
        if guard is None:
            return self._act(came)
        try:
            guard.admit(size, came=True)
            if came.kind == Kind.ASK:
                guard.check()
            sent = self._act(came)
            guard.admit(sum(map(len, sent)))
            return sent
        except PolicyError as error:
            log.warning("round %d, %s: refused: %s", came.round, came.phase, error)
            return [self._sign(Kind.REFUSAL, POLICY, came)] if came.kind == Kind.ASK else []

    def _counted(self, size: int) -> list[bytes]:
        """Count bytes of which nothing can be made yet."""
        if self._guard is not None:
            self._guard.admit(size, came=True)
        return []

    def _act(self, came: Envelope) -> list[bytes]:
        if came.kind == Kind.HELLO:
            return [self.hello()]
        if came.kind == Kind.WELCOME:
            self._enter(came, Welcome.unpack(came.payload))
        elif came.kind == Kind.REFUSAL:
            refusal = Refusal.unpack(came.payload)
            if refusal.life == self._life:
                self._refused(f"the server refuses this node: {refusal.reason}")
        elif came.kind == Kind.ASK:
            return self._asked(came)
        elif came.kind == Kind.OFFER and self._leaves and came.run == self._run:
            if RunOffer.unpack(came.payload).announces:  # else an answer to what it asked before it joined
                self.offer, self.over = came.payload, Over(0, "the server has another roster")
        elif came.kind == Kind.BYE and came.run == self._run:
            self._part(came.payload)
        else:
            self.dropped += 1
        return []

    def _refused(self, words: str) -> None:
        """End, or stay and say once why the node takes no part; the server asks again when it comes back."""
        if not self._stays:
            self.over = Over(InputError.exit_code, words)
        elif words != self._refusal:
            self._refusal = words
            log.warning("%s; waiting for the server to come back with another file", words)

    def _enter(self, came: Envelope, welcome: Welcome) -> None:
        """Join the run, or go on with it; a run that is not that of the own file ends the node."""
        if welcome.life != self._life:
            return  # an old one, for an earlier life of this node
        if (difference := self.member.facts.difference(welcome.facts)) is not None:
            self._refused(f"the server plays another run than this node: {difference}")
            return
        opening = self.member.opening is not None and welcome.stage == self.member.opening.scheme
        if welcome.stage != (own := self.member.training.scheme) and not opening:
            self._refused(f"the server plays {welcome.stage}, and this node {own}")
            return
        self._refusal = ""
        if came.run == self._run and opening and not self._opening:
            self.dropped += 1  # round 0 is over
            return
        if came.run == self._run and self._opening == opening:
            if welcome.setup not in (b"", self._setup):
                self.over = Over(SecAggError.exit_code, "the server sent a second, different set-up for the same run")
            self._attempt = came.attempt
            return
        try:
            client = self._in_run(self._client(welcome.setup, opening=opening), came.run)
            measurer = None if opening else self.member.measurer(welcome.setup)
            measurer = None if measurer is None else self._in_run(measurer, came.run)
        except SottovoceError as error:
            log.warning("the server's set-up is refused: %s", error)
            raise
        if came.run == self._run and self._seat is not None:
            self._attempt, self._setup, self._opening = came.attempt, welcome.setup, False
            beside = self._book.enter(came.run)[1]
            self._seat = _Seat(client, ClientState(mark=self._seat.state.mark))
            self._beside = None if measurer is None else _Seat(measurer, ClientState(mark=beside))
            return
        if self._run != NO_RUN:
            log.info("the server began another run; secrets of the last one are forgotten")
        self._run, self._attempt, self._setup, self._opening = came.run, came.attempt, welcome.setup, opening
        mark, beside = self._book.enter(came.run)
        self._seat = _Seat(client, ClientState(mark=mark))
        self._beside = None if measurer is None else _Seat(measurer, ClientState(mark=beside))
        log.info("joined run %s", came.run.hex()[:8])

    def _client(self, setup: bytes, *, opening: bool | None = None) -> Client:
        first = self.member.opening if (self._opening if opening is None else opening) else None
        return (first or self.member.training).client(setup)

    def _in_run(self, client: Client, run: bytes) -> Client:
        """Return a client that signs for this run alone; the federation is that of the node's own roster."""
        return in_run(client, bytes.fromhex(self.member.facts.roster), run)

    def _part(self, payload: bytes) -> None:
        words = one_line(payload[1:])
        if payload[:1] == b"\x01":
            self.over = Over(0, words)
        else:
            log.warning("the server stopped: %s; waiting for it to come back", words)

    def _asked(self, came: Envelope) -> list[bytes]:
        seat = self._seat if came.round < EVALUATION or self._beside is None else self._beside
        if came.run != self._run or seat is None:
            return [self.hello()]  # it does not know that we are new
        if came.phase == countersign.PHASE:
            return self._countersigned(came)
        if came.attempt < self._attempt or came.round < seat.round:
            self.dropped += 1  # of an earlier life of the server, or a round that is over
            return []
        try:
            self._check_round(seat, came.round)  # before anything is remembered: rounds only rise
        except SecAggError as error:
            log.warning("round %d, %s: refused: %s", came.round, came.phase, error)
            return [self._sign(Kind.REFUSAL, str(error).encode(), came)]
        self._attempt = came.attempt
        if came.round > seat.round:
            seat.round, seat.answers = came.round, {}
        asked = hashlib.sha256(came.payload).digest()
        stored = seat.answers.get(came.phase)
        if stored is None:
            stored = seat.answers[came.phase] = _Stored(asked, *self._answer(seat, came))
        elif stored.sent >= REPEATS:
            self.dropped += 1
            return []
        else:
            seat.answers[came.phase] = stored._replace(sent=stored.sent + 1)
            if stored.asked != asked:
                log.warning("round %d: a second, different request for %s was refused", came.round, came.phase)
                reason = f"phase {came.phase} of round {came.round} was answered already, to another request"
                stored = _Stored(asked, Kind.REFUSAL, reason.encode())
        self.busy = came.phase not in (LAST, "train")
        return self._parts(stored, came)

    def _parts(self, stored: _Stored, to: Envelope) -> list[bytes]:
        """Return an answer as it travels: in parts if the link is too thin for all of it at once."""
        if stored.kind != Kind.ANSWER or not 0 < self.part < len(stored.payload):
            return [self._sign(stored.kind, stored.payload, to)]
        whole = replace(to, kind=stored.kind, sender=self.member.number, receiver=SERVER, payload=stored.payload)
        return [part.sign(self.member.signing_key) for part in parts(whole, self.part)]

    def _check_round(self, seat: _Seat, round_: int) -> None:
        """Raise unless a round can be asked for now."""
        if (round_ == 0) != self._opening:
            now = "round 0 is open" if self._opening else "there is no round 0, or it is over"
            raise SecAggError(f"round {round_} is refused: {now}")
        seat.client.knowledge.check_round(round_)

    def _answer(self, seat: _Seat, came: Envelope) -> tuple[Kind, bytes]:
        try:
            charged = came.phase == ("train" if seat.client.knowledge.ballot is not None else CHARGED)
            if charged and not self._book.affords(came.round):
                spent = (
                    f"taken part {self._book.spent} times" if came.round else "sent its message before round 1 already"
                )
                raise PrivacyError(f"this node has {spent}, which is all that its privacy plan allows")
            if charged:
                self._book.intend(came.round)
            payload, state = seat.client.answer(came.round, came.phase, came.payload, seat.state)
            if charged:
                self._book.charge(came.round)  # on disk before anything leaves
        except SottovoceError as error:
            log.warning("round %d, %s: refused: %s", came.round, came.phase, error)
            return Kind.REFUSAL, self._reason(error).encode()
        seat.state = state
        self.answered += 1
        return Kind.ANSWER, payload

    def _countersigned(self, came: Envelope) -> list[bytes]:
        """Sign whether what the server will publish agrees with the own account: one claim a run, and no other."""
        claim, member = Claim.unpack(came.payload), self.member
        difference = claim.difference(
            run=came.run.hex(),
            roster=member.facts.roster,
            experiment=member.facts.config,
            promise=member.promise,
            begun=self._book.highest(came.run),
        )
        if difference is not None:
            log.warning("the server's account of the run is not this node's: %s; keep the ledger", difference)
        try:
            opening = self._book.sign(came.run, claim, agrees=difference is None)
        except PrivacyError as error:
            log.warning("%s", error)
            return [self._sign(Kind.REFUSAL, b"another claim was signed", came)]
        signed = Countersignature.make(
            claim, member.number, member.signing_key, agrees=difference is None, commitment=opening.commitment
        )
        return [self._sign(Kind.ANSWER, signed.pack(), came)]

    def _reason(self, error: SottovoceError) -> str:
        """Return what the server is told; in a private run nothing that could depend on records."""
        if isinstance(error, PolicyError):
            return POLICY.decode()
        if self.member.private and not isinstance(error, PrivacyError | SecAggError):
            return "this node could not answer; its operator sees why"
        return str(error)

    def _sign(self, kind: Kind, payload: bytes, to: Envelope | None = None) -> bytes:
        member = self.member
        envelope = Envelope(kind, member.number, SERVER, payload)
        if to is not None:
            envelope = Envelope(kind, member.number, SERVER, payload, to.run, to.round, to.phase, to.attempt)
        return envelope.sign(member.signing_key)
