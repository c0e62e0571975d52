from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError, RunError
from sottovoce.runs.folder import RunFolder, read_operator, read_rounds, read_summary
from sottovoce.runs.loop import run
from tests.runs.small import small

CONTRACT = set(
    """scheme private rounds accuracy_final accuracy_best best_round epsilon epsilon_server delta noise_multiplier
    bytes_up_per_client_round bytes_down_per_client_round bytes_up_total bytes_down_total paper_cost_up_bytes
    paper_cost_down_bytes joules_per_client seconds bits_per_coordinate""".split()  # noqa: SIM905
)


def story(path: Path) -> list[dict[str, Any]]:
    """Return the rounds without the one thing that a clock decides."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in read_rounds(path)]


def operator(path: Path) -> list[dict[str, Any]]:
    """Return what the operator was told, without the one thing that a clock decides."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in read_operator(path)]


def model(path: Path) -> dict[str, Any]:
    with np.load(path / "model.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def same_model(one: Path, other: Path) -> bool:
    first, second = model(one), model(other)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def test_a_run_leaves_the_folder_that_was_promised(tmp_path: Path) -> None:
    summary = run(small(), tmp_path / "run")

    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} >= {
        "config.toml",
        "environment.json",
        "rounds.jsonl",
        "checkpoint",
        "summary.json",
        "model.npz",
        "model-best.npz",
    }
    assert not (folder / "operator.jsonl").exists(), "a run that is not private has no secrets of its operator's"
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert set(summary) >= CONTRACT
    rounds = read_rounds(folder)
    assert [record["round"] for record in rounds] == [1, 2, 3, 4, 5, 6]
    assert all({"cohort", "bytes_up", "bytes_down", "epsilon", "seconds"} <= set(record) for record in rounds)
    assert [record["round"] for record in rounds if "accuracy" in record] == [2, 4, 6]
    assert summary["bytes_up_total"] == sum(record["bytes_up"] for record in rounds)
    assert summary["epsilon"] is None
    assert not list(tmp_path.glob(".run*")), "no draft stays behind"


def test_training_learns(tmp_path: Path) -> None:
    summary = run(small(experiment={"rounds": 30, "evaluate_every": 10}, client={"client_lr": 0.5}), tmp_path / "run")

    assert summary["accuracy_final"] > 0.8


def test_the_same_seed_gives_the_same_model_with_one_worker_or_two(tmp_path: Path) -> None:
    run(small(engine={"workers": 1}), tmp_path / "one")
    run(small(engine={"workers": 2}), tmp_path / "two")
    run(small(experiment={"seed": 2}), tmp_path / "other")

    assert same_model(tmp_path / "one", tmp_path / "two")
    assert story(tmp_path / "one") == story(tmp_path / "two")
    assert not same_model(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize("scheme", ["fl-std", "fl-cs", "sign-sgd"])
def test_a_run_that_is_interrupted_and_resumed_ends_like_an_undisturbed_one(tmp_path: Path, scheme: str) -> None:
    rate = {"sample_rate": 1} if scheme == "sign-sgd" else {}
    experiment = small(scheme={"name": scheme}, cohort=rate)
    run(experiment, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 5:
            raise StopError

    with pytest.raises(StopError):
        run(experiment, tmp_path / "cut", observe=stop)
    assert read_summary(tmp_path / "cut") is None
    run(experiment, tmp_path / "cut", resume=True)

    assert same_model(tmp_path / "whole", tmp_path / "cut")
    assert story(tmp_path / "whole") == story(tmp_path / "cut")


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.runs.small import small
from sottovoce.runs.loop import run
often = {"rounds": 40, "checkpoint_every": 3, "evaluate_every": 1}
run(small(experiment=often, **json.loads(sys.argv[2])), sys.argv[3], resume=True)
"""
NOISY = {"privacy": {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}}


@pytest.mark.parametrize("tables", [{}, NOISY], ids=["plain", "private"])
def test_a_run_killed_at_any_moment_and_resumed_ends_like_an_undisturbed_one(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    """Kill -9 at many moments, from before the folder exists to the end; the last attempt is left alone."""
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[2]), json.dumps(tables)]
    began = time.perf_counter()
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    whole = time.perf_counter() - began

    kills = 0
    for moment in np.linspace(0.3, 1.0, 8) * whole:
        process = subprocess.Popen([*command, str(tmp_path / "cut")])
        try:
            process.wait(timeout=float(moment))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
    subprocess.run([*command, str(tmp_path / "cut")], check=True)

    assert kills > 0
    assert same_model(tmp_path / "whole", tmp_path / "cut")
    assert story(tmp_path / "whole") == story(tmp_path / "cut")
    assert operator(tmp_path / "whole") == operator(tmp_path / "cut")
    assert len(operator(tmp_path / "cut")) == (40 if tables else 0)
    best = [(tmp_path / name / "model-best.npz").read_bytes() for name in ("whole", "cut")]
    assert best[0] == best[1]
    assert read_summary(tmp_path / "cut") is not None


def test_a_torn_last_line_is_played_again(tmp_path: Path) -> None:
    run(small(), tmp_path / "whole")
    run(small(), tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    text = (tmp_path / "cut" / "rounds.jsonl").read_text()
    (tmp_path / "cut" / "rounds.jsonl").write_text(text + '{"round": 7, "coh')

    run(small(), tmp_path / "cut", resume=True)

    assert story(tmp_path / "whole") == story(tmp_path / "cut")


def test_resuming_a_finished_run_returns_its_summary(tmp_path: Path) -> None:
    summary = run(small(), tmp_path / "run")

    assert run(small(), tmp_path / "run", resume=True) == summary


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    run(small(experiment={"rounds": 1}), tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()

    with pytest.raises(InputError, match="already holds a run; add --resume"):
        run(small(experiment={"rounds": 1}), tmp_path / "run")

    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


def test_resuming_with_another_experiment_names_the_difference(tmp_path: Path) -> None:
    run(small(experiment={"rounds": 1}), tmp_path / "run")

    with pytest.raises(InputError, match=r"started with \[client\] client_lr = 0.1, not 0.2"):
        run(small(experiment={"rounds": 1}, client={"client_lr": 0.2}), tmp_path / "run", resume=True)


def test_the_number_of_workers_may_change_on_resume(tmp_path: Path) -> None:
    summary = run(small(experiment={"rounds": 1}, engine={"workers": 1}), tmp_path / "run")

    assert run(small(experiment={"rounds": 1}, engine={"workers": 2}), tmp_path / "run", resume=True) == summary


def test_two_processes_cannot_write_one_folder(tmp_path: Path) -> None:
    experiment = small(experiment={"rounds": 1})
    held = RunFolder.create(tmp_path / "run", experiment, {})

    with held, pytest.raises(InputError, match="being written by another process"):
        RunFolder.reopen(tmp_path / "run", experiment)

    RunFolder.reopen(tmp_path / "run", experiment).__exit__()


@pytest.mark.parametrize(
    "tables",
    [
        {"data": {"source": "nowhere"}},
        {"data": {"clients": 10**6}},
        {"model": {"name": "imdb-lstm"}},
        {"scheme": {"name": "fl-top", "ratio": 1e-9}},
        {"scheme": {"name": "fl-cs", "chunks": 10**6}},
        {"model": {"name": "mlp"}, "client": {"trainer": "fast", "optimizer": "adam"}},
    ],
    ids=lambda tables: json.dumps(tables),
)
def test_bad_input_leaves_no_folder(tmp_path: Path, tables: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        run(small(**tables), tmp_path / "run")

    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InputError, match="not empty and holds no run"):
        run(small(), tmp_path)
    with pytest.raises(InputError, match="is a file"):
        run(small(), tmp_path / "notes.txt")


def test_divergence_fails_the_run_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lower client_lr"):
        run(small(client={"client_lr": 1e30, "local_steps": 5}), tmp_path / "run")


def test_early_stopping_looks_at_held_out_data_only(tmp_path: Path) -> None:
    summary = run(
        small(
            experiment={"rounds": 60, "evaluate_every": 1, "patience": 2},
            data={"held_out": 0.1},
            client={"client_lr": 1.5},
        ),
        tmp_path / "run",
    )

    rounds = read_rounds(tmp_path / "run")
    seen = [record["held_out_accuracy"] for record in rounds]
    assert summary["stopped_early"]
    assert len(rounds) < 60
    assert max(seen[-2:]) <= max(seen[:-2])
