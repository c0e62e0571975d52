"""A curious client, and the federation that it takes part in.

The federation is the real one: server, coding, noise, and client by client what each of them does. Only the records of
a round are dealt by the study, which must know what the attack has to find out. Client 0 is the insider. What it learns
is cut to what a client can learn (`Seen`), and this is all that an attack is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.streams import Seeds
from sottovoce.core.vectors import Vector
from sottovoce.experiment.ready import Ready
from sottovoce.federation.behaviour import Scene
from sottovoce.federation.client import Knowledge, read_setup
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Reply, Request, drive
from sottovoce.federation.host import Host, Malice
from sottovoce.federation.round import server_round
from sottovoce.federation.secure import Registry
from sottovoce.models import Shard, Trainer
from sottovoce.schemes.base import Message
from sottovoce.studies.setting import Public, public_of

__all__ = ["INSIDER", "Deal", "Seen", "Update", "watch"]

INSIDER: Final = 0

Deal = Callable[[int, int], Shard]  # round, client: the records that it trains with
Update = Callable[[int, Vector, NDArray[np.bool_] | None], Vector]  # round, model, what may move: what client 0 sends


class Seen(NamedTuple):
    """One round as client 0 sees it: a transcript cut to the threat model.

    It is sent the model before the round and, in the next round or at the end, the model after it; it knows the terms
    of the round, and what it added to the sum itself, its own share of noise included. It sees no message of anybody
    else, and not their sum either.
    """

    round: int
    terms: Terms
    before: Vector
    own: Vector  # in the message's units
    after: Vector


@dataclass
class _Insider:
    """Client 0: it takes part by the protocol, with an update of its own making, and keeps what it sees."""

    public: Public
    update: Update
    seen: Seen | None = None  # of the round that is played; the model after it is not known yet

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield its update; it is alone."""
        yield self.update(scene.round, scene.task.params, scene.trainable)

    def words(self, scene: Scene, client: int, message: Message, coding: Coding, terms: Terms) -> NDArray[Any]:
        """Return what the protocol says, and keep it."""
        words = coding.words(message, terms, scene.round, client)
        own = self.public.values(message if self.public.plan is None else words, terms)
        before = scene.task.params.copy()
        self.seen = Seen(scene.round, terms, before, own, before)
        return words


class _InProcess:
    """An engine that plays all clients in this process, on the records that are dealt for each round."""

    def __init__(self, ready: Ready, trainer: Trainer, deal: Deal, insider: _Insider) -> None:
        parts, enrolment = ready.protection.parts, ready.enrolment
        knowledge = Knowledge(
            scheme=read_setup(enrolment.scheme, parts.network, enrolment.setup),
            coding=enrolment.coding,
            keys=Registry(Seeds(parts.seeds.seed), parts.cohort.clients),
            private=enrolment.private,
            mean_size=None,  # all batches are of one size
            policy=None if enrolment.policy is None else enrolment.policy.bind(enrolment.setup),
        )
        self._round = 0
        records: Callable[[int], Shard] = lambda client: deal(self._round, client)  # noqa: E731
        malice = Malice(insider, records, lambda: trainer)
        self._host = Host(knowledge, trainer, records, parts.seeds, enrolment.memory, malice)

    def send(self, request: Request) -> Reply:
        """Ask the clients of a request, one after the other."""
        self._round = request.round
        if request.opening and request.payloads:
            self._host.hear(request.round, request.phase, request.payloads, next(iter(request.payloads.values())))
        asked = {client: b"" if request.opening else payload for client, payload in request.payloads.items()}
        reply = Reply({}, {})
        for client, answer in self._host.step(request.round, request.phase, asked, frozenset({INSIDER})):
            try:
                if answer.reason is not None:
                    raise RunError(answer.reason)
                request.take(client, answer.payload)
                reply.sizes[client] = len(answer.payload)
            except SottovoceError as error:
                reply.failures[client] = str(error)
        return reply


class _NoLedger:
    """An account for a federation of which nothing is released: it is played to be attacked."""

    def drawn(self, round_: int, commitment: str) -> None:
        """Write nothing."""

    def charge(self, round_: int) -> None:
        """Write nothing."""


def watch(ready: Ready, trainer: Trainer, deal: Deal, update: Update) -> Iterator[Seen]:
    """Play a federation to its end, and yield each round as its client 0 sees it.

    Everybody takes part in every round; client 0 sends what `update` returns, the others train on what is dealt.
    """
    insider = _Insider(public_of(ready), update)
    engine = _InProcess(ready, trainer, deal, insider)
    parts = ready.protection.parts
    server = ready.server.with_account(_NoLedger())
    state = server.init(parts.start)
    rounds = parts.experiment.experiment.rounds if ready.plan is None else ready.plan.rounds
    kept: Seen | None = None
    for round_ in range(1, rounds + 1):
        result = drive(engine, server_round(server, state, round_))  # type: ignore[arg-type]
        if result.total.failures:
            raise RunError(f"round {round_}: {next(iter(result.total.failures.values()))}")
        state = result.state
        if kept is not None and insider.seen is not None:
            yield kept._replace(after=insider.seen.before)  # which it was sent in this round
        kept = insider.seen
    if kept is not None:
        yield kept._replace(after=state["params"])  # the model that everybody gets
