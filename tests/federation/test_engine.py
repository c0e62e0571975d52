"""The seam between the server's side of a round and whoever carries its messages."""

from __future__ import annotations

import ast
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import sottovoce.federation.engines.local as local
from sottovoce.core import wire
from sottovoce.core.streams import Seeds
from sottovoce.devices import Dropout
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.coding import Clear
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Engine, Enrolment, Reply, Request, drive
from sottovoce.federation.round import Server, server_round
from sottovoce.federation.wrappers.leaving import Leaving
from sottovoce.schemes import make

DIM, CLIENTS = 8, 6


def server() -> Server:
    cohort = Cohort(CLIENTS, Fraction(1))
    aggregator = Direct(Clear("floats", DIM, cohort.most), lambda asked: min(asked, 1))
    return Server(make("fl-std").bind(DIM), cohort, aggregator, Seeds(1).server)


def message(client: int) -> bytes:
    return wire.pack(np.full(DIM, client + 1, np.float32))


class Stub:
    """Engine whose clients send their number; some are taken one by one, the others as a partial sum."""

    def __init__(self, folded: Callable[[int], bool]) -> None:
        self.folded = folded
        self.heard: list[Request] = []

    def enrol(self, enrolment: Enrolment) -> None: ...

    def send(self, request: Request) -> Reply:
        self.heard.append(request)
        assert request.sum is not None
        partial, sizes = request.sum.fold.empty(), {}
        for client in request.payloads.keys() - request.silent:
            sizes[client] = len(message(client))
            if self.folded(client):
                request.sum.fold.add(partial, message(client))
            else:
                request.take(client, message(client))
        request.sum.merge(partial)
        return Reply(sizes, {})

    def close(self) -> None: ...
    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None: ...


def played(engine: Engine) -> np.ndarray:
    played = server()
    return drive(engine, server_round(played, played.init(np.zeros(DIM, np.float32)), 1)).state["params"]


@pytest.mark.parametrize(
    "folded",
    [lambda client: False, lambda client: True, lambda client: client % 2 == 0],
    ids=["taken", "folded", "both"],
)
def test_an_engine_may_take_answers_and_fold_them_and_none_is_lost(folded: Callable[[int], bool]) -> None:
    assert np.allclose(played(Stub(folded)), (1 + 2 + 3 + 4 + 5 + 6) / CLIENTS)


def test_dropout_wraps_any_engine_and_who_leaves_has_heard_the_opening() -> None:
    stub = Stub(lambda client: False)
    leaving = Leaving(stub, Dropout(leave=((1, 3, "mask"),)), Seeds(1).world)
    playing = server()

    result = drive(leaving, server_round(playing, playing.init(np.zeros(DIM, np.float32)), 1))

    assert list(stub.heard[0].payloads) == list(range(CLIENTS))
    assert stub.heard[0].silent == {3}
    assert (result.total.failures, result.total.left) == ({3: "left before mask"}, {3})
    assert np.allclose(result.state["params"], (1 + 2 + 3 + 5 + 6) / CLIENTS)


def test_nobody_leaves_a_request_that_waits_for_all() -> None:
    stub = Stub(lambda client: False)
    leaving = Leaving(stub, Dropout(leave=((1, 3, "mask"),)), Seeds(1).world)
    playing = server()
    request = next(server_round(playing, playing.init(np.zeros(DIM, np.float32)), 1))

    assert not leaving.send(request._replace(waits_for_all=True)).left
    assert leaving.send(request).left == {3: "left before mask"}


def test_bytes_of_each_client_survive_the_round() -> None:
    playing = server()
    leaving = Leaving(Stub(lambda client: True), Dropout(leave=((1, 3, "mask"),)), Seeds(1).world)

    total = drive(leaving, server_round(playing, playing.init(np.zeros(DIM, np.float32)), 1)).total

    size = len(message(0))
    assert total.clients == {client: (0 if client == 3 else size, size) for client in range(CLIENTS)}
    assert total.bytes_up == sum(sizes.up for sizes in total.clients.values())


def test_the_local_engine_names_no_phase() -> None:
    phases = {"train", "mask", "advertise", "share", "consistency", "unmask", "enrol", "introduce"}
    tree = ast.parse(Path(local.__file__).read_text())
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    named = {leaf.value for node in compared for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}

    assert not phases & named
