"""The slow, obvious twin of the engines, and small experiments to play with it.

`Hand` is the slow, obvious twin of the engines: one process, no pipes, no host, one client after the other, and any
answer can be lost or altered on its way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.aggregation.ballots.count import counting
from sottovoce.federation.client import UPDATE_PHASES, Client, ClientState
from sottovoce.federation.engine import Engine, Enrolment, Evaluator, Reply, Request, drive
from sottovoce.federation.engines.worker import Outcome, Worker
from sottovoce.federation.round import server_round
from sottovoce.federation.wrappers.behaviour import Behaviour
from sottovoce.federation.wrappers.leaving import Leaving

Alter = Callable[[str, int, bytes], bytes | None]  # phase, client, answer; None: it is lost
Params = NDArray[np.float32]
Result = TypeVar("Result")


class Playable(Engine, Evaluator, Protocol):
    """An engine of a simulation."""


@dataclass
class TwinAccount:
    """An account that keeps the rounds it was charged for, and calls `spend` at each."""

    spend: Callable[[int], None] = lambda round_: None
    charged: list[int] = field(default_factory=list)
    draws: dict[int, str] = field(default_factory=dict)

    def drawn(self, round_: int, commitment: str) -> None:
        """Keep the commitment."""
        self.draws[round_] = commitment

    def charge(self, round_: int) -> None:
        """Keep the round."""
        self.spend(round_)
        self.charged.append(round_)


class Played(NamedTuple):
    """What some rounds did: the model after each, their totals, and the rounds that were charged."""

    models: list[Params]
    totals: list[Total]
    charged: list[int]

    @property
    def story(self) -> list[Any]:
        """Return all that a round tells but the sum."""
        return [(t.senders, t.bytes_up, t.bytes_down, t.failures, t.reason, t.phases) for t in self.totals]


@dataclass
class Hand:
    """The slow, obvious engine: each client by itself, restored from its pickled state in every phase."""

    parts: Parts
    alter: Alter = lambda phase, client, payload: payload
    events: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    behaviour: Behaviour | None = None

    def __post_init__(self) -> None:
        self._worker = self.make_worker()
        self._memory: dict[str, Any] = {}
        self._states: dict[int, bytes] = {}

    def make_worker(self) -> Worker:
        """Return what holds the data and the set-up."""
        blueprint = self.parts.blueprint()
        if self.behaviour is not None:
            blueprint = replace(blueprint, behaviour=self.behaviour)
        return Worker(blueprint, self.parts.arrays())

    def worker(self, client: int) -> Worker:
        """Return the worker that a client was set up by."""
        return self._worker

    def state(self, client: int) -> ClientState:
        """Return a client's state, restored."""
        if client not in self._states:
            return ClientState(memory=self._memory)
        restored: ClientState = pickle.loads(self._states[client])
        return restored

    def change(self, client: int, **fields: Any) -> None:
        """Change a client's state, as a test needs it."""
        self._states[client] = pickle.dumps(replace(self.state(client), **fields))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of nothing: there is no worker process."""

    def enrol(self, enrolment: Enrolment) -> None:
        """Set every client up."""
        self._worker.enrol(enrolment)
        self._memory, self._states = enrolment.memory, {}

    def gradient(self, params: Any, split: str, records: Any) -> Any:
        """Return the gradient on some records."""
        return self._worker.gradient(params, split, records)

    def scores(self, params: Any, split: str) -> Any:
        """Return the scores of a split."""
        return self._worker.scores(params, split, 0, 1 << 60)

    def public_norms(self, scheme: Any, params: Any, shards: list[Any], seeds: list[int]) -> list[float]:
        """Refuse: the experiments of the checks measure no norms."""
        raise RunError("the twin of the engines measures no norms")

    client_norms = public_norms

    def public_message(self, scheme: Any, params: Any, seed: int, records: Any, round_: int) -> Any:
        """Return the message that a client with these public records would send."""
        return self._worker.public_message(scheme, params, seed, records, round_)

    def client_accuracies(self, params: Any, clients: list[int], personal_steps: int = 0) -> list[float]:
        """Return each client's accuracy on what it kept out."""
        return self._worker.client_accuracies(params, clients, personal_steps)

    def run(self, conversation: Generator[Request, Reply, Result]) -> Result:
        """Play the server's side of a round to its end."""
        return drive(self, conversation)

    def send(self, request: Request) -> Reply:
        """Ask one client after the other."""
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
        if client in request.malicious and request.phase in UPDATE_PHASES:
            made, state = self._mislead(one, request, payload, state)
        else:
            made, state = one.answer(request.round, request.phase, payload, state)
        self._states[client] = pickle.dumps(state)
        answer = self.alter(request.phase, client, made)
        if answer is None:
            reply.left[client] = f"left before {request.phase}"
        return answer

    def _mislead(self, one: Client, request: Request, payload: bytes, state: ClientState) -> tuple[bytes, ClientState]:
        """Let a malicious client act, with nothing kept from any other."""
        host, number = self.worker(one.number).host, one.number
        malice = host.malice
        if malice is None:
            raise RunError(f"client {number} is malicious, and nobody said how it behaves")
        if one.knowledge.opens(request.phase):
            state = state.hear(one.knowledge.read(request.round, request.phase, payload, state.memory))
        task = one.task(request.round, request.phase, state)
        scene = host.scene(malice, request.round, task, request.malicious)
        (update,) = malice.behaviour.updates(scene, [number])
        forge = partial(malice.behaviour.words, scene, number)
        return one.send(request.phase, payload, len(malice.records(number).y), update, state, forge)


class Hosted(Hand):
    """An engine in this process that plays all clients through one worker and its host, as the real ones do."""

    def change(self, client: int, **fields: Any) -> None:
        """Change a client's state, as a test needs it."""
        states = self._worker.host.states
        states[client] = replace(states.get(client, ClientState()), **fields)

    def state(self, client: int) -> ClientState:
        """Return a client's state, as the host keeps it."""
        return self._worker.host.states.get(client, ClientState())

    def send(self, request: Request) -> Reply:
        """Ask all clients of the request through the host."""
        if request.opening and request.payloads:
            opening = next(iter(request.payloads.values()))
            self._worker.hear(request.round, request.phase, list(request.payloads), opening)
        reply = Reply({}, {})
        asked = {c: b"" if request.opening else p for c, p in request.payloads.items() if c not in request.silent}
        steps = self._worker.step(request.round, request.phase, asked, None, request.malicious)
        for sizes, payloads, failures in _parts(steps):
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
        "experiment": {"name": "few", "rounds": 6, "evaluate_every": 2, "checkpoint_every": 2},
        "data": {"source": "digits", "clients": clients},
        "model": {"name": "logistic"},
        "client": {"local_steps": 2, "client_lr": 0.5},
        "cohort": {"sample_rate": 1},
        "scheme": {"name": scheme},
    }
    for name, table in tables.items():
        base[name] = {**base.get(name, {}), **table}
    return parse(base)


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
    ready = stages(protect(parts))[TRAINING].server_side(inner)
    engine = Leaving(inner, parts.experiment.make_dropout(), parts.seeds.world)
    ready.enrol(engine)
    book = TwinAccount()
    server = ready.server.with_account(book)
    state = server.init(parts.start)
    models, totals = [state["params"]], []
    with TemporaryDirectory() as folder, counting(server.aggregator, Path(folder)):
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
