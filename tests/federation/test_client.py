"""One client as a state machine, many of them in a host, and the points where others wrap them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import make_ready
from sottovoce.federation.behaviour import Behaviour, Honest
from sottovoce.federation.client import ClientState
from sottovoce.federation.engine import Engine, Enrolment, Reply, Request, drive
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.round import server_round
from sottovoce.federation.worker import Worker
from sottovoce.models import Shard, Trainer
from sottovoce.testing.twin import Book, Hand, few

SECURE: dict[str, dict[str, Any]] = {
    "plain": {"secure": "none"},
    "round": {"secure": "real"},
    "session": {"secure": "real", "key_life": "session"},
}


@pytest.mark.parametrize("kind", SECURE)
def test_a_client_restored_in_the_middle_of_a_round_sends_the_same_bytes(kind: str) -> None:
    parts = gather(few(aggregation=SECURE[kind]))
    hand = Hand(parts)
    ready = make_ready(protect(parts), hand)
    ready.enrol(hand)
    state = ready.server.init(parts.start)
    restored = 0
    for round_ in (1, 2):
        conversation = server_round(ready.server.with_account(Book()), state, round_)
        request = next(conversation)
        while True:
            one, first, second = hand.worker(3).host.client(3), hand.state(3), hand.state(3)
            assert first is not second
            payload = request.payloads[3]
            sent, after = one.answer(request.round, request.phase, payload, first)
            again, after_again = one.answer(request.round, request.phase, payload, second)
            assert sent == again
            assert pickle.dumps(after.masking) == pickle.dumps(after_again.masking)
            restored += 1
            try:
                request = conversation.send(hand.send(request))
            except StopIteration as stop:
                state = stop.value.state
                break
    assert restored == {"plain": 2, "round": 10, "session": 8}[kind]


@dataclass(frozen=True)
class Liar(Honest):
    """Attacker's double: clients 2 and 5 lie at one of the wrapping points."""

    where: str

    def _lies(self, client: int, where: str) -> bool:
        return where == self.where and client in (2, 5)

    def shard(self, client: int, shard: Shard) -> Shard:
        return Shard(shard.x, 9 - shard.y) if self._lies(client, "shard") else shard

    def trainer(self, client: int, trainer: Trainer) -> Trainer:
        return Backwards(trainer) if self._lies(client, "trainer") else trainer

    def message(self, client: int, round_: int, message: Any) -> Any:
        return -message if self._lies(client, "message") else message

    def words(self, client: int, round_: int, words: Any) -> Any:
        return words[::-1].copy() if self._lies(client, "words") else words


@dataclass(frozen=True)
class Backwards:
    """Trainer that sends the updates of another one with their signs changed."""

    trainer: Trainer

    def updates(self, params: Any, shards: Sequence[Shard], rngs: Any, trainable: Any = None) -> Iterator[Any]:
        return (-update for update in self.trainer.updates(params, shards, rngs, trainable))

    def gradient(self, params: Any, shard: Shard) -> Any:
        return self.trainer.gradient(params, shard)

    def scores(self, params: Any, x: Any) -> Any:
        return self.trainer.scores(params, x)


@contextmanager
def local(parts: Parts, behaviour: Behaviour) -> Iterator[Engine]:
    with LocalEngine(replace(parts.blueprint(), behaviour=behaviour), parts.arrays(), 1) as engine:
        yield engine


@contextmanager
def by_hand(parts: Parts, behaviour: Behaviour) -> Iterator[Engine]:
    yield Hand(parts, behaviour=behaviour)


def sum_of(engine: Engine, parts: Parts) -> Any:
    ready = make_ready(protect(parts), Hand(parts))
    ready.enrol(engine)
    server = ready.server.with_account(Book())
    return drive(engine, server_round(server, server.init(parts.start), 1)).total.values


@pytest.mark.parametrize("secure", ["none", "ideal", "real"])
def test_shard_trainer_message_and_words_can_each_be_wrapped_on_every_engine(secure: str) -> None:
    parts = gather(few(aggregation={"secure": secure, "weighting": "equal"}))
    sums: dict[str, Any] = {}
    for where in ("nowhere", "shard", "trainer", "message", "words"):
        with by_hand(parts, Liar(where)) as one, local(parts, Liar(where)) as other:
            sums[where] = sum_of(one, parts)
            assert np.array_equal(sums[where], sum_of(other, parts)), where
    assert np.array_equal(sums["trainer"], sums["message"]) or secure != "none", "of a linear scheme in the clear"
    for where in ("shard", "trainer", "message", "words"):
        assert not np.array_equal(sums[where], sums["nowhere"])


@dataclass
class Meter:
    """Channel's double: an engine around an engine that sees what travels, when and how large it is."""

    engine: Engine
    story: list[tuple[int, str, int, int, int]]

    def enrol(self, enrolment: Enrolment) -> None:
        self.engine.enrol(enrolment)

    def send(self, request: Request) -> Reply:
        reply = self.engine.send(request)
        for client, payload in request.payloads.items():
            up = reply.sizes.get(client, 0)
            self.story.append((request.round, request.phase, client, len(payload), up))
        return reply

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_channel_is_an_engine_around_an_engine_and_sees_every_byte() -> None:
    parts = gather(few(aggregation=SECURE["round"]))
    hand = Hand(parts)
    meter = Meter(hand, [])
    ready = make_ready(protect(parts), hand)
    ready.enrol(meter)

    total = drive(meter, server_round(ready.server, ready.server.init(parts.start), 1)).total

    assert sum(up for *_, up in meter.story) == total.bytes_up
    assert sum(down for *_, down, _ in meter.story) == total.bytes_down
    for client, sizes in total.clients.items():
        mine = [(down, up) for _, _, number, down, up in meter.story if number == client]
        assert (sizes.down, sizes.up) == tuple(map(sum, zip(*mine, strict=True)))


def test_a_host_holds_on_to_no_model_of_an_earlier_round() -> None:
    parts = gather(few())
    worker = Worker(parts.blueprint(), parts.arrays())
    ready = make_ready(protect(parts), Hand(parts))
    worker.enrol(ready.enrolment)
    down = ready.scheme.downlink(ready.server.init(parts.start), 0)
    worker.hear(1, "train", [0, 1, 2], down)
    list(worker.step(1, "train", {0: b"", 1: b""}, None))

    worker.hear(2, "train", [5], down)

    assert list(worker.host.states) == [5]


def test_an_opening_that_is_refused_is_each_clients_failure_and_stops_nobody_else() -> None:
    parts = gather(few())
    worker = Worker(parts.blueprint(), parts.arrays())
    worker.enrol(make_ready(protect(parts), Hand(parts)).enrolment)

    worker.hear(1, "train", [0, 1], b"no model")
    answers = dict(worker.host.step(1, "train", {0: b"", 1: b""}))

    assert all(answer.reason is not None for answer in answers.values())


def test_a_state_is_plain_data() -> None:
    assert pickle.loads(pickle.dumps(ClientState())).memory == {}
