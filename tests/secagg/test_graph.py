"""The sparse graph keeps the bound that its page states."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.core.errors import InputError
from sottovoce.secagg import default_threshold, graph

Factory = Any


@given(
    population=st.integers(1, 300), marked=st.integers(0, 300), draws=st.integers(0, 300), at_least=st.integers(-1, 301)
)
def test_the_tail_is_the_hypergeometric_one(population: int, marked: int, draws: int, at_least: int) -> None:
    marked, draws = min(marked, population), min(draws, population)
    expected = float(stats.hypergeom.sf(at_least - 1, population, marked, draws))

    got = math.exp(graph._log_tail(population, marked, draws, at_least))

    assert got == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("clients", [201, 500, 2000])
@pytest.mark.parametrize("share", [0.67, 0.9])
@pytest.mark.parametrize("part", [0, 1 / 10, 1 / 3])
def test_the_chosen_degree_keeps_all_three_conditions(clients: int, share: float, part: float) -> None:
    threshold, colluders = math.ceil(clients * share), int(clients * part)
    degree, needed = graph.choose(clients, threshold, colluders)
    dropouts = clients - threshold

    assert degree < clients - 1 and degree % 2 == 0
    assert 2 * needed > degree + 1
    assert clients * stats.hypergeom.sf(needed - 1, clients - 1, colluders, degree) <= 2**-121
    assert clients * stats.hypergeom.sf(degree - needed, clients - 1, dropouts, degree) <= 2**-20
    removed = colluders + dropouts
    assert clients * math.prod((removed - i) / (clients - i) for i in range(degree // 2)) <= 2**-41


def test_up_to_two_hundred_clients_everybody_is_a_neighbour(cohort: Factory) -> None:
    assert graph.choose(200, 134, 0) == (199, 134)
    session = cohort(9).session
    assert session.around(4) == frozenset(range(9)) - {4}


@pytest.mark.parametrize("clients", [201, 300])
def test_there_is_no_cliff_where_the_complete_graph_ends(cohort: Factory, clients: int) -> None:
    """If everyone must stay and nobody colludes, two neighbours would do; the graph is for a third all the same."""
    keys = {client: bytes(32) for client in range(clients)}
    session = replace(cohort(4).session, clients=tuple(keys), keys=keys, threshold=clients, graph_colluders=None)

    assert session.colluders == 0 and session.graph_colluders == clients // 3
    assert replace(session, graph_colluders=0).degree.neighbours == 2
    degree, needed = session.degree
    assert clients * stats.hypergeom.sf(needed - 1, clients - 1, clients // 3, degree) <= 2**-121


def test_neighbours_are_mutual_and_as_many_as_stated(cohort: Factory) -> None:
    session = cohort(60, threshold=55, neighbours=24, graph_colluders=0).session

    for place in range(60):
        around = session.around(place)
        assert len(around) == 24 and place not in around
        assert all(place in session.around(peer) for peer in around)


def test_the_ring_changes_with_the_round(cohort: Factory) -> None:
    one = cohort(60, threshold=55, neighbours=24, graph_colluders=0).session
    assert one.around(0) != one.for_round(8).around(0)


def test_too_few_neighbours_are_refused_with_the_least_that_would_do() -> None:
    least = graph.choose(500, default_threshold(500), 0).neighbours
    with pytest.raises(InputError, match=f"neighbours must be at least {least} for 500 clients"):
        graph.choose(500, default_threshold(500), 0, least - 2)
    assert graph.choose(500, default_threshold(500), 0, least).neighbours == least


def test_no_sparse_graph_is_invented_where_the_bound_allows_none() -> None:
    assert graph.choose(210, 106, 0).neighbours == 209
