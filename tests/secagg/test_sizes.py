"""The sizes told beforehand are the sizes of what clients and server really write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sottovoce.core.wire import Traffic
from sottovoce.secagg import PHASES, KeyedEntropy, Registrar, StandingClient
from sottovoce.secagg.sizes import enrolment_sizes, round_sizes

from .test_standing import Standing

Factory = Any


def written(sent: dict[str, dict[int, bytes]], received: dict[str, dict[int, bytes]]) -> dict[str, set[Traffic]]:
    """Return the different pairs of sizes, up and down, that clients of each phase had."""
    return {
        phase: {Traffic(len(received[phase][client]), len(request)) for client, request in requests.items()}
        for phase, requests in sent.items()
    }


@pytest.mark.parametrize(
    "terms",
    [
        {"clients": 2},
        {"clients": 5},
        {"clients": 9, "bits": 32, "length": 1},
        {"clients": 17, "threshold": 12, "colluders": 2},
        {"clients": 60, "threshold": 55, "neighbours": 48},
    ],
    ids=str,
)
def test_the_phases_of_a_round_take_the_bytes_that_were_told(cohort: Factory, terms: dict[str, Any]) -> None:
    one = cohort(**terms)
    one.run()

    told = round_sizes(one.session, opening=0)

    assert tuple(told) == PHASES
    assert written(one.sent, one.received) == {phase: {sizes} for phase, sizes in told.items()}


def test_a_sparse_graph_is_among_the_cases(cohort: Factory) -> None:
    assert cohort(60, threshold=55, neighbours=48).session.degree.neighbours == 48


@pytest.mark.parametrize("clients", [2, 5, 9])
def test_the_phases_of_a_session_take_the_bytes_that_were_told(cohort: Factory, clients: int) -> None:
    standing = Standing(cohort(clients))
    server = standing.run(1)

    told = round_sizes(server.session, opening=0)

    assert written(standing.sent, standing.received) == {phase: {sizes} for phase, sizes in told.items()}


@pytest.mark.parametrize("clients", [2, 9])
def test_enrolment_takes_the_bytes_that_were_told(cohort: Factory, clients: int) -> None:
    one = cohort(clients)
    session = replace(one.session, key_life="session")
    entropy = {client: KeyedEntropy(bytes([client]) * 32) for client in session.clients}
    machines = {c: StandingClient(session, c, one.signing[c], entropy[c]) for c in session.clients}
    keys = {client: machine.advertise() for client, machine in machines.items()}
    lists, _ = Registrar(session).collect("advertise", keys)

    told = enrolment_sizes(session, opening=123)

    assert {Traffic(len(key), 123) for key in keys.values()} == {told["enrol"]}
    assert {Traffic(0, len(keylist)) for keylist in lists.values()} == {told["introduce"]}
