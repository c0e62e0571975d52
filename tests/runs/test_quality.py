from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import PrivacyError
from sottovoce.core.provenance import Owned
from sottovoce.runs.evaluation import model_quality
from sottovoce.runs.loop import run

from .small import small

PRIVATE = {"epsilon": 8.0, "delta": 0.01, "clip_norm": 1.0}


def lazy(**tables: dict[str, object]) -> Experiment:
    """Return a run that learns nothing."""
    return small(client={"local_steps": 1, "client_lr": 1e-9}, experiment={"rounds": 2}, **tables)


def test_every_summary_knows_the_baseline_of_its_test_records(tmp_path: Path) -> None:
    summary = run(small(client={"local_steps": 10, "client_lr": 0.5}), tmp_path / "run")

    quality = summary["quality"]
    assert summary["baseline_accuracy"] == quality["baseline"]["accuracy"] < 0.2
    assert summary["verdict"] is None and quality["try"] == []
    assert quality["accuracy"] == summary["accuracy_final"]
    low, high = quality["intervals"]["accuracy"]
    assert low < summary["accuracy_final"] < high
    assert sum(map(sum, quality["confusion"])) == quality["records"]


def test_a_model_that_learnt_nothing_says_so_and_what_to_try(tmp_path: Path) -> None:
    summary = run(lazy(), tmp_path / "run")

    assert summary["verdict"].startswith("no better than always answering '")
    assert "learning rate" in summary["quality"]["try"][0]


def test_a_private_run_that_clients_measure_tells_no_baseline_but_why(tmp_path: Path) -> None:
    private = PRIVATE | {"evaluation_noise_multiplier": 4.0}
    measured = small(privacy=private, client={"held_out": 0.2}, experiment={"evaluation": "federated"})

    summary = run(measured, tmp_path / "run")

    assert summary["quality"] is summary["baseline_accuracy"] is summary["verdict"] is None
    assert "more noise" in summary["quality_reason"]


def test_a_run_that_measures_nothing_says_so(tmp_path: Path) -> None:
    summary = run(small(privacy=PRIVATE, experiment={"evaluation": "none"}), tmp_path / "run")

    assert summary["quality"] is None
    assert summary["quality_reason"] == "nothing was measured"


def test_a_private_run_on_test_records_of_nobody_is_judged(tmp_path: Path) -> None:
    summary = run(small(privacy=PRIVATE), tmp_path / "run")  # digits come with test records

    assert summary["quality"]["records"] == 359


def test_the_baseline_leaves_no_private_run_whose_test_records_are_the_clients() -> None:
    parts = gather(small(privacy=PRIVATE, engine={"workers": 1}))
    owned = replace(parts, dataset=replace(parts.dataset, test_from=Owned()))

    with (
        start_engine(parts) as (_, evaluator),
        pytest.raises(PrivacyError, match="the test records are the clients' own"),
    ):
        model_quality(owned, evaluator, {"params": parts.start})


def test_a_coin_is_not_printed_as_a_result() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 4)).astype(np.float32), (rng.random(600) < 0.14).astype(int)

    result = sv.simulate((x, y), "logistic", clients=10, rounds=2, client_lr=1e-6)

    assert "no better than always answering '0'" in repr(result)
