from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.aggregator import Aggregator
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.aggregation.servers import Serverless, Servers, peer_sizes
from sottovoce.federation.coding import Clear, Coding
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Request
from sottovoce.federation.growth import CONVERGED, Growth, converged, gone, too_few_left, with_gone
from sottovoce.federation.round import RoundResult, Server, costs_of, server_round
from sottovoce.schemes import make
from tests.federation.driven import constant, drive, sending

DIM = 8
CLIENTS = 5


def server(wrap: Any = None, needed: int = 1) -> tuple[Server, Coding]:
    cohort = Cohort(CLIENTS, Fraction(1), "fixed")
    coding = Clear("floats", DIM, cohort.most)
    direct: Aggregator = Direct(coding, lambda asked: min(asked, needed))
    return Server(make("fl-std").bind(DIM), cohort, direct if wrap is None else wrap(direct), Seeds(1).server), coding


def played(told: tuple[Server, Coding], state: Any = None, leaving: tuple[int, ...] = ()) -> RoundResult:
    """Play a round in which client k sends k + 1; those that leave have converged."""
    side, coding = told
    send = sending(coding, constant(DIM))

    def answer(request: Request, client: int) -> bytes:
        if client in leaving:
            raise RunError(CONVERGED)
        return send(request, client)

    return drive(server_round(side, side.init(np.zeros(DIM, np.float32)) if state is None else state, 1), answer)


def test_several_servers_add_up_to_one() -> None:
    one, two = played(server()), played(server(lambda direct: Servers(direct, 2)))

    assert np.array_equal(one.state["params"], two.state["params"])
    assert two.total.senders == CLIENTS
    assert (two.total.bytes_up, two.total.bytes_down) == (one.total.bytes_up, one.total.bytes_down)
    assert two.total.clients == one.total.clients
    assert two.total.between_servers == 2 * 1 * 8 * DIM
    assert one.total.between_servers == 0


def test_a_server_with_too_few_clients_releases_nothing_and_the_others_go_on() -> None:
    # Of two servers one has clients 1 and 3, and needs three.
    side = server(lambda direct: Servers(replace(direct, fewest=lambda asked: 3), 2))
    result = played(side)

    assert np.allclose(result.state["params"], (1 + 3 + 5) / CLIENTS)
    assert result.total.reason is None
    assert result.total.between_servers == 0  # there is nobody to tell

    nobody = played(server(lambda direct: Servers(replace(direct, fewest=lambda asked: 4), 2)))
    assert nobody.total.values is None
    assert nobody.total.reason is not None
    assert nobody.total.reason.count("nothing was released") == 2


def test_without_a_server_each_client_gets_what_all_others_send() -> None:
    one, none = played(server()), played(server(Serverless))
    size = one.total.bytes_up // CLIENTS

    assert np.array_equal(one.state["params"], none.state["params"])
    assert none.total.bytes_up == none.total.bytes_down == CLIENTS * (CLIENTS - 1) * size
    assert set(none.total.clients.values()) == {(4 * size, 4 * size)}
    assert none.total.phases == {"train": (20 * size, 20 * size)}


def test_without_a_server_a_client_that_sends_nothing_still_receives() -> None:
    told = played(server(Serverless), leaving=(2,)).total
    size = told.clients[0].up // 4

    assert tuple(told.clients[2]) == (0, 4 * size)
    assert tuple(told.clients[0]) == (4 * size, 3 * size)


@pytest.mark.parametrize("wrap", [Serverless, lambda direct: Servers(direct, 2)])
def test_costs_are_told_beforehand(wrap: Any) -> None:
    side, coding = server(wrap)
    state = side.init(np.zeros(DIM, np.float32))
    costs, total = costs_of(side, state), played((side, coding)).total

    assert (costs.round.up, costs.round.down) == (total.bytes_up, total.bytes_down)


def test_a_client_that_has_left_is_not_asked_again_and_does_not_count_in_the_mean() -> None:
    told = server()
    first = played(told, leaving=(0, 3))
    second = played(told, first.state)

    assert first.cohort == CLIENTS
    assert np.allclose(first.state["params"], (2 + 3 + 5) / 5)  # the updates of those who leave are nearly nothing
    assert second.cohort == second.total.senders == 3
    moved = second.state["params"] - first.state["params"]
    assert np.allclose(moved, (2 + 3 + 5) / 3)
    assert gone(second.state) == {0, 3}


def test_the_round_in_which_all_leave_is_no_failure() -> None:
    result = played(server(), leaving=tuple(range(CLIENTS)))

    assert gone(result.state) == set(range(CLIENTS))
    assert too_few_left(result.state)


def slow(phase: str, members: list[int], sizes: dict[int, int]) -> dict[int, list[int]]:
    """Send every message by hand."""
    told = {client: [0, 0] for client in members}
    for sender, size in sizes.items():
        for receiver in members:
            if receiver != sender:
                part = size // (len(members) - 1) if phase == "share" else size
                told[sender][0] += part
                told[receiver][1] += part
    return told


@pytest.mark.parametrize("phase", ["train", "advertise", "share", "mask"])
@pytest.mark.parametrize("sizes", [{0: 10, 3: 10, 5: 10}, {0: 11, 5: 7}, {}])
def test_messages_between_clients_are_counted_one_by_one(phase: str, sizes: dict[int, int]) -> None:
    members = [0, 3, 5]

    found = peer_sizes(phase, members, sizes)

    assert {client: list(both) for client, both in found.items()} == slow(phase, members, sizes)
    assert sum(both.up for both in found.values()) == sum(both.down for both in found.values())


def test_one_client_sends_to_nobody() -> None:
    assert tuple(peer_sizes("share", [4], {4: 10})[4]) == (0, 0)


def test_records_grow_or_are_fresh() -> None:
    records = np.arange(10)

    assert Growth(3, cumulative=True).of(records, 2).tolist() == [0, 1, 2, 3, 4, 5]
    assert Growth(3, cumulative=False).of(records, 2).tolist() == [3, 4, 5]
    assert Growth(3, cumulative=True).of(records, 0).tolist() == [0, 1, 2]  # a vote or a warm start
    assert Growth(3, cumulative=True).of(records, 9).tolist() == list(range(10))


def test_convergence_is_of_every_weight() -> None:
    update = np.array([0.01, -0.09], np.float32)

    assert converged(update, 0.1)
    assert not converged(update, 0.09)
    assert not converged(update, 0.05)
    assert not converged(np.zeros(3, np.float32), 0.0)  # the switch is off


def test_who_has_left_stays_away() -> None:
    first = with_gone({}, 4, {1: CONVERGED, 2: "another reason"})
    second = with_gone(first, 4, {3: CONVERGED})

    assert gone({}) == frozenset()
    assert gone(first) == {1}
    assert gone(second) == {1, 3}
    assert not too_few_left(second)
    assert too_few_left(with_gone(second, 4, {0: CONVERGED}))
    assert with_gone({}, 4, {2: "another reason"}) == {}
