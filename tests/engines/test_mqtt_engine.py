"""The MQTT engine and real nodes in one process, without a broker: messages are lost, late, repeated or lies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, Played, TwinAccount, few, play, same
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import RunError
from sottovoce.federation.engine import Reply, Request, drive
from sottovoce.federation.engines.mqtt.carrier import UNKNOWN, LinkQuality
from sottovoce.federation.engines.mqtt.envelope import (
    OVERHEAD,
    SERVER,
    Envelope,
    Kind,
    kind_of,
    open_message,
    topic_from,
)
from sottovoce.federation.engines.mqtt.greeting import Facts
from sottovoce.federation.round import server_round
from tests.deployment.wired import RUN, Wired, member_of, parts_of, roster_of, server_key, signing_key, until, wired

SECURE = {"aggregation": {"secure": "real"}}
PRIVATE = {
    "aggregation": {"secure": "real"},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-5, "clip_norm": 0.5},
}


def small(scheme: str = "fl-std", **tables: dict[str, Any]) -> Experiment:
    return few(scheme, clients=4, **tables)


def played(held: Wired, experiment: Experiment, rounds: int = 2, before: Any = None) -> Played:
    """Play rounds over the engine; `before` sees every request first."""
    parts = parts_of(experiment)
    ready = stages(protect(parts))[TRAINING].server_side(Hand(gather(experiment)))
    ready.enrol(held.engine)
    book = TwinAccount()
    server = ready.server.with_account(book)
    state = server.init(parts.start)
    models, totals = [state["params"]], []

    class Watched:
        def send(self, request: Request) -> Reply:
            if before is not None:
                before(request)
            return held.engine.send(request)

    for round_ in range(1, rounds + 1):
        result = drive(Watched(), server_round(server, state, round_))  # type: ignore[arg-type]
        state = result.state
        models.append(state["params"])
        totals.append(result.total)
    return Played(models, totals, book.charged)


@pytest.mark.parametrize(
    "experiment",
    [small(), small("fl-sign"), small(**SECURE), small(aggregation={"secure": "real", "key_life": "session"})],
    ids=["clear", "signs", "secure", "session"],
)
def test_nodes_make_the_model_of_the_twin_bit_for_bit(experiment: Experiment) -> None:
    with wired(experiment) as held:
        ours = played(held, experiment)

    assert same(ours, play(experiment, rounds=2))
    assert [total.senders for total in ours.totals] == [4, 4]
    assert [total.bytes_up for total in ours.totals] == [total.bytes_up for total in play(experiment, rounds=2).totals]


def test_a_private_run_is_that_of_the_simulation() -> None:
    experiment = small(**PRIVATE)
    with wired(experiment) as held:
        ours = played(held, experiment)

    assert same(ours, play(experiment, rounds=2))


@pytest.mark.parametrize("phase", ["advertise", "share", "mask", "consistency", "unmask"])
def test_a_node_that_vanishes_is_one_that_leaves(phase: str) -> None:
    experiment = small(**SECURE)
    with wired(experiment) as held:

        def kill(request: Request) -> None:
            if request.phase == phase:
                held.kill(2)

        ours = played(held, experiment, rounds=1, before=kill)

    assert same(ours, play(few(clients=4, **SECURE, devices={"leave": [[1, 2, phase]]}), rounds=1))


def test_a_node_that_comes_back_plays_the_next_round() -> None:
    experiment = small(**SECURE)
    dealt = gather(experiment)
    with wired(experiment) as held:

        def kill(request: Request) -> None:
            if (request.round, request.phase) == (1, "mask"):
                held.kill(2)
                until(lambda: held.engine.status.there == 3)
                held.start(member_of(experiment, 2, dealt))
                until(lambda: held.engine.status.there == 4)

        ours = played(held, experiment, rounds=2, before=kill)

    assert same(ours, play(few(clients=4, **SECURE, devices={"leave": [[1, 2, "mask"]]}), rounds=2))


@contextmanager
def asking(held: Wired, experiment: Experiment) -> Iterator[Request]:
    """Give the first request of round 1, with nothing done to its answers."""
    parts = parts_of(experiment)
    ready = stages(protect(parts))[TRAINING].server_side(Hand(gather(experiment)))
    ready.enrol(held.engine)
    yield next(server_round(ready.server, ready.server.init(parts.start), 1))


def alter(topic: str, message: bytes) -> list[tuple[str, bytes]]:
    return [(topic, message[:-70] + bytes([message[-70] ^ 1]) + message[-69:])]


def misroute(topic: str, message: bytes) -> list[tuple[str, bytes]]:
    return [(topic[:-1] + "2", message)]


@pytest.mark.parametrize("meddle", [alter, misroute, lambda topic, message: []], ids=["alters", "misroutes", "drops"])
def test_a_lying_broker_can_do_no_more_than_keep_a_node_away(meddle: Any) -> None:
    experiment = small(**SECURE)

    def lie(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        return meddle(topic, message) if topic.endswith("/1") else [(topic, message)]

    with wired(experiment, meddle=lie, min_nodes=3) as held:
        ours = played(held, experiment, rounds=1)
        there = held.engine.status.there

    assert there == 3
    assert same(ours, play(few(clients=4, **SECURE, devices={"leave": [[1, 1, "advertise"]]}), rounds=1))


def test_messages_that_come_twice_and_in_another_order_change_nothing() -> None:
    experiment = small(**SECURE)
    waiting: list[tuple[str, bytes]] = []

    def twice_and_mixed(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        waiting.append((topic, message))
        if len(waiting) > 3:
            return [waiting.pop(1), (topic, message), waiting.pop(0)]
        return [(topic, message)]

    with wired(experiment, meddle=twice_and_mixed) as held:
        ours = played(held, experiment)
        late = held.engine.status.late

    assert same(ours, play(experiment, rounds=2))
    assert late > 0


def test_an_answer_that_comes_late_is_dropped_and_counted() -> None:
    experiment = small()
    slow: list[tuple[str, bytes]] = []

    def keep(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith("from/1") and message[4] == Kind.ANSWER:
            slow.append((topic, message))
            return []
        return [(topic, message)]

    with wired(experiment, meddle=keep, train_timeout=3.0) as held, asking(held, experiment) as request:
        first = held.engine.send(request)
        held.loop.meddle = lambda topic, message: [(topic, message)]
        for topic, message in slow:
            held.loop.publish(topic, message)
        second = held.engine.send(request._replace(round=2, payloads={1: request.payloads[1]}))
        late = held.engine.status.late

    assert first.left == {1: "did not answer within 3 s"} and sorted(first.sizes) == [0, 2, 3]
    assert late == 1
    assert list(second.sizes) == [1] or list(second.failures) == [1]


def test_of_a_node_that_answers_without_end_one_answer_is_kept() -> None:
    experiment = small()
    answers: list[tuple[str, bytes]] = []
    answered = threading.Event()
    dropped: list[int] = []

    def keep(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith("from/1") and message[4] == Kind.ANSWER:
            answers.append((topic, message))
            answered.set()
            return []
        return [(topic, message)]

    with wired(experiment, meddle=keep) as held, asking(held, experiment) as request:

        def take(client: int, payload: bytes) -> None:
            if not dropped:  # the server is busy with one node; all this time another one talks
                assert answered.wait(60)
                for _ in range(50):
                    held.engine.heard(*answers[0])
                dropped.append(held.engine.status.late)
            request.take(client, payload)

        reply = held.engine.send(request._replace(take=take))

    assert dropped == [49]
    assert sorted(reply.sizes) == [0, 1, 2, 3]


def test_a_lost_connection_of_the_server_loses_no_answer() -> None:
    experiment = small()
    lost = threading.Event()

    def swallow(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith("from/3") and message[4] == Kind.ANSWER and not lost.is_set():
            lost.set()
            return []
        return [(topic, message)]

    with wired(experiment, meddle=swallow) as held, asking(held, experiment) as request:
        again = threading.Thread(target=lambda: (lost.wait(), held.engine.connected(2)))
        again.start()
        reply = held.engine.send(request)
        again.join()

    assert sorted(reply.sizes) == [0, 1, 2, 3]


def test_a_node_that_says_hello_again_is_asked_again() -> None:
    experiment = small()
    lost = threading.Event()

    def swallow(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith("to/3") and message[4] == Kind.ASK and not lost.is_set():
            lost.set()
            return []
        return [(topic, message)]

    with wired(experiment, meddle=swallow) as held, asking(held, experiment) as request:
        again = threading.Thread(target=lambda: (lost.wait(), held.ears[3].connected(2)))
        again.start()
        reply = held.engine.send(request)
        again.join()

    assert sorted(reply.sizes) == [0, 1, 2, 3]


def test_a_node_that_was_cut_off_is_not_sent_the_set_up_again() -> None:
    experiment = small()
    welcomes: list[int] = []

    def watch(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if topic.endswith("to/3") and message[4] == Kind.WELCOME:
            welcomes.append(len(message))
        return [(topic, message)]

    with wired(experiment, meddle=watch) as held, asking(held, experiment) as request:
        until(lambda: held.nodes[3].knowledge is not None)
        held.ears[3].connected(2)
        until(lambda: len(welcomes) == 2)
        reply = held.engine.send(request)

    assert welcomes[0] - welcomes[1] >= 32  # the set-up of fl-std has 32 bytes
    assert sorted(reply.sizes) == [0, 1, 2, 3]


def test_the_last_will_of_an_old_connection_changes_nothing() -> None:
    experiment = small()
    with wired(experiment) as held:
        until(lambda: held.engine.status.there == 4)
        will = held.carriers[3].will
        assert will is not None
        held.ears[3].connected(2)  # the node is back before the broker noticed that it was gone
        until(lambda: held.engine._nodes[3].connection == 2)
        held.loop.publish(*will)
        held.kill(2)
        until(lambda: held.engine.status.there == 3)
        there = held.engine._nodes[3].there

    assert there


def test_garbage_and_messages_of_others_are_dropped() -> None:
    experiment = small()
    topic = topic_from(roster_of(4).federation, 1)
    forged = Envelope(Kind.ANSWER, 1, SERVER, b"x", RUN, 1, "train").sign(signing_key(2))
    elsewhere = Envelope(Kind.ANSWER, 2, SERVER, b"x", RUN, 1, "train").sign(signing_key(2))
    with wired(experiment) as held, asking(held, experiment) as request:
        for message in (b"", b"\x00" * 500, bytes(held.engine.place.most + 200), forged, elsewhere):
            held.loop.publish(topic, message)
        until(lambda: held.engine.status.foreign == 5)
        reply = held.engine.send(request)

    assert sorted(reply.sizes) == [0, 1, 2, 3]


def test_an_answer_of_another_run_round_phase_or_life_is_not_taken() -> None:
    experiment = small()
    place = {"run": RUN, "round": 1, "phase": "train", "attempt": 0}
    others = [{"run": bytes(16)}, {"round": 2}, {"phase": "mask"}, {"attempt": 1}]
    with wired(experiment, nodes=False, min_nodes=0, train_timeout=1.0) as held, asking(held, experiment) as request:
        for other in others:
            answer = Envelope(Kind.ANSWER, 1, SERVER, b"x", **{**place, **other})  # type: ignore[arg-type]
            held.loop.publish(topic_from(held.federation, 1), answer.sign(signing_key(1)))
        taken: list[int] = []
        ask = request._replace(take=lambda client, payload: taken.append(client), sum=None)
        reply = held.engine.send(ask)

    assert not taken and sorted(reply.left) == [0, 1, 2, 3]
    assert held.engine.status.late == 4


def test_a_node_that_talks_without_end_fills_no_memory() -> None:
    """The thread that plays a round may be busy for minutes; what nobody waits for is not kept until then."""
    experiment = small()
    with wired(experiment, nodes=False, min_nodes=0, train_timeout=1.0) as held, asking(held, experiment) as request:
        engine, kept = held.engine, []
        answer = Envelope(Kind.ANSWER, 1, SERVER, b"x", RUN, 1, "train").sign(signing_key(1))
        topic = topic_from(held.federation, 1)
        for _ in range(20):
            engine.heard(topic, answer)
        kept.append(engine._answers.qsize())

        def take(client: int, payload: bytes) -> None:
            for _ in range(20):
                engine.heard(topic, answer)
            kept.append(engine._answers.qsize())

        threading.Timer(0.2, engine.heard, [topic, answer]).start()
        engine.send(request._replace(take=take, sum=None))

    assert kept == [0, 0]
    assert engine.status.late == 40


THIN = LinkQuality(0.5, 1.0)  # parts of 4 kB


@pytest.mark.parametrize("secure", [False, True])
def test_thin_links_carry_parts_and_the_same_bits(secure: bool) -> None:
    experiment = small(model={"name": "mlp", "hidden": 40}, **(SECURE if secure else {}))
    kinds: dict[Kind, int] = {}

    def count(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        kind = kind_of(message) or Kind.BYE
        kinds[kind] = kinds.get(kind, 0) + 1
        return [(topic, message)]

    with wired(experiment, meddle=count, quality=THIN) as held:
        ours = played(held, experiment, rounds=1)

    assert same(ours, play(experiment, rounds=1))
    assert kinds[Kind.PART] > 2 * 4, "the model down, and the update up, of four nodes"


def test_what_came_before_a_cut_is_not_sent_again() -> None:
    experiment = small(model={"name": "mlp", "hidden": 40})
    came: list[int] = []
    cut = threading.Event()
    wires: list[Wired] = []  # nodes greet while the federation is still being wired

    def break_off(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        """Lose what goes to node 2 after the first part, until it greets over its second connection."""
        if (
            topic.endswith("from/2")
            and kind_of(message) == Kind.HELLO
            and wires
            and wires[0].carriers[2].connections == 2
        ):
            cut.clear()
        if not topic.endswith("to/2") or kind_of(message) != Kind.PART:
            return [(topic, message)]
        if cut.is_set():
            return []
        came.append(int.from_bytes(message[OVERHEAD - 64 + 24 :][:8], "little"))
        if len(came) == 1:
            cut.set()
            threading.Timer(0.1, held.carriers[2].connect).start()
        return [(topic, message)]

    with wired(experiment, meddle=break_off, quality=THIN) as held, asking(held, experiment) as request:
        wires.append(held)
        reply = held.engine.send(request)
        size = len(request.payloads[2])

    assert sorted(reply.sizes) == [0, 1, 2, 3]
    assert came == list(range(0, size, 4096)) and len(came) > 2


def test_a_phase_closes_at_the_declared_share_but_never_below_what_the_sum_needs() -> None:
    experiment = small()

    def silent(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        return [] if topic.endswith("from/3") and kind_of(message) == Kind.ANSWER else [(topic, message)]

    with wired(experiment, meddle=silent, close=0.7, train_timeout=60.0) as held, asking(held, experiment) as request:
        reply = held.engine.send(request)
        assert reply.left == {3: "was not waited for: enough had answered"} and sorted(reply.sizes) == [0, 1, 2]
        held.engine.place = replace(held.engine.place, train_timeout=5.0)
        strict = held.engine.send(request._replace(round=2, least=4))

    assert strict.left == {3: "did not answer within 5 s"}


def test_those_whose_answers_are_not_needed_are_not_missed() -> None:
    experiment = small()

    def silent(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        return [] if topic.endswith("from/3") and kind_of(message) == Kind.ANSWER else [(topic, message)]

    with wired(experiment, meddle=silent, train_timeout=60.0) as held, asking(held, experiment) as request:
        reply = held.engine.send(request._replace(enough=3))

    assert sorted(reply.sizes) == [0, 1, 2] and not reply.left and not reply.failures


def test_what_a_node_says_of_its_link_lengthens_no_phase_beyond_the_time_outs() -> None:
    experiment = small(model={"name": "mlp", "hidden": 40})
    times = {"phase_timeout": 5.0, "train_timeout": 7.0}
    with wired(experiment, quality=LinkQuality(1e9, 1e-3), **times) as held, asking(held, experiment) as request:
        until(lambda: held.engine.status.there == 4)

        assert held.engine._nodes[1].link.rate == 1.0
        assert held.engine._seconds(request._replace(phase="advertise"), 1) == 5.0 + 7.0
        assert held.engine._seconds(request, 1) == 7.0
        assert held.engine._grace(held.engine._nodes[1]) == 5.0


def test_a_slow_link_of_unknown_rate_gives_the_model_time_to_travel() -> None:
    assert LinkQuality(0.001, 0.0).part == 0 and LinkQuality(5.0, 0.0).part == 1 << 14
    assert LinkQuality(5.0, 0.0).least_rate == 80.0 and UNKNOWN.least_rate == 0.0
    experiment = small(model={"name": "mlp", "hidden": 40})
    times = {"phase_timeout": 60.0, "train_timeout": 600.0}
    with wired(experiment, quality=LinkQuality(5.0), **times) as held, asking(held, experiment) as request:
        seconds = held.engine._seconds(request._replace(phase="advertise"), 1)

    assert seconds == pytest.approx(60 + 3 * len(request.payloads[1]) / 80, rel=0.01)


def test_nobody_waits_long_for_those_who_are_gone() -> None:
    experiment = small()
    with wired(experiment, train_timeout=60.0) as held, asking(held, experiment) as request:
        held.kill(3)
        reply = held.engine.send(request)

    assert reply.left == {3: "is gone"} and sorted(reply.sizes) == [0, 1, 2]


def test_a_node_of_another_experiment_is_refused_and_both_say_what_differs() -> None:
    experiment = small()
    other = small(client={"client_lr": 0.25})
    with wired(experiment, nodes=False, min_nodes=0) as held:
        held.start(member_of(other, 1))
        until(lambda: 1 in held.overs)

    assert held.overs[1].code == 2
    assert "another experiment" in held.overs[1].words and "compare the files" in held.overs[1].words
    assert held.engine.status.there == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocol": 1}, "another version of the protocol"),
        ({"roster": "00"}, "another roster"),
        ({"start": "00"}, "another model to begin at"),
        ({"probe": (1.0,)}, "other scores"),
    ],
)
def test_whatever_differs_is_named(change: dict[str, Any], words: str) -> None:
    facts = Facts("1", "c", "r", "s", (0.5, 0.25))
    other = replace(facts, **change)

    assert words in str(facts.difference(other)) and "\n" not in str(facts.difference(other))
    assert facts.difference(replace(facts, probe=(0.5000001, 0.25))) is None


def test_clients_that_are_not_in_the_roster_end_the_run() -> None:
    experiment = small()
    with (
        wired(experiment, nodes=False, min_nodes=0) as held,
        asking(held, experiment) as request,
        pytest.raises(RunError, match="client 9 is not in the roster"),
    ):
        held.engine.send(request._replace(payloads={9: b""}))


def test_the_end_of_a_run_lets_every_node_go() -> None:
    experiment = small()
    with wired(experiment) as held, asking(held, experiment):
        held.engine.say_bye("done after 2 rounds", done=True)
        until(lambda: len(held.overs) == 4)

    assert all(over == (0, "done after 2 rounds") for over in held.overs.values())


def test_an_ask_is_signed_for_one_node_and_no_other() -> None:
    experiment = small()
    seen: dict[str, bytes] = {}

    def watch(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        if message[4] == Kind.ASK:
            seen[topic] = message
        return [(topic, message)]

    with wired(experiment, meddle=watch) as held, asking(held, experiment) as request:
        held.engine.send(request)

    keys = {SERVER: roster_of(4).server}
    for topic, message in seen.items():
        number = int(topic.rsplit("/", 1)[1])
        assert open_message(message, receiver=number, key_of=keys.get, most=1 << 20).round == 1
    assert server_key not in b"".join(seen.values())
