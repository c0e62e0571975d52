from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from tests.runs.small import small

import sottovoce as sv
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.report.quality import over_seeds as reported
from sottovoce.report.quality import seed_lines
from sottovoce.report.runs import facts, read_run
from sottovoce.runs.folder import read_summary
from sottovoce.search.seeds import over_seeds, run_seeds

PRIVATE = {"epsilon": 4.0, "delta": 0.001, "clip_norm": 1.0}
SHORT = {"rounds": 2}


def test_several_seeds_have_a_folder_each_and_their_mean_and_spread(tmp_path: Path) -> None:
    told = run_seeds(small(experiment={**SHORT, "seed": 5}), 3, tmp_path / "runs")

    folders = sorted(path.parent for path in (tmp_path / "runs").glob("*/summary.json"))
    values = [(read_summary(folder) or {})["accuracy_final"] for folder in folders]
    assert told["seeds"] == [5, 6, 7] and len(set(values)) > 1
    spread = told["metrics"]["accuracy_final"]
    assert spread["mean"] == pytest.approx(sum(values) / 3)
    assert spread["spread"] == pytest.approx(statistics.stdev(values))
    assert (spread["lowest"], spread["highest"]) == (min(values), max(values))
    assert json.loads((tmp_path / "runs" / "seeds.json").read_text()) == told
    ((words, names),) = reported(facts([read_run(folder) for folder in folders]))
    assert words.startswith(f"accuracy of the final model over 3 seeds: {spread['mean']:.4f} ± ")
    assert names == "small-seed-5, small-seed-6, small-seed-7"


def test_every_seed_of_a_private_run_is_charged_and_the_sum_is_told(tmp_path: Path) -> None:
    budget = str(tmp_path / "budget.jsonl")
    told = run_seeds(small(experiment=SHORT, privacy=PRIVATE | {"budget": budget}), 3, tmp_path / "runs")

    together = told["together"]
    assert together["runs"] == 3
    assert together["epsilon"] > 1.4 * told["runs"][0]["epsilon"]
    assert told["runs"][-1]["population"]["runs"] == 3  # the budget counted each
    assert "every seed was charged in full" in seed_lines(told)["epsilon of all seeds together"]


def test_seeds_that_a_budget_does_not_hold_are_refused(tmp_path: Path) -> None:
    private = PRIVATE | {"budget": str(tmp_path / "budget.jsonl"), "budget_epsilon": 6.0}

    with pytest.raises(PrivacyError, match="budget_epsilon 6"):
        run_seeds(small(experiment=SHORT, privacy=private), 4, tmp_path / "runs")


@pytest.mark.parametrize("count", [-1, 0, 1, 101])
def test_one_seed_has_no_spread(count: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"seeds must be from 2 to 100, got {count}"):
        run_seeds(small(), count, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_metric_that_one_seed_lacks_has_no_mean() -> None:
    base = {"private": False, "verdict": None}

    told = over_seeds([{**base, "accuracy_final": 0.5}, {**base, "accuracy_final": None}])

    assert told["metrics"]["accuracy_final"] is None


def test_a_simulation_with_seeds_knows_them_all(tmp_path: Path) -> None:
    result = sv.simulate("digits", "logistic", clients=10, rounds=1, seeds=2, seed=3, out=tmp_path / "two")

    values = [each["accuracy_final"] for each in result.seeds]
    assert result["accuracy_final"] == values[0]
    assert result.over_seeds["metrics"]["accuracy_final"]["mean"] == pytest.approx(sum(values) / 2)
    assert (tmp_path / "two" / "seed-4" / "summary.json").exists()
    assert "± " in repr(result)
