"""A plan on paper."""

from __future__ import annotations

import pytest
from tests.runs.small import small

from sottovoce.core.errors import InputError
from sottovoce.planning.scale import at_scale, server_seconds
from sottovoce.secagg.session import MOST_CLIENTS


def test_a_million_clients_a_round_are_cut_into_sessions_on_a_sparse_graph() -> None:
    told = at_scale(small(), clients=10**9, cohort=10**6)

    assert told["sessions_a_round"] * told["clients_a_session"] >= 10**6
    assert told["clients_a_session"] <= MOST_CLIENTS
    assert 100 < told["neighbours"] <= told["neighbours_in_one_graph"] < 2000
    assert told["bytes_in_a_day"] == 24 * 10**6 * told["bytes_up_per_client_round"]
    assert told["server_cpu_seconds_a_round"] == server_seconds(10**6, told["neighbours"], told["message_length"])


def test_what_was_measured_is_what_the_formula_gives_there() -> None:
    assert server_seconds(100, 99, 8_317) == pytest.approx(0.12)
    assert server_seconds(100, 99, 1_663_370) == pytest.approx(0.53)


def test_a_private_plan_on_paper_lowers_delta() -> None:
    private = {"epsilon": 8.0, "epsilon_server": 8.0, "delta": 0.01, "clip_norm": 1.0}
    told = at_scale(small(privacy=private), clients=10**6, cohort=10**5)

    assert told["delta"] == 0.99e-6 and told["epsilon_server"] <= 8.0


def test_a_cohort_larger_than_everybody_is_refused() -> None:
    with pytest.raises(InputError, match="COHORT"):
        at_scale(small(), clients=10, cohort=11)
