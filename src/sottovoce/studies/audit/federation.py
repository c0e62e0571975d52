"""The federation of the games: real clients, coding, aggregator and server noise, in this process and without training.

What the adversary of differential privacy knows anyway, the others' messages, is fixed: their updates are zero (or +1
everywhere, where only signs can be sent). So nobody trains, and thousands of rounds take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.assembly.stages import ServerSide
from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.streams import Seeds
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Aggregator, Total
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.aggregation.secure import Secure, SimulatedKeys
from sottovoce.federation.aggregation.standing import Standing
from sottovoce.federation.client import UPDATE_PHASES, Knowledge, read_setup
from sottovoce.federation.coding import Coding, Opened, Private, Terms
from sottovoce.federation.engine import Enrolment, Reply, Request, drive
from sottovoce.federation.host import Host, Malice
from sottovoce.federation.sums import Fold
from sottovoce.federation.wrappers.behaviour import Behaviour
from sottovoce.models import Shard
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.studies.audit.canaries import Canaries
from sottovoce.studies.audit.sites import QUIET, ListeningCoding, Planted, Verbatim, site_records


@dataclass(frozen=True)
class Still:
    """A trainer whose updates are one value everywhere."""

    value: float

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the same update for each shard."""
        still = np.full(params.size, self.value, np.float32)
        return (still for _ in shards)

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Refuse: there are no records."""
        raise RunError("nobody on the stage of an audit has records")

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Refuse: there are no records."""
        raise RunError("nobody on the stage of an audit has records")


class AuditEngine:
    """An engine in this process; `told` is called with every payload that a client sends unmasked.

    `leavers` hear the opening of a round and leave before they send their words.
    """

    def __init__(
        self, host: Host, marked: frozenset[int], leavers: frozenset[int], told: Callable[[int, bytes], None]
    ) -> None:
        self._host = host
        self._marked = marked
        self._leavers = leavers
        self._told = told

    def enrol(self, enrolment: Enrolment) -> None:
        """Refuse: the clients of a stage are set up when it is made."""
        raise RunError("the clients of a stage know their set-up already")

    def send(self, request: Request) -> Reply:
        """Ask the clients of the request through their host, as every engine of a simulation does."""
        if request.opening and request.payloads:
            opening = next(iter(request.payloads.values()))
            self._host.hear(request.round, request.phase, list(request.payloads), opening)
        gone = self._leavers.intersection(request.payloads) if request.phase in UPDATE_PHASES else frozenset()
        reply = Reply({}, {}, dict.fromkeys(gone, f"left before {request.phase}"))
        asked = {c: b"" if request.opening else p for c, p in request.payloads.items() if c not in gone}
        for client, answer in self._host.step(request.round, request.phase, asked, self._marked):
            try:
                if answer.reason is not None:
                    raise RunError(answer.reason)
                request.take(client, answer.payload)
                reply.sizes[client] = len(answer.payload)
            except SottovoceError as error:
                reply.failures[client] = str(error)
                continue
            if request.phase == "train":
                self._told(client, answer.payload)
        return reply

    def close(self) -> None:
        """Let go of nothing: there is no other process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass
class WatchedSum:
    """The server's coding, with an eye on it: what it sees before it makes up noise, and whether it had paid."""

    inner: Private
    seen: NDArray[Any] | None = None
    paid: bool = False
    opened_unpaid: bool = False

    @property
    def fold(self) -> Fold:
        """Return how payloads add up."""
        return self.inner.fold

    @property
    def bits(self) -> int:
        """Return the bits of one word."""
        return self.inner.bits

    def words(self, message: Message, terms: Terms, round_: int, client: int) -> NDArray[Any]:
        """Return the protected message."""
        return self.inner.words(message, terms, round_, client)

    def forge(self, values: NDArray[Any], terms: Terms, *, boost: float, part: float) -> NDArray[Any]:
        """Return a message as a malicious client sends it."""
        return self.inner.forge(values, terms, boost=boost, part=part)

    def pack(self, words: NDArray[Any]) -> bytes:
        """Return the protected message, packed."""
        return self.inner.pack(words)

    def open(self, total: NDArray[Any], terms: Terms, senders: int, round_: int) -> Opened:
        """Keep the sum as the server sees it, then open it."""
        self.seen = np.array(total)
        self.opened_unpaid = not self.paid
        return self.inner.open(total, terms, senders, round_)


@dataclass(frozen=True)
class Sight:
    """What was to be seen of one round; words are as they travel."""

    total: Total
    seen: NDArray[Any] | None  # the sum before the server made up noise
    shares: dict[int, NDArray[Any]]  # what single clients sent, where nothing masked it
    charged: bool
    opened_unpaid: bool
    totals: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # of sites, before noise: nobody's to see


@dataclass(frozen=True)
class AuditFederation:
    """Everything that rounds of games have in common: one plan, one scheme, one aggregator."""

    scheme: Scheme
    plan: PrivacyPlan
    knowledge: Knowledge
    aggregator: Aggregator
    state: State
    clients: int
    _downs: dict[int, bytes] = field(default_factory=dict)

    def play(
        self,
        seeds: Seeds,
        round_: int,
        cohort: Sequence[int],
        *,
        canaries: Canaries | None = None,
        leavers: Sequence[int] = (),
        keep: int = 0,
        clip_norm: float | None = None,
        quiet: int = QUIET,
    ) -> Sight:
        """Play one round with a cohort that is given; `leavers` of it leave before they send.

        Of the first `keep` clients that send unmasked, the words are kept. Where units are protected, canaries are
        units of the sites, each of which has so many `quiet` ones beside.
        """
        coding = WatchedSum(Private(self.plan, seeds))
        shares: dict[int, NDArray[Any]] = {}

        def told(client: int, payload: bytes) -> None:
            if len(shares) < keep:
                fold = coding.fold
                sum_of_one = fold.empty()
                fold.add(sum_of_one, payload)
                shares[client] = fold.total(sum_of_one)

        def spend() -> None:
            coding.paid = True

        of_sites = self.plan.request.of_sites
        marked = frozenset() if canaries is None or of_sites else frozenset(canaries.canaries)
        planted = Planted(self.plan, canaries)
        listening = ListeningCoding(self.plan, seeds)
        host = self._sites(seeds, planted, listening, quiet) if of_sites else self._host(seeds, canaries)
        engine = AuditEngine(host, marked.intersection(cohort), frozenset(leavers), told)
        terms = Terms(len(cohort), self.plan.request.clip_norm if clip_norm is None else clip_norm)
        down = self.down(round_) + terms.pack()
        aggregator = _watching(self.aggregator, coding, seeds)
        try:
            total = drive(engine, aggregator.collect(round_, list(cohort), down, terms, spend))
        except SottovoceError as error:  # refused, as in a run that would end here
            total = Total(reason=str(error))
        return Sight(total, coding.seen, shares, coding.paid, coding.opened_unpaid, listening.totals)

    def _sites(self, seeds: Seeds, planted: Planted, listening: ListeningCoding, quiet: int) -> Host:
        """Return fresh sites, with secrets from these seeds, whose units are canaries and quiet ones."""
        knowledge = replace(
            self.knowledge,
            scheme=Verbatim.around(self.knowledge.scheme, self.plan.request.length),
            coding=listening,
            keys=SimulatedKeys(seeds, self.clients),
        )
        records = partial(site_records, self.plan, self.clients, planted.canaries, quiet)
        return Host(knowledge, planted, records, seeds, {})

    def _host(self, seeds: Seeds, canaries: Behaviour | None) -> Host:
        """Return fresh clients, with secrets from these seeds."""
        knowledge = replace(self.knowledge, coding=Private(self.plan, seeds), keys=SimulatedKeys(seeds, self.clients))
        still = Still(1.0 if self.plan.request.form == "signs" else 0.0)
        malice = None if canaries is None else Malice(canaries, records_of_nothing, lambda: still)
        return Host(knowledge, still, records_of_nothing, seeds, {}, malice)

    def down(self, round_: int) -> bytes:
        """Return the downlink of w_0; the model plays no part in a game."""
        seed = self.scheme.round_seed(round_)
        if seed not in self._downs:
            self._downs.clear()
            self._downs[seed] = self.scheme.downlink(self.state, seed)
        return self._downs[seed]


def make_federation(ready: ServerSide, plan: PrivacyPlan) -> AuditFederation:
    """Return the stage of a federation that can play."""
    parts, told = ready.protection.parts, ready.enrolment
    knowledge = Knowledge(
        scheme=read_setup(told.scheme, parts.network, told.setup),
        coding=told.coding,
        keys=SimulatedKeys(Seeds(parts.seeds.seed), parts.cohort.clients),
        private=True,
        mean_size=None,
        policy=None if told.policy is None else told.policy.bind(told.setup),
        ballot=told.ballot,
    )
    state = ready.server.init(parts.start)
    return AuditFederation(ready.scheme, plan, knowledge, ready.server.aggregator, state, parts.cohort.clients)


def records_of_nothing(client: int) -> Shard:
    """Return records of nothing, of another number for each client: no message may depend on how many there are."""
    count = 1 + client % 50
    return Shard(np.zeros((count, 1), np.float32), np.zeros(count, np.int64))


def _watching(aggregator: Aggregator, coding: Coding, seeds: Seeds) -> Aggregator:
    """Return the same aggregator with another coding, and other clients' keys."""
    if isinstance(aggregator, Direct):
        return replace(aggregator, coding=coding)
    if isinstance(aggregator, Standing):
        return Standing(_securely(aggregator.secure, coding, seeds))
    if isinstance(aggregator, Secure):
        return _securely(aggregator, coding, seeds)
    raise RunError(f"an audit does not know how to watch a {type(aggregator).__name__} sum")


def _securely(secure: Secure, coding: Coding, seeds: Seeds) -> Secure:
    return replace(secure, coding=coding, keys=SimulatedKeys(seeds, len(secure.keys)), streams=seeds.server)
