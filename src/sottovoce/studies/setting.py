"""What every inference attack starts from: a federation that is ready to play, and what everybody knows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, RunError, SottovoceError
from sottovoce.core.streams import Seeds
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.client import Knowledge, read_setup
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Reply, Request, drive
from sottovoce.federation.host import Host, Malice
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.round import server_round
from sottovoce.federation.wrappers.behaviour import Scene
from sottovoce.models import LocalTraining, Model, Shard, Trainer
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.noise.path import to_floats
from sottovoce.schemes import Scheme
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import expand


@dataclass(frozen=True)
class PublicSetting:
    """What every party of a federation knows: its configuration, and nobody's records, randomness or noise."""

    network: Model
    training: LocalTraining
    scheme: Scheme  # bound
    step: ServerStep
    plan: PrivacyPlan | None
    cohort: int  # clients in a round

    def values(self, words: NDArray[Any], terms: Terms) -> Vector:
        """Return what words add to the sum that the server opens, in the message's units.

        In a run that is not private, words are the message itself: a secure sum rounds it, by less than matters here.
        """
        if self.plan is None:
            return np.asarray(expand(words, self.scheme.length) if self.scheme.form == "signs" else words, np.float32)
        if self.plan.bits is None:
            return np.asarray(words, np.float32)
        step = self.plan.step(None if self.plan.adaptive is None else terms.clip_norm)
        return to_floats(np.asarray(words, np.uint32), step=step, bits=self.plan.bits)[: self.scheme.length]

    def contribution(self, message: Message, terms: Terms, key: bytes) -> Vector:
        """Return what one client adds to the sum: its message, or in a private run that message clipped and noised.

        Guarantee: noise is drawn from `key` alone, so whoever emulates a client does not draw that client's noise.
        """
        if self.plan is None:
            return self.values(message, terms)
        if self.scheme.form == "signs":
            message = expand(message, self.scheme.length)
        clip_norm = None if self.plan.adaptive is None else terms.clip_norm
        randomness = Randomness.simulated(key)
        return self.values(
            self.plan.protect(message, cohort=terms.cohort, randomness=randomness, clip_norm=clip_norm), terms
        )


def prepare(experiment: Experiment, given: Given = NOTHING) -> ServerSide:
    """Load an experiment and bind its scheme, or say why an inference attack cannot be played on it."""
    _check(experiment)
    if experiment.privacy is not None and experiment.privacy.vote_noise_multiplier is not None:
        raise InputError(
            "an inference attack plays no vote; remove [privacy] vote_noise_multiplier and name public records in "
            "[scheme] public"
        )
    one = experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"workers": 1})})
    parts = gather(one, given)
    protection = protect(parts)
    with start_engine(parts) as (_, evaluator):
        return stages(protection)[TRAINING].server_side(evaluator)


def public_of(ready: ServerSide) -> PublicSetting:
    """Return what everybody knows of a federation."""
    parts = ready.protection.parts
    cohort = round(parts.cohort.expected)
    return PublicSetting(parts.network, parts.training(), ready.scheme, ready.server.step, ready.plan, cohort)


def _check(experiment: Experiment) -> None:
    """Raise for what the attacks do not know how to play against."""
    if experiment.engine.data is not None:
        raise InputError("inference attacks read records on this machine; remove [engine] data")
    scheme = experiment.make_scheme()
    if scheme.once or experiment.scheme.warm_start is not None:
        sender = scheme.name if scheme.once else "a warm start"
        raise InputError(
            f"inference attacks read updates, and {sender} sends sums of records; choose another scheme, and remove "
            "[scheme] warm_start"
        )
    if experiment.model.front != "none" or experiment.model.whiten or experiment.scheme.train != "all":
        raise InputError("inference attacks read the whole network; remove [model] front, whiten and [scheme] train")
    if experiment.threat is not None:
        raise InputError("an inference attack is on honest training; remove [threat]")
    if experiment.aggregation.defence != "none":
        raise InputError("an inference attack is on the plain mean; remove [aggregation] defence")


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

    public: PublicSetting
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

    def __init__(self, ready: ServerSide, trainer: Trainer, deal: Deal, insider: _Insider) -> None:
        parts, enrolment = ready.protection.parts, ready.enrolment
        knowledge = Knowledge(
            scheme=read_setup(enrolment.scheme, parts.network, enrolment.setup),
            coding=enrolment.coding,
            keys=SimulatedKeys(Seeds(parts.seeds.seed), parts.cohort.clients),
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


def watch(ready: ServerSide, trainer: Trainer, deal: Deal, update: Update) -> Iterator[Seen]:
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
