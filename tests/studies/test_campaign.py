"""Campaigns: rows in their order, one file of evidence each, several machines, verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.report.evidence import evidence_page
from sottovoce.studies import campaign, catalogue, published
from sottovoce.studies.campaign import (
    CampaignFile,
    RowTask,
    campaign_names,
    evidence,
    play,
    read_campaign,
    read_evidence,
    tasks,
)
from tests.studies.published.tiny import shared, tiny

__all__ = ["shared", "tiny"]


def small(**keys: Any) -> CampaignFile:
    return CampaignFile.model_validate({"title": "tiny", "scale": "small", "rows": [{"table": "1.1", **keys}]})


@pytest.fixture
def alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave the tiny tables as the only ones."""
    monkeypatch.setattr(catalogue, "STUDIES", (published,))
    return tiny


@pytest.mark.parametrize("name", campaign_names())
def test_what_ships_names_tables_and_rows_that_exist_and_no_two_files_are_one(name: str) -> None:
    listed = tasks(read_campaign(name))

    assert len({task.file(Path()) for task in listed}) == len(listed) > 0


def test_every_printed_row_of_every_table_has_a_file_of_its_own() -> None:
    for name in catalogue.all_names():
        rows = dict.fromkeys(cell["row"] for cell in catalogue.study_of(name).printed(name))
        assert len({RowTask(name, row, "full", 1).file(Path()) for row in rows}) == len(rows), name


def test_parts_are_all_rows_and_no_row_twice() -> None:
    chosen = read_campaign("evidence")
    parts = [tasks(chosen, (number, 3)) for number in (1, 2, 3)]

    assert sorted(task for part in parts for task in part) == sorted(tasks(chosen))


def test_rows_that_come_twice_are_played_once_where_they_come_first() -> None:
    listed = tasks(read_campaign("evidence"))

    assert listed[0].row.startswith("FL-BASIC-DP") and listed[0].table == "5.5"
    assert len(set(listed)) == len(listed)


def test_a_campaign_keeps_one_file_a_row_and_seed_and_plays_nothing_twice(alone: Path, shared: Path) -> None:
    chosen = small(only=["FL-STD", "FL-SIGN"], seeds=2)
    rounds: list[str] = []

    first = list(play(chosen, alone, out=shared, observe=lambda cell, total, record: rounds.append(cell)))
    again = list(play(chosen, alone, out=shared, observe=lambda cell, total, record: rounds.append("again")))

    assert [(task.row, task.seed, reason) for task, reason in first] == [
        ("FL-STD", 1, None),
        ("FL-STD", 2, None),
        ("FL-SIGN", 1, None),
        ("FL-SIGN", 2, None),
    ]
    assert again == [] and "again" not in rounds
    records = read_evidence(alone)
    assert [(record["row"], record["seed"]) for record in records] == [
        ("FL-SIGN", 1),
        ("FL-SIGN", 2),
        ("FL-STD", 1),
        ("FL-STD", 2),
    ]
    seeds = [record["cells"][0]["ours"] for record in records if record["row"] == "FL-STD"]
    assert seeds[0] != seeds[1], "each seed is a run of its own"
    assert all(record["cpu_seconds"] > 0 for record in records)


def test_a_row_that_is_refused_leaves_no_file_and_the_others_are_played(alone: Path, shared: Path) -> None:
    outcomes = dict(play(small(only=["FL-STD-DP refused", "FL-STD"]), alone, out=shared))
    reasons = {task.row: reason for task, reason in outcomes.items()}

    assert reasons["FL-STD"] is None
    assert "delta" in (reasons["FL-STD-DP refused"] or "")
    assert [record["row"] for record in read_evidence(alone)] == ["FL-STD"]


def record(row: str, ours: float | None, *, scale: str = "full", seed: int = 1, **more: Any) -> dict[str, Any]:
    cell = {"column": "accuracy", "ours": ours, "diverged": False, "baseline": 0.1, **more}
    facts = {"setting": "as printed", "commit": None, "cpu_seconds": 1.0, "cells": [cell]}
    return {"table": "1.1", "row": row, "scale": scale, "seed": seed, **facts}


def put(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(each))
    return folder


@pytest.mark.parametrize(
    ("row", "ours", "more", "verdict"),
    [
        ("FL-STD", 0.93, {}, "held"),
        ("FL-STD", 0.87, {}, "held"),
        ("FL-STD", 0.931, {}, "not held"),
        ("FL-STD", 0.5, {"scale": "small"}, "not run"),
        ("FL-STD", 0.9, {"diverged": True}, "not held"),
        ("FL-STD-DP", 0.12, {}, "held"),
        ("FL-STD-DP", 0.9, {}, "not held"),
        ("FL-STD-DP", None, {"diverged": True}, "held"),
        ("FL-SIGN-DP by ballots", 0.9, {}, "ours"),
    ],
)
def test_a_row_holds_within_three_points_of_what_is_printed(
    alone: Path, row: str, ours: float | None, more: dict[str, Any], verdict: str
) -> None:
    document = evidence(put(alone, record(row, ours, **more)))
    verdicts = {each["row"]: each["verdict"] for each in document["tables"][0]["rows"]}

    assert verdicts[row] == verdict
    assert sum(document["counts"].values()) == sum(len(table["rows"]) for table in document["tables"])


def test_a_verdict_is_about_the_mean_over_seeds(alone: Path) -> None:
    document = evidence(put(alone, record("FL-STD", 0.86), record("FL-STD", 0.92, seed=2)))
    row = document["tables"][0]["rows"][0]

    assert row["cells"][0]["ours"] == pytest.approx(0.89)
    assert (row["verdict"], row["seeds"]) == ("held", [1, 2])


def test_the_page_tells_every_row_and_loads_nothing(alone: Path) -> None:
    page = evidence_page(evidence(put(alone, record("FL-STD", 0.7))))

    assert "FL-STD-DP refused" in page and "below-3" in page and "-0.200" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("evidense", "did you mean 'evidence'"),
        ("nowhere.toml", "cannot be read"),
    ],
)
def test_a_campaign_that_is_not_there_is_named(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_campaign(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 3", "title"),
        ("title = 'x'\nrows = []", "rows"),
        ("not toml", "not TOML"),
        ("title = 'x'\n[[rows]]\ntable = '5.5'\nseeds = 0", "seeds"),
    ],
)
def test_a_damaged_campaign_is_refused_with_the_key(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "own.toml").write_text(text)

    with pytest.raises(InputError, match=says):
        read_campaign(str(tmp_path / "own.toml"))


def test_a_file_that_is_no_evidence_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")

    with pytest.raises(InputError, match=r"x\.json is no file of evidence"):
        read_evidence(tmp_path)


def test_an_unknown_row_is_named(alone: Path) -> None:
    with pytest.raises(InputError, match="no row with 'FL-TOP'"):
        tasks(small(only=["FL-TOP"]))


def test_the_evidence_that_is_published_can_be_read() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "cells"

    assert {record["table"] for record in read_evidence(folder)} >= {"5.5", "6.1", "two-percent"}
    assert campaign.NEAR == 0.03
