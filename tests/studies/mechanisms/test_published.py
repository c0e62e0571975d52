"""The mechanisms thesis' tables behind `sottovoce reproduce`; how a cell is played is tested in test_study.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.studies import catalogue
from sottovoce.studies.mechanisms import Settings, printed_cells, published
from sottovoce.studies.mechanisms.settings import Cell


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Cell]]:
    """Stand in for playing: ours is the number of clients over 100, and a tenth of the seed."""
    cells: list[tuple[str, Cell]] = []

    def play(settings: Settings, wanted: list[Cell]) -> list[dict[str, Any]]:
        (cell,) = wanted
        cells.append((settings.data, cell))
        return [
            {
                "mechanism": cell.mechanism,
                "epsilon": cell.epsilon,
                "clients": cell.clients,
                "samples": cell.samples,
                "accuracy": cell.clients / 100 + settings.seed / 10,
                "seconds": 2.0,
            }
        ]

    monkeypatch.setattr(published, "study_cells", play)
    return cells


def test_every_table_has_its_printed_cells_in_order(played: list[tuple[str, Cell]], tmp_path: Path) -> None:
    for name in published.names():
        document = published.reproduce(name, out=tmp_path)
        assert [line["printed"] for line in document["cells"]] == [cell.printed for cell in printed_cells(int(name))]
        assert all(line["difference"] == line["ours"] - line["printed"] for line in document["cells"])


def test_cells_are_played_once_for_all_tables(played: list[tuple[str, Cell]], tmp_path: Path) -> None:
    published.reproduce("4", out=tmp_path)
    first = len(played)
    published.reproduce("4", out=tmp_path)
    assert len(played) == first == 12

    published.reproduce("10", out=tmp_path)
    assert len(played) == 12 + 24 - 8, "Laplace on MNIST is in both"


def test_a_line_that_was_cut_off_is_played_again(played: list[tuple[str, Cell]], tmp_path: Path) -> None:
    published.reproduce("3", rows=["mnist"], out=tmp_path)
    (file,) = tmp_path.rglob("cells.jsonl")
    whole = file.read_text()
    file.write_text(whole[:-20])
    played.clear()

    published.reproduce("3", rows=["mnist"], out=tmp_path)

    assert len(played) == 1
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        json.loads(line) for line in whole.splitlines()
    ]


def test_seeds_give_a_mean_and_a_spread(played: list[tuple[str, Cell]], tmp_path: Path) -> None:
    (line,) = published.reproduce("3", rows=["mnist no noise: 3 clients of 100"], seeds=3, out=tmp_path)["cells"]

    assert line["ours"] == pytest.approx(0.03 + 0.2) and line["spread"] == pytest.approx(0.1) and line["seeds"] == 3


def test_the_list_tells_what_was_played(played: list[tuple[str, Cell]], tmp_path: Path) -> None:
    published.reproduce("3", rows=["mnist"], out=tmp_path)
    entries = {entry["name"]: entry for entry in catalogue.listing(tmp_path)}

    assert entries["3"]["small"] == {"cells": 8, "run": 4, "seconds": None, "expected_seconds": 16.0}
    assert entries["4"]["full"]["run"] == 4 and entries["11"]["small"]["run"] == 0
    assert "5.5" in entries


def test_a_table_is_found_by_its_number_and_a_row_by_its_words(tmp_path: Path) -> None:
    assert catalogue.study_of("Tab. 7") is published
    with pytest.raises(InputError, match=r"table 3 has no row 'laplace'; "):
        published.reproduce("3", rows=["Laplace"], out=tmp_path)
    with pytest.raises(InputError, match="there is no published table '12'"):
        catalogue.study_of("12")
