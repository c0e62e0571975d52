"""The three ways to sum are told as a plan of each would tell them, whichever of them the file asks for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runs.small import small

from sottovoce.planning.plan import plan

PRIVATE = {"epsilon": 8.0, "delta": 0.01, "clip_norm": 1.0}
EVERYONE = {"cohort": {"sample_rate": 1}, "privacy": PRIVATE}
SAME = ("bytes_up_per_client_round", "bytes_down_per_client_round", "epsilon", "epsilon_server", "votes")


def by_way(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {way["way"]: way for way in told["ways"]}


def played(way: dict[str, Any], tables: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of the file with the settings that a way names."""
    settings = dict(setting.removeprefix("aggregation.").split("=") for setting in way["settings"])
    return plan(small(**tables, aggregation=settings))


@pytest.mark.parametrize(
    "tables",
    [
        EVERYONE,
        {**EVERYONE, "scheme": {"name": "fl-sign"}, "privacy": {"epsilon": 8.0, "delta": 0.01}},
        {"privacy": PRIVATE},
        {"privacy": {"noise_multiplier": 3.0, "delta": 0.01, "clip_norm": 1.0}, "cohort": {"sampling": "fixed"}},
    ],
)
def test_every_way_costs_and_promises_what_a_plan_of_it_tells(tables: dict[str, Any]) -> None:
    ways = by_way(plan(small(**tables)))
    there = [way for way in ways.values() if way["refused"] is None]

    assert len(there) == (3 if "privacy" in tables and tables.get("cohort", {}).get("sample_rate") == 1 else 2)
    for way in there:
        alone = played(way, tables)
        assert {key: way[key] for key in SAME} == {key: alone[key] for key in SAME}
        assert way["phases"] == len(alone["bytes_per_client_phase"])
        usual = {device["name"]: device["joules_per_client"]["default"] for device in alone["devices"]}
        assert {name: each["default"] for name, each in way["joules_per_client"].items()} == {
            name: usual[name] for name in way["joules_per_client"]
        }
        if enrolment := alone["bytes_enrolment_per_client"]:
            assert way["bytes_once_per_client"] == enrolment["up"] + enrolment["down"]


def test_it_does_not_matter_which_way_the_file_asks_for() -> None:
    asked: list[dict[str, Any]] = [{"secure": "ideal"}, {"secure": "real"}, {"secure": "ballot", "ballot": "sign"}]
    first, *others = (plan(small(**EVERYONE, aggregation=keys))["ways"] for keys in asked)

    assert all(ways == first for ways in others)


def test_noise_is_that_of_the_file_so_ballots_tell_an_aggregator_more_than_masks_tell_a_full_cohort() -> None:
    target = {"epsilon_server": 4.0, "delta": 0.01, "clip_norm": 1.0}
    told = plan(small(cohort={"sample_rate": 1}, privacy=target))
    ways = by_way(told)

    assert len({way["epsilon"] for way in ways.values()}) == 1
    assert ways["noise by clients"]["epsilon_server"] == told["epsilon_server"] <= 4
    assert ways["ballots"]["epsilon_server"] > 4


def test_with_ballots_a_client_has_one_vote_and_with_masks_more() -> None:
    ways = by_way(plan(small(**EVERYONE)))

    assert ways["ballots"]["votes"] == 1
    assert ways["noise by clients"]["votes"] == ways["session keys"]["votes"] > 1
    assert "do not collude" in ways["ballots"]["trust"] and "one server" in ways["noise by clients"]["trust"]


@pytest.mark.parametrize(
    ("tables", "refused"),
    [
        ({"privacy": PRIVATE}, {"session keys": "sample_rate is 1/2"}),
        ({"privacy": {**PRIVATE, "clipping": "adaptive"}, "cohort": {"sample_rate": 1}}, {"ballots": "adaptive"}),
        (
            {"privacy": {**PRIVATE, "mechanism": "gaussian"}, "cohort": {"sample_rate": 1}},
            dict.fromkeys(("noise by clients", "session keys", "ballots"), "gaussian"),
        ),
    ],
)
def test_a_way_that_the_file_cannot_be_played_in_says_why_and_has_no_epsilon(
    tables: dict[str, Any], refused: dict[str, str]
) -> None:
    ways = by_way(plan(small(**tables)))

    assert {name for name, way in ways.items() if way["refused"] is not None} == set(refused)
    for name, words in refused.items():
        assert words in ways[name]["refused"] and ways[name]["epsilon"] is ways[name]["votes"] is None


def test_an_attack_in_the_file_refuses_no_way() -> None:
    attack = {"attack": "gradient-ascent", "fraction": 0.1, "boost": 10}

    assert all(way["refused"] is None for way in plan(small(**EVERYONE, threat=attack))["ways"])


def test_a_device_that_cannot_hold_the_model_has_no_joules_and_a_run_without_privacy_no_ways() -> None:
    large = {"data": {"source": "fashion-mnist", "clients": 100}, "model": {"name": "cnn"}}
    ways = plan(small(**large, privacy={**PRIVATE, "delta": 0.001}))["ways"]

    assert all(way["joules_per_client"]["sensor-nbiot"] is None for way in ways)
    assert plan(small())["ways"] is None
