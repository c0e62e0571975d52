"""A private schema: ranges and categories that are learnt from noisy sums, and what they cost."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.cli import main
from sottovoce.config.experiment import parse
from sottovoce.core.errors import DataError, PrivacyError
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.raw import bin_edges, bin_of, code_raw
from sottovoce.data.schema import MISSING_VALUES, read_schema
from sottovoce.federation.stages.answers import read_learnt
from sottovoce.federation.stages.discovery import Discovery
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models import Shard
from sottovoce.models.units import CentreGrid
from sottovoce.runs.loop import run

GRID = CentreGrid(1.0, 37.3, 14)
EMPTY = frozenset(MISSING_VALUES)


def total(
    cells: list[str], persons: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    codes = code_raw(CsvTable("t", {"c": cells}), ["c"], EMPTY)
    return SurveyTally(survey=Discovery(("c",))).total(
        Shard(codes, np.zeros(len(cells), np.int64), persons=persons), GRID
    )


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_number_lies_in_its_bin_unless_that_is_the_last(value: float) -> None:
    low, high = bin_edges(bin_of(value))

    if 2.0**-20 <= abs(value) < 2.0**41:
        assert low <= value <= high
    else:
        assert (low, high) == (0.0, 0.0) or abs(value) >= abs(low)


@settings(max_examples=20)
@given(cell=st.text(max_size=20) | st.floats().map(str) | st.sampled_from(["", "NA", "inf", "1e999", "-0"]))
def test_one_cell_of_any_text_is_never_longer_than_the_clip_norm(cell: str) -> None:
    added = total([cell.replace("\0", "")])

    assert 0 < sum(int(value) ** 2 for value in added[added != 0]) <= GRID.limit


def test_a_person_with_all_kinds_of_cells_is_never_longer_than_the_clip_norm() -> None:
    added = total(["3", "heart", "", "a very long text indeed"], np.zeros(4, np.int64))

    assert sum(int(value) ** 2 for value in added[added != 0]) <= GRID.limit


def read(cells: list[str], noise: float, seed: int = 1) -> dict[str, object]:
    sums = total(cells) / GRID.steps + noise * np.random.default_rng(seed).standard_normal(Discovery(("c",)).length)
    return read_learnt(SurveyTally(survey=Discovery(("c",))), sums, noise, GRID)["c"]


def test_ranges_are_powers_of_two_around_what_is_frequent() -> None:
    rng = np.random.default_rng(1)
    cells = [f"{value:.1f}" for value in rng.uniform(20, 100, 2000)] + ["1000000"] * 3

    found = read(cells, 4.0)

    assert (found["kind"], found["minimum"], found["maximum"]) == ("number", 16.0, 128.0), "three do not show"


def test_words_are_learnt_and_rare_ones_do_not_show() -> None:
    cells = ["heart"] * 900 + ["médecine"] * 600 + ["intensive care"] * 500 + ["of one patient"] * 20 + [""] * 50

    found = read(cells, 4.0)

    assert found["categories"] == ["heart", "intensive care", "médecine"]
    assert found["missing"] == pytest.approx(50, abs=20)


def test_noise_alone_is_no_word_and_no_range() -> None:
    """Ten columns of a quarter of a million cells each."""
    for seed in range(10):
        assert read(["rare"] * 3, 4.0, seed)["kind"] == "ignore"


def test_long_texts_are_left_out_with_the_reason() -> None:
    found = read([f"a letter about patient {number}" for number in range(500)], 4.0)

    assert found["kind"] == "ignore" and "longer than 16 bytes" in str(found["reason"])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(3)
    for site in range(3):
        rows = [f"{rng.integers(20, 90)},{rng.choice(['f', 'm'])}" for _ in range(3000)]
        (folder / f"site_{site}.csv").write_text("\n".join(["age,sex", *rows]) + "\n")
    return folder


def test_a_schema_is_learnt_and_a_run_that_uses_it_pays_for_both(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, files = tmp_path / "schema.toml", [str(tables / f"site_{site}.csv") for site in range(3)]

    assert main(["statistics", *files, "--learn", str(schema), "--epsilon", "1", "--out", str(tmp_path / "a")]) == 0
    assert "Learnt privately with epsilon 1" in capsys.readouterr().out
    told = read_schema(schema)
    assert (told.columns["age"].minimum, told.columns["age"].maximum) == (16.0, 128.0)
    assert told.columns["sex"].categories == ("f", "m")
    assert not told.columns["age"].guessed and told.learnt is not None

    again = ["statistics", *files, "--schema", str(schema), "--epsilon", "1", "--out", str(tmp_path / "b"), "--json"]
    assert main(again) == 0
    assert "learnt privately" in json.loads(capsys.readouterr().out)["schema"]
    summary = json.loads((tmp_path / "b" / "summary.json").read_text())
    assert summary["epsilon_population"] == pytest.approx(2, rel=1e-3), "added"
    assert math.isclose(summary["delta_population"], 2e-6)


def test_a_schema_of_another_unit_is_refused_before_anything_is_written(tables: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    cost = {"epsilon": 1.0, "epsilon_server": 1.0, "delta": 1e-6, "precision": None, "lattice": 0.0, "events": []}
    text = f'[learnt]\nunit = "record"\ncost = {json.dumps(json.dumps(cost))}\n[label]\nclasses = ["f", "m"]\n'
    schema.write_text(text + '[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 99\n')
    of_clients = parse(
        {
            "experiment": {"rounds": 1},
            "data": {"source": str(tables / "site_*.csv"), "label": "sex", "schema": str(schema)},
            "model": {"name": "logistic"},
            "cohort": {"sample_rate": 1},
            "privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0},
        }
    )

    with pytest.raises(PrivacyError, match="hides each record, but this run promises to hide each client"):
        run(of_clients, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_schema_that_hides_its_cost_is_refused() -> None:
    with pytest.raises(DataError, match=r"\[learnt\] cost must be a text"):
        read_schema({"learnt": {"unit": "record", "epsilon": 1.0}})
    with pytest.raises(DataError, match="has no key 'costs'"):
        read_schema({"learnt": {"unit": "record", "costs": "{}"}})


def test_learning_needs_no_schema_and_takes_none(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, old = str(tables / "site_0.csv"), tmp_path / "old.toml"
    old.write_text("")

    assert main(["statistics", file, "--learn", str(old)]) == 2
    assert "already there" in capsys.readouterr().err
    assert main(["statistics", file, "--learn", str(tmp_path / "new.toml"), "--schema", str(old)]) == 2
    assert "no use for [data] schema" in capsys.readouterr().err
