"""What stands against the server: its epsilon as a target, and what a release before round 1 takes from its delta."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.privacy.plan.vote import vote_plan

TARGET: dict[str, Any] = {
    "clients": 6000,
    "sample_rate": 1 / 60,
    "rounds": 200,
    "delta": 1e-5,
    "length": 8317,
    "clip_norm": 0.61,
}


def test_a_target_against_the_server_is_kept_at_the_lowest_threshold() -> None:
    """The grid used to follow a server that knows a third of the noise, and the target was missed without a word."""
    plan = PrivacyPlan.solve(**TARGET, epsilon_server=40.0, threshold=0.5)

    assert plan.epsilon_server <= 40.0


def test_a_target_against_the_server_that_the_tables_cannot_keep_is_refused() -> None:
    with pytest.raises(PrivacyError, match="epsilon_server 60 is out of reach"):
        PrivacyPlan.solve(**TARGET, epsilon_server=60.0, threshold=0.5)


def test_the_lattice_of_what_was_spent_before_is_taken_from_the_servers_delta() -> None:
    """A vote has two hundred times the coordinates of a round, and a grid of its own."""
    spent = Event(noise_multiplier=2.0, sample_rate=1 / 60, rounds=1)
    keys = {**TARGET, "noise_multiplier": 1.2244, "threshold": 2 / 3}
    exact, coarse = (
        PrivacyPlan.solve(**keys, spent=(replace(spent, lattice=distance),)).epsilon_server for distance in (0.0, 1e-15)
    )

    assert exact < coarse


def test_a_votes_events_carry_the_distance_of_its_grid() -> None:
    keys = {"clients": 600, "sample_rate": 0.1, "delta": 1e-4, "length": 5000}
    plan, spent = vote_plan(kept=50, noise_multiplier=2.0, **keys)

    assert plan.grid is not None and spent[0].lattice == plan.grid.slack > 0
