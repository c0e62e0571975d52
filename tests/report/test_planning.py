"""A plan in plain words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.runs.small import small

from sottovoce.planning.plan import plan
from sottovoce.report.planning import Section, plan_sections, write_plan
from sottovoce.report.units import epsilon

PRIVATE = {"epsilon": 8.0, "delta": 0.01, "clip_norm": 1.0}


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return plan(small(privacy=PRIVATE))


@pytest.fixture(scope="module")
def sections(told: dict[str, Any]) -> list[Section]:
    return plan_sections(told)


def test_a_plan_is_told_in_six_groups_and_one_without_privacy_in_five(sections: list[Section]) -> None:
    titles = ["The run", "Privacy", "Bytes", "Time and energy", "Robustness"]

    assert [section.title for section in sections] == [*titles, "Three ways to sum"]
    assert [section.title for section in plan_sections(plan(small()))] == titles


def test_every_adversary_has_its_epsilon(told: dict[str, Any], sections: list[Section]) -> None:
    facts = dict(sections[1].facts)

    assert facts["against outsiders"].startswith("epsilon 8")
    for who, key in (("the server", "epsilon_server"), ("a client of the cohort", "epsilon_member")):
        assert facts[f"against {who}"] == f"epsilon {epsilon(told[key])}"


def test_a_run_that_is_not_private_says_so() -> None:
    assert "not private" in dict(plan_sections(plan(small()))[1].facts)["epsilon"]


def test_every_phase_and_every_device_has_a_row(told: dict[str, Any], sections: list[Section]) -> None:
    phases, devices = sections[2].grids[0], sections[3].grids[0]

    assert [row[0] for row in phases.rows][:5] == list(told["phases"])
    assert [row[0] for row in devices.rows] == [f"{device['name']} ({device['year']})" for device in told["devices"]]


def test_the_ways_are_compared_once_and_a_refused_one_says_why(sections: list[Section]) -> None:
    ways = sections[5]
    clients, session, ballots = ways.grids[0].rows

    assert (clients[0], session[0], ballots[0]) == ("noise by clients", "session keys", "ballots")
    assert ballots[-1] == "1" and session[-3:] == ("—", "—", "—")
    assert any("needs every client in every round" in remark for remark in ways.remarks)
    assert not any("ballots" in row[0] or "session" in row[0] for row in sections[2].grids[0].rows)


def test_without_privacy_the_phases_say_what_session_keys_would_cost() -> None:
    rows = plan_sections(plan(small()))[2].grids[0].rows

    assert [row[0].split(" (")[0] for row in rows[-2:]] == ["with session keys", "with ballots"]


def test_joules_come_with_their_range_and_its_meaning(sections: list[Section]) -> None:
    energy = sections[3]

    assert all(re.fullmatch(r"\S+ \(\S+ to \S+\)", row[4]) for row in energy.grids[0].rows)
    assert "not to size a battery" in energy.remarks[-1]


def test_the_page_is_one_file_for_light_and_dark_that_needs_no_network(sections: list[Section], tmp_path: Path) -> None:
    write_plan(sections, "Plan: <script>", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()

    assert "prefers-color-scheme: dark" in page and "<script" not in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(", page)
    assert page.count("<h2>") == 6
