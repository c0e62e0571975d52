"""One client as a state machine, many of them in a host, and the points where others wrap them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, Hosted, TwinAccount, few, play
from sottovoce.federation.client import ClientState
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Engine, Enrolment, Reply, Request, drive
from sottovoce.federation.engines.inline import InlineEngine
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.federation.engines.worker import Worker
from sottovoce.federation.round import server_round
from sottovoce.federation.wrappers.behaviour import Behaviour, Scene
from sottovoce.federation.wrappers.malicious import Choice, Malicious

SECURE: dict[str, dict[str, Any]] = {
    "plain": {"secure": "none"},
    "round": {"secure": "real"},
    "session": {"secure": "real", "key_life": "session"},
}


@pytest.mark.parametrize("kind", SECURE)
def test_a_client_restored_in_the_middle_of_a_round_sends_the_same_bytes(kind: str) -> None:
    parts = gather(few(aggregation=SECURE[kind]))
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    state = ready.server.init(parts.start)
    restored = 0
    for round_ in (1, 2):
        conversation = server_round(ready.server.with_account(TwinAccount()), state, round_)
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
class Liar:
    """Attacker's double: the malicious clients lie at one of the points where an attack can."""

    where: str

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Any]:
        if self.where == "together":
            return (scene.together() for _ in clients)
        if self.where == "up the loss":
            return scene.alone(clients, ascend=True)
        turned = -1 if self.where == "update" else 1
        return (turned * update for update in scene.alone(clients))

    def words(self, scene: Scene, client: int, message: Any, coding: Coding, terms: Terms) -> Any:
        if self.where == "message":
            return coding.words(-message, terms, scene.round, client)
        words = coding.words(message, terms, scene.round, client)
        return words[::-1].copy() if self.where == "words" else words


@contextmanager
def local(parts: Parts, behaviour: Behaviour) -> Iterator[Engine]:
    with LocalEngine(replace(parts.blueprint(), behaviour=behaviour), parts.arrays(), 2) as engine:
        yield engine


def sum_of(engine: Engine, parts: Parts) -> Any:
    ready = stages(protect(parts))[TRAINING].server_side(Hand(parts))
    attacked = Malicious(engine, Choice(Fraction(1, 4), "cohort", 9), parts.seeds.world)  # three of nine
    ready.enrol(attacked)
    server = ready.server.with_account(TwinAccount())
    return drive(attacked, server_round(server, server.init(parts.start), 1)).total.values


LIES = ("nowhere", "update", "together", "up the loss", "message", "words")


@pytest.mark.parametrize("secure", ["none", "ideal", "real"])
def test_malicious_clients_can_lie_about_update_message_and_words_on_every_engine(secure: str) -> None:
    parts = gather(few(aggregation={"secure": secure, "weighting": "equal"}))
    sums: dict[str, Any] = {}
    for where in LIES:
        sums[where] = sum_of(Hand(parts, behaviour=Liar(where)), parts)
        assert np.array_equal(sums[where], sum_of(Hosted(parts, behaviour=Liar(where)), parts)), where
        if secure != "ideal":
            with local(parts, Liar(where)) as other:
                assert np.array_equal(sums[where], sum_of(other, parts)), where
    assert np.array_equal(sums["update"], sums["message"]) or secure != "none", "of a linear scheme in the clear"
    for where in LIES[1:]:
        assert not np.array_equal(sums[where], sums["nowhere"])


def test_who_is_malicious_but_behaves_sends_the_bytes_of_an_honest_client() -> None:
    parts = gather(few(aggregation={"secure": "none", "weighting": "equal"}))
    ready = stages(protect(parts))[TRAINING].server_side(Hand(parts))
    hand = Hand(parts)
    ready.enrol(hand)
    honest = drive(hand, server_round(ready.server, ready.server.init(parts.start), 1)).total.values

    assert np.array_equal(honest, sum_of(Hand(parts, behaviour=Liar("nowhere")), parts))


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
    ready = stages(protect(parts))[TRAINING].server_side(hand)
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
    ready = stages(protect(parts))[TRAINING].server_side(Hand(parts))
    worker.enrol(ready.enrolment)
    down = ready.scheme.downlink(ready.server.init(parts.start), 0)
    worker.hear(1, "train", [0, 1, 2], down)
    list(worker.step(1, "train", {0: b"", 1: b""}, None))

    worker.hear(2, "train", [5], down)

    assert list(worker.host.states) == [5]


def test_an_opening_that_is_refused_is_each_clients_failure_and_stops_nobody_else() -> None:
    parts = gather(few())
    worker = Worker(parts.blueprint(), parts.arrays())
    worker.enrol(stages(protect(parts))[TRAINING].server_side(Hand(parts)).enrolment)

    worker.hear(1, "train", [0, 1], b"no model")
    answers = dict(worker.host.step(1, "train", {0: b"", 1: b""}))

    assert all(answer.reason is not None for answer in answers.values())


def test_a_state_is_plain_data() -> None:
    assert pickle.loads(pickle.dumps(ClientState())).memory == {}


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"scheme": "fl-rnd", "client": {"local_steps": 2, "client_lr": 0.5, "batch_size": 3}},
        {"client": {"local_steps": 3, "client_lr": 1e38}},  # every client diverges, and sends noise around zero
        {"privacy": {"clipping": "adaptive", "count_stddev": 2.0}},
        {"scheme": "fl-sign"},
    ],
    ids=["fl-std", "fl-rnd", "diverged", "adaptive", "fl-sign"],
)
def test_noisy_messages_are_sent_together_byte_for_byte_as_alone(tables: dict[str, Any]) -> None:
    scheme, private = tables.get("scheme", "fl-std"), {"epsilon": 8.0, "delta": 1e-3, "clip_norm": 0.5}
    others = {name: table for name, table in tables.items() if name not in ("scheme", "privacy")}
    if scheme == "fl-sign":
        del private["clip_norm"]
    experiment = few(scheme, privacy={**private, **tables.get("privacy", {})}, **others)

    alone = play(experiment, rounds=2)
    together = play(experiment, rounds=2, engine=lambda parts: InlineEngine(parts.blueprint(), parts.arrays()))

    assert [model.tobytes() for model in together.models] == [model.tobytes() for model in alone.models]
    assert together.story == alone.story
