"""Check what every engine and every aggregator promises; the author of a new one calls these in a test of their own.

`Hand` is the slow, obvious twin of the engines: one process, no pipes, no host, one client after the other, and any
answer can be lost or altered on its way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SottovoceError, WireError
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import make_ready
from sottovoce.federation.aggregate import Total
from sottovoce.federation.behaviour import HONEST, Behaviour
from sottovoce.federation.client import ClientState
from sottovoce.federation.engine import Engine, Enrolment, Evaluator, Reply, Request, drive
from sottovoce.federation.leaving import Leaving
from sottovoce.federation.round import server_round
from sottovoce.federation.worker import Outcome, Worker
from tests.experiment.small import small
from tests.federation.driven import Book

Alter = Callable[[str, int, bytes], bytes | None]  # phase, client, answer; None: it is lost
Params = NDArray[np.float32]
Result = TypeVar("Result")


class Playable(Engine, Evaluator, Protocol):
    """An engine of a simulation."""


class Played(NamedTuple):
    """Hold what some rounds did: the model after each, their totals, and the rounds that were charged."""

    models: list[Params]
    totals: list[Total]
    charged: list[int]

    @property
    def story(self) -> list[Any]:
        """Return all that a round tells but the sum."""
        return [(t.senders, t.bytes_up, t.bytes_down, t.failures, t.reason, t.phases) for t in self.totals]


@dataclass
class Hand:
    """Drive rounds in this process: each client by itself, restored from its pickled state in every phase."""

    parts: Parts
    alter: Alter = lambda phase, client, payload: payload
    events: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    behaviour: Behaviour = HONEST

    def __post_init__(self) -> None:
        self._worker = self.make_worker()
        self._memory: dict[str, Any] = {}
        self._states: dict[int, bytes] = {}

    def make_worker(self) -> Worker:
        """Return what holds the data and the set-up."""
        return Worker(replace(self.parts.blueprint(), behaviour=self.behaviour), self.parts.arrays())

    def worker(self, client: int) -> Worker:
        """Return the worker that a client was set up by."""
        return self._worker

    def state(self, client: int) -> ClientState:
        """Return a client's state, restored."""
        if client not in self._states:
            return ClientState(memory=self._memory)
        restored: ClientState = pickle.loads(self._states[client])
        return restored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    def enrol(self, enrolment: Enrolment) -> None:
        self._worker.enrol(enrolment)
        self._memory, self._states = enrolment.memory, {}

    def gradient(self, params: Any, split: str, records: Any) -> Any:
        return self._worker.gradient(params, split, records)

    def scores(self, params: Any, split: str) -> Any:
        return self._worker.scores(params, split, 0, 1 << 60)

    def public_norms(self, scheme: Any, params: Any, shards: list[Any], seeds: list[int]) -> list[float]:
        raise NotImplementedError

    client_norms = public_norms

    def run(self, conversation: Generator[Request, Reply, Result]) -> Result:
        return drive(self, conversation)

    def send(self, request: Request) -> Reply:
        self.events.append(request.phase)
        self.received += sum(map(len, request.payloads.values()))
        reply = Reply({}, {}, {})
        for client, payload in request.payloads.items():
            try:
                answer = self._answer(request, client, payload, reply)
                if answer is not None:
                    request.take(client, answer)
                    reply.sizes[client] = len(answer)
                    self.sent += len(answer)
            except SottovoceError as error:
                reply.failures[client] = str(error)
        return reply

    def _answer(self, request: Request, client: int, payload: bytes, reply: Reply) -> bytes | None:
        one, state = self.worker(client).host.client(client), self.state(client)
        if client in request.silent:
            if one.knowledge.opens(request.phase):
                heard = one.knowledge.read(request.round, request.phase, payload, state.memory)
                self._states[client] = pickle.dumps(state.hear(heard))
            return None
        made, state = one.answer(request.round, request.phase, payload, state)
        self._states[client] = pickle.dumps(state)
        answer = self.alter(request.phase, client, made)
        if answer is None:
            reply.left[client] = f"left before {request.phase}"
        return answer


class Hosted(Hand):
    """Drive rounds in this process through a worker and its host, as the engines do."""

    def send(self, request: Request) -> Reply:
        if request.opening and request.payloads:
            opening = next(iter(request.payloads.values()))
            self._worker.hear(request.round, request.phase, list(request.payloads), opening)
        reply = Reply({}, {})
        asked = {c: b"" if request.opening else p for c, p in request.payloads.items() if c not in request.silent}
        for sizes, payloads, failures in _parts(self._worker.step(request.round, request.phase, asked, None)):
            reply.failures.update(failures)
            for client, payload in payloads.items():
                try:
                    request.take(client, payload)
                    reply.sizes[client] = sizes[client]
                except SottovoceError as error:
                    reply.failures[client] = str(error)
        return reply


def _parts(steps: Generator[Outcome, None, Outcome]) -> Iterator[Outcome]:
    last = yield from steps
    yield last


def few(scheme: str = "fl-std", clients: int = 9, **tables: dict[str, Any]) -> Experiment:
    """Return a run of few clients, all asked in every round, all counting the same."""
    base: dict[str, dict[str, Any]] = {
        "data": {"clients": clients},
        "cohort": {"sample_rate": 1},
        "scheme": {"name": scheme},
        "client": {"client_lr": 0.5},
    }
    for name, table in tables.items():
        base[name] = {**base.get(name, {}), **table}
    return small(**base)


def play(
    experiment: Experiment,
    *,
    rounds: int = 1,
    engine: Callable[[Parts], AbstractContextManager[Playable]] | None = None,
    alter: Alter | None = None,
) -> Played:
    """Play rounds without a folder, by hand unless an engine is given."""
    parts = gather(experiment)
    if engine is not None:
        with engine(parts) as started:
            return _play(parts, started, rounds)
    return _play(parts, Hand(parts) if alter is None else Hand(parts, alter), rounds)


def _play(parts: Parts, inner: Playable, rounds: int) -> Played:
    ready = make_ready(protect(parts), inner)
    engine = Leaving(inner, parts.experiment.make_dropout(), parts.seeds.world)
    ready.enrol(engine)
    book = Book()
    server = ready.server.with_account(book)
    state = server.init(parts.start)
    models, totals = [state["params"]], []
    for round_ in range(1, rounds + 1):
        result = drive(engine, server_round(server, state, round_))
        state = result.state
        models.append(state["params"])
        totals.append(result.total)
    return Played(models, totals, book.charged)


def same(one: Played, other: Played) -> bool:
    """Say whether the models of all rounds are the same, bit for bit."""
    pairs = zip(one.models, other.models, strict=True)
    return all(np.array_equal(first.view(np.uint32), second.view(np.uint32)) for first, second in pairs)


def engine_checks(engine: Callable[[Parts], AbstractContextManager[Playable]]) -> None:
    """Check an engine against `Hand`: the same models and the same story, whoever leaves; refusals are failures."""
    leave = [[1, 3, "mask"], [2, 1, "unmask"], [2, 4, "share"]]
    for aggregation in ({"secure": "none"}, {"secure": "real"}, {"secure": "real", "key_life": "session"}):
        experiment = few(aggregation=aggregation, devices={"leave": leave})
        theirs, ours = play(experiment, rounds=2, engine=engine), play(experiment, rounds=2)
        if aggregation.get("key_life") == "session":  # a gap before masking and another before opening cannot be mended
            assert theirs.totals[1].reason is not None
        assert same(theirs, ours), f"{aggregation}: the model is not that of the twin"
        assert theirs.story == ours.story, f"{aggregation}: the story is not that of the twin"
        assert np.any(theirs.models[0] != theirs.models[1])
    followed = few("sign-sgd", devices={"leave": [[1, 3, "mask"]]})  # its clients keep a replica of the model
    assert same(play(followed, rounds=3, engine=engine), play(followed, rounds=3)), "who leaves must still hear"
    _check_refusals(engine)
    for aggregation in ({"secure": "none"}, {"secure": "real"}):
        _check_unicast(engine, aggregation)


def _check_unicast(engine: Callable[[Parts], AbstractContextManager[Playable]], aggregation: dict[str, Any]) -> None:
    """Check that who was not asked cannot act on what the others heard."""
    parts = gather(few(aggregation=aggregation))
    with engine(parts) as started:
        ready = make_ready(protect(parts), started)
        ready.enrol(started)
        whole = next(server_round(ready.server, ready.server.init(parts.start), 1))
        asked = {client: whole.payloads[client] for client in (1, 2, 3)}
        request = whole._replace(payloads=asked, take=lambda client, payload: None, sum=None)
        heard = started.send(request)
        stranger = started.send(request._replace(payloads={5: b"", 3: b""}, opening=False))
    assert sorted(heard.sizes) == [1, 2, 3]
    assert stranger.failures == {5: "client 5 was not asked in this round"}
    assert list(stranger.sizes) == [3]


def _check_refusals(engine: Callable[[Parts], AbstractContextManager[Playable]]) -> None:
    parts = gather(few(aggregation={"secure": "real"}))

    def refuse(client: int, payload: bytes) -> None:
        if client == 3:
            raise WireError("refused by the check")

    with engine(parts) as started:
        ready = make_ready(protect(parts), started)
        ready.enrol(started)
        request = next(server_round(ready.server, ready.server.init(parts.start), 1))
        reply = started.send(request._replace(take=refuse))
    assert reply.failures == {3: "refused by the check"}, "an answer that is refused is its client's failure"
    assert sorted(reply.sizes) == [0, 1, 2, 4, 5, 6, 7, 8], "only answers that were taken are counted"


def aggregator_checks(aggregation: dict[str, Any]) -> None:
    """Check an aggregator: an exact sum, bytes that really travelled, a charge before the opening, nobody's garbage."""
    experiment = few(aggregation={"weighting": "equal", **aggregation})
    clear = play(few(aggregation={"weighting": "equal", "secure": "none"}))
    parts = gather(experiment)
    hand = Hand(parts)
    ready = make_ready(protect(parts), hand)
    ready.enrol(hand)
    server = ready.server.with_account(Book(lambda round_: hand.events.append("spend")))
    result = hand.run(server_round(server, server.init(parts.start), 1))

    assert result.total.values is not None
    assert np.allclose(result.total.values, clear.totals[0].values, atol=1e-6), "the sum is not that of the messages"
    assert (result.total.bytes_up, result.total.bytes_down) == (hand.sent, hand.received)
    assert sum(up for up, _ in result.total.phases.values()) == hand.sent
    assert hand.events.count("spend") == 1
    assert "unmask" not in hand.events or hand.events.index("spend") < hand.events.index("unmask")

    nobody = play(experiment, alter=lambda phase, client, payload: None)
    assert nobody.totals[0].values is None
    assert "nothing was released" in str(nobody.totals[0].reason)
    assert not nobody.charged
    assert np.array_equal(nobody.models[0], nobody.models[1]), "an aborted round changes nothing"

    vector = "mask" if "mask" in hand.events else "train"
    for garbage in (b"", b"\0", b"svsa" * 64, bytes(100_000)):
        foreign = play(experiment, alter=lambda p, c, answer, g=garbage: g if (p, c) == (vector, 4) else answer)
        missing = play(experiment, alter=lambda p, c, answer: None if (p, c) == (vector, 4) else answer)
        assert list(foreign.totals[0].failures) == [4]
        assert same(foreign, missing), "what is refused must leave no trace"
