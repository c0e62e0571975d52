"""Accuracy by a declared subgroup and by site, or the reason why it is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.errors import DataError, InputError
from sottovoce.models.metrics import as_answers
from sottovoce.models.quality import by_group
from sottovoce.models.task import ClassTask

FILES = Path(__file__).parents[1] / "files"
KEYS: dict[str, Any] = {
    "model": "logistic",
    "label": "died",
    "schema": FILES / "hospitals.toml",
    "rounds": 2,
    "workers": 1,
}
PRIVACY = sv.Privacy(epsilon_server=4, delta=1e-4, unit="record", min_units=20)


def told(**keys: Any) -> dict[str, Any]:
    result = sv.simulate(str(FILES / "hospital_*.csv"), **KEYS, **keys)
    quality: dict[str, Any] = result.summary["quality"]
    return quality


def test_groups_share_the_records_and_their_accuracy_is_that_of_all() -> None:
    quality = told(subgroup="sex")

    for name, column, names in (
        ("subgroups", "sex", ["f", "m"]),
        ("sites", "file", [f"hospital_{number}.csv" for number in range(1, 6)]),
    ):
        groups = quality[name]["groups"]
        assert (quality[name]["column"], [group["name"] for group in groups]) == (column, names)
        assert sum(group["records"] for group in groups) == quality["records"]
        right = sum(group["records"] * group["accuracy"] for group in groups)
        assert right / quality["records"] == pytest.approx(quality["accuracy"])
        worst = min(groups, key=lambda group: group["accuracy"])
        assert quality[name]["worst"] == worst["name"]
        assert quality[name]["worst_tenth_accuracy"] == worst["accuracy"]
        assert quality[f"{name}_reason"] is None


def test_what_is_not_told_has_its_reason() -> None:
    assert told()["subgroups_reason"] == "[data] subgroup names no column"
    private = told(subgroup="sex", privacy=PRIVACY, test_public=True, clients=4)

    assert [group["name"] for group in private["subgroups"]["groups"]] == ["f", "m"]
    assert private["sites"] is None
    assert "tells nothing of a single site" in private["sites_reason"]


def test_a_subgroup_has_few_values_and_a_column() -> None:
    with pytest.raises(DataError, match=r"subgroup = 'platelets' has \d+ different values, at most 50"):
        told(subgroup="platelets")
    with pytest.raises(DataError, match="no column 'sexx'"):
        told(subgroup="sexx")
    with pytest.raises(InputError, match="subgroup= is for another kind of data"):
        sv.simulate((np.zeros((20, 2), np.float32), np.arange(20) % 2), "logistic", subgroup="sex")


def test_the_worst_tenth_is_of_groups_and_empty_groups_are_left_out() -> None:
    answers = as_answers(np.array([1.0, -1, 1, 1]), np.array([1, 0, 0, 1]), ClassTask(2, single=True))

    found = by_group(answers, "ward", ("a", "b", "c"), np.array([0, 0, 2, 2]))

    assert [(group["name"], group["accuracy"]) for group in found["groups"]] == [("a", 1.0), ("c", 0.5)]
    assert (found["worst"], found["worst_tenth_accuracy"]) == ("c", 0.5)
