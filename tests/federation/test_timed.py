from __future__ import annotations

import numpy as np
import pytest

from sottovoce.core.streams import Streams
from sottovoce.devices import Clock, Population, RoundTime, Rules
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.wrappers.timed import Timed


class Recorder:
    """An engine that answers for everyone who is asked and not silent, with 1000 bytes."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def send(self, request: Request) -> Reply:
        self.requests.append(request)
        there = [client for client in request.payloads if client not in request.silent]
        return Reply(dict.fromkeys(there, 1000), {})


def timed(rules: Rules, latency: dict[int, tuple[float | None, float | None]] | None = None) -> tuple[Timed, Recorder]:
    population = Population.of("phone-wifi", Streams(3), drawn=False)
    rules = Rules(rules.deadline, rules.target, rules.failures, latency=latency or {})
    recorder = Recorder()
    clock = Clock(population, lambda clients: np.zeros(len(clients)), {"train": 1000.0, "unmask": 10.0}, rules)
    return Timed(recorder, clock), recorder  # type: ignore[arg-type]


def request(phase: str = "train", *, opening: bool = True, waits: bool = False, round_: int = 1) -> Request:
    return Request(
        round_, phase, dict.fromkeys(range(4), b"x" * 500), lambda *_: None, opening=opening, waits_for_all=waits
    )


LATE = {2: (9.0, 9.0)}


def test_who_is_late_hears_the_opening_and_is_not_asked_to_answer() -> None:
    engine, recorder = timed(Rules(deadline=5.0, failures=False), LATE)

    reply = engine.send(request())

    assert recorder.requests[0].silent == {2}
    assert set(recorder.requests[0].payloads) == {0, 1, 2, 3}
    assert reply.left == {2: "lost before train: deadline"}
    assert set(reply.sizes) == {0, 1, 3}
    assert engine.told(1).seconds == 5.0


def test_who_is_late_in_a_later_phase_is_not_sent_it() -> None:
    engine, recorder = timed(Rules(deadline=5.0, failures=False), LATE)

    engine.send(request("unmask", opening=False))

    assert set(recorder.requests[0].payloads) == {0, 1, 3}


def test_nobody_leaves_where_the_server_waits_for_all() -> None:
    engine, recorder = timed(Rules(deadline=5.0, failures=False), LATE)

    assert engine.send(request("enrol", waits=True)).left == {}
    assert recorder.requests[0].silent == frozenset()


def test_each_round_has_its_own_clock() -> None:
    engine, _ = timed(Rules(failures=False))
    engine.send(request())
    first = engine.told(1)
    engine.send(request(round_=2))

    assert engine.told(2) == first
    assert engine.told(1) == RoundTime(0.0, None, {})


def test_phases_of_a_round_add_up() -> None:
    engine, _ = timed(Rules(failures=False))
    engine.send(request())
    one = engine.told(1).seconds
    engine.send(request("unmask", opening=False))

    assert engine.told(1).seconds > one + 0.03


def test_without_failures_requests_and_replies_pass_unchanged() -> None:
    engine, recorder = timed(Rules(failures=False))
    sent = request()

    assert engine.send(sent) == Reply(dict.fromkeys(range(4), 1000), {})
    assert recorder.requests == [sent]


def test_clients_that_left_by_themselves_are_waited_for_until_the_deadline() -> None:
    engine, _ = timed(Rules(deadline=5.0, failures=False))

    engine.send(request()._replace(silent=frozenset({1})))

    assert engine.told(1).seconds == pytest.approx(5.0)
