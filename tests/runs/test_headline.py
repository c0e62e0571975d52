"""The files of docs/results/headline.md: chosen on public data, and held to what they promise."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = {"fashion-scattering-dp": 4, "fashion-head-dp": 4, "fashion-everyone-dp": 1, "fashion-once-dp": 1}


def tables(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def flat(table: dict[str, Any], *, above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, above=f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


@pytest.mark.parametrize(("name", "epsilon_server"), FILES.items())
def test_a_headline_file_promises_epsilon_against_the_server_and_says_where_it_was_chosen(
    name: str, epsilon_server: float
) -> None:
    file = tables(ROOT / f"experiments/{name}.toml")

    assert file["experiment"]["name"] == name
    assert file["experiment"]["chosen_on"] == "mnist" and file["data"]["source"] == "fashion-mnist"
    assert file["privacy"]["epsilon"] == 1 and file["privacy"]["epsilon_server"] == epsilon_server
    assert file["privacy"]["delta"] == 1e-5
    assert file["model"]["projection"]["source"] == "leaves", "no real image has a part in the front"


@pytest.mark.parametrize("name", FILES)
def test_only_searched_keys_differ_from_the_file_that_was_searched(name: str) -> None:
    chosen = flat(tables(ROOT / f"experiments/{name}.toml"))
    searched = tables(ROOT / f"experiments/tune/{name}.toml")
    axes = flat(searched.pop("tune"))
    start = flat(searched)

    assert {key for key in chosen.keys() | start.keys() if chosen.get(key) != start.get(key)} <= {
        *axes,
        "experiment.chosen_on",
    }
    assert all(chosen[key] in values for key, values in axes.items())


def test_the_figure_shows_the_numbers_of_the_page() -> None:
    page = (ROOT / "docs/results/headline.md").read_text()
    points = json.loads((ROOT / "docs/results/headline.json").read_text())["points"]
    ours = [point for point in points if point["kind"] == "here"]

    assert {point["file"] for point in ours} == {f"experiments/{name}.toml" for name in FILES}
    by_rule = [point for point in points if point["kind"] == "rule"]
    assert all((ROOT / point["file"]).exists() for point in by_rule)
    for point in ours + by_rule:
        assert point["accuracy"] == pytest.approx(sum(point["seeds"].values()) / len(point["seeds"]), abs=6e-5)
        assert f"**{point['accuracy']:.4f}**" in page
        assert all(f"{value:.4f}" in page for value in point["seeds"].values())
