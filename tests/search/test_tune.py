"""Whole searches: what is run, what is chosen, and what is never opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import load as load_file
from sottovoce.config.experiment import parse
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import load
from sottovoce.runs.folder import read_summary
from sottovoce.runs.loop import run
from sottovoce.search.cells import Step
from sottovoce.search.tune import Tuned, chosen_file, tune

RATES = {"client": {"client_lr": [0.001, 0.3]}}


def tables(**more: dict[str, Any]) -> dict[str, Any]:
    """Return a file on 8 x 8 images of one's own; that they are not there is nobody's concern."""
    base: dict[str, dict[str, Any]] = {
        "experiment": {"name": "mine", "rounds": 2},
        "data": {"source": "mine.npz", "clients": 20, "records_per_client": 20},
        "model": {"name": "logistic"},
        "cohort": {"sample_rate": "1/2"},
        "tune": RATES,
        "engine": {"workers": 1},
    }
    for name, table in more.items():
        base[name] = table if name == "tune" else {**base.get(name, {}), **table}
    return base


def vars_of(name: str) -> dict[str, Any]:
    return {part: getattr(load(name), part) for part in ("x_train", "y_train", "x_test", "y_test")}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own, with a private file that cannot be read without being noticed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npz").write_bytes(b"no npz: reading it is a DataError")
    return tmp_path


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuned, list[Step]]:
    """Return one search that several tests look at."""
    folder, steps = tmp_path_factory.mktemp("searched") / "runs", list[Step]()
    tuned = tune(tables(), "digits", folder, budget=4, seeds=2, observe=steps.append)
    return folder, tuned, steps


def test_the_better_rate_is_chosen_and_the_file_says_where(searched: tuple[Path, Tuned, list[Step]]) -> None:
    _, tuned, _ = searched

    assert tuned.document["chosen"] == {"client.client_lr": 0.3}
    assert tuned.tables["client"] == {"client_lr": 0.3}
    assert tuned.tables["experiment"] == {"name": "mine-tuned", "rounds": 2, "chosen_on": "digits"}
    assert tuned.tables["data"] == tables()["data"]
    assert not {"tune", "sweep"} & set(tuned.tables)


def test_every_setting_that_was_tried_is_told_with_its_scores(searched: tuple[Path, Tuned, list[Step]]) -> None:
    folder, tuned, _ = searched

    document = json.loads((folder / "tune.json").read_text())
    assert document == json.loads(json.dumps(tuned.document))
    assert [trial["settings"]["client.client_lr"] for trial in document["tried"]] == [0.001, 0.3]
    assert [len(trial["scores"]) for trial in document["tried"]] == [2, 2]
    assert (document["runs"], document["settings_tried"], document["seeds"]) == (4, 2, [10001, 10002])
    assert document["score"] == pytest.approx(sum(document["scores"]) / 2)
    lines = (folder / "tune.csv").read_text().splitlines()
    assert lines[0] == "client.client_lr,score,seed 10001,seed 10002,reason"
    assert len(lines) == 3


def test_a_score_is_the_final_accuracy_on_held_out_public_train_records(
    searched: tuple[Path, Tuned, list[Step]],
) -> None:
    folder, tuned, _ = searched

    summaries = [read_summary(path) for path in sorted(folder.glob("client_lr-0.3-*"))]
    assert [summary and summary["accuracy_final"] for summary in summaries] == tuned.document["scores"]
    for summary in summaries:
        assert summary is not None
        assert summary["test_data"].startswith("239 train records of digits that no client holds")
        assert (summary["clients"], summary["expected_cohort"]) == (20, 10)


def test_progress_tells_each_round_and_the_best_so_far(searched: tuple[Path, Tuned, list[Step]]) -> None:
    _, tuned, steps = searched

    ends = [step for step in steps if step.score is not None]
    assert [step.run for step in ends] == [1, 2, 3, 4]
    assert [step.record["round"] for step in steps if step.record is not None] == [1, 2] * 4
    assert ends[0].best == {"client.client_lr": 0.001} and ends[1].best == {"client.client_lr": 0.3}
    assert ends[-1].best_score == pytest.approx(tuned.document["score"])


def test_only_the_score_of_a_cell_is_kept(searched: tuple[Path, Tuned, list[Step]]) -> None:
    folder, _, _ = searched

    assert len(list(folder.glob("*/summary.json"))) == 4
    assert not list(folder.glob("*/*.npz")) and not list(folder.glob("*/checkpoint"))


def test_the_chosen_file_runs_and_its_summary_says_on_what_it_was_chosen(
    searched: tuple[Path, Tuned, list[Step]], tmp_path: Path
) -> None:
    _, tuned, _ = searched
    text = chosen_file(tuned, "sottovoce tune mine.toml --on digits")
    (tmp_path / "chosen.toml").write_text(text)

    told = load_file(tmp_path / "chosen.toml", ["data.source=digits"])

    assert run(told, tmp_path / "run")["chosen_on"] == "digits"
    assert run(parse({**told.tables(), "experiment": {"rounds": 1}}), tmp_path / "other")["chosen_on"] is None
    comment = [line for line in text.splitlines() if line.startswith("#")]
    assert comment[0] == "# Chosen by: sottovoce tune mine.toml --on digits"
    assert "no record of mine.npz was read" in comment[1]
    assert "2 settings in 4 runs" in comment[2]


def test_a_search_goes_on_where_it_was_left_and_ends_the_same(own: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(step: Step) -> None:
        if step.run == 2:
            raise StoppedError

    keys: dict[str, Any] = {"budget": 2, "seeds": 1}
    whole = tune(tables(), "digits", own / "whole", **keys)
    with pytest.raises(StoppedError):
        tune(tables(), "digits", own / "cut", **keys, observe=stop)
    steps: list[Step] = []
    tuned = tune(tables(), "digits", own / "cut", **keys, observe=steps.append)

    assert [step.run for step in steps if step.record is not None][:1] == [2], "the first cell was read, not run"
    assert tuned == whole
    for name in ("tune.json", "tune.csv"):
        assert (own / "cut" / name).read_bytes() == (own / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("more", "keys", "reason"),
    [
        ({"client": {"local_steps": 9}}, {}, "another experiment"),
        ({}, {"first_seed": 7}, "other public records"),
        ({}, {"records": 300}, "other public records"),
    ],
)
def test_a_folder_of_another_search_is_refused(
    searched: tuple[Path, Tuned, list[Step]], more: Any, keys: dict[str, Any], reason: str
) -> None:
    folder, _, _ = searched

    with pytest.raises(InputError, match=f"holds cells of {reason}; choose another with --runs"):
        tune(tables(**more), "digits", folder, budget=4, seeds=2, **keys)


def test_a_longer_list_reads_the_cells_that_are_there(searched: tuple[Path, Tuned, list[Step]]) -> None:
    folder, _, _ = searched
    before = {path.name for path in folder.iterdir()}

    tune(tables(tune={"client": {"client_lr": [0.3]}}), "digits", folder, budget=4, seeds=2)

    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("entry", ["mine.txt", "config.toml"])
def test_a_folder_that_holds_something_else_is_left_alone(own: Path, entry: str) -> None:
    (own / "runs").mkdir()
    (own / "runs" / entry).touch()

    with pytest.raises(InputError, match="is not empty and holds no search"):
        tune(tables(), "digits", own / "runs", budget=2, seeds=1)


def test_the_files_seed_is_not_among_those_of_the_search(own: Path) -> None:
    told = tables(experiment={"seed": 10_001}, tune={"client": {"client_lr": [0.3]}})

    assert tune(told, "digits", own / "runs", budget=1, seeds=1).document["seeds"] == [10_002]


def test_a_wrong_value_is_refused_before_anything_is_run(own: Path) -> None:
    with pytest.raises(InputError, match=r"\[client\] client_lr must be above 0, got -1"):
        tune(tables(tune={"client": {"client_lr": [0.1, -1.0]}}), "digits", own / "runs")

    assert not (own / "runs").exists()


def test_values_that_do_not_fit_together_are_left_out_and_cost_nothing(own: Path) -> None:
    """`momentum` is for sgd alone."""
    told = tables(tune={"server": {"optimizer": ["sgd", "adam"], "momentum": [0.0, 0.5]}})

    tuned = tune(told, "digits", own / "runs", budget=4, seeds=1)

    (other,) = [trial for trial in tuned.document["tried"] if trial["score"] is None]
    assert other["settings"] == {"server.optimizer": "adam", "server.momentum": 0.5}
    assert "does nothing with momentum" in other["reason"]
    assert (tuned.document["runs"], tuned.document["settings_tried"]) == (3, 3)


def test_a_private_file_is_tuned_at_its_own_epsilon_and_noise(own: Path) -> None:
    private = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp"}
    told = tables(data={"classes": 10}, privacy=private, tune={"privacy": {"clip_norm": [0.5]}})

    tune(told, "digits", own / "runs", budget=1, seeds=1)

    (cell,) = [read_summary(path) for path in (own / "runs").glob("*-seed-*")]
    x, y = load("digits").x_train[:400], load("digits").y_train[:400]
    test = load("digits").x_test[:50], load("digits").y_test[:50]
    np.savez(own / "mine.npz", x_train=x, y_train=y, x_test=test[0], y_test=test[1])
    real = run(parse({**told, "privacy": {**private, "clip_norm": 0.5}, "tune": {}}), own / "real")
    assert cell is not None
    for key in ("epsilon", "epsilon_server", "noise_multiplier", "clients", "expected_cohort", "message_length"):
        assert cell[key] == real[key], key


def test_coordinates_from_the_public_data_come_from_records_that_are_set_aside(own: Path) -> None:
    """A private run refuses coordinates that were chosen on the clients' records; here digits plays both parts."""
    scheme = {"name": "fl-top", "ratio": 0.1, "public": "digits", "public_samples": 100}
    private = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}
    told = tables(scheme=scheme, privacy=private, tune={"client": {"client_lr": [0.3]}})

    tuned = tune(told, "digits", own / "runs", budget=1, seeds=1)

    (cell,) = [read_summary(path) for path in (own / "runs").glob("*-seed-*")]
    assert cell is not None and cell["public_records"] == 100
    assert cell["privacy"].get("unsafe") in (None, [], False)
    assert any(
        "[scheme] public is 'digits' too: 100 of its records are set aside" in n for n in tuned.document["notes"]
    )


def test_a_public_slice_of_the_clients_records_is_one_of_the_public_records_here(own: Path) -> None:
    scheme = {"name": "fl-top", "ratio": 0.1, "public": "mine.npz"}

    tune(tables(scheme=scheme, tune={"client": {"client_lr": [0.3]}}), "digits", own / "runs", budget=1, seeds=1)

    (cell,) = [read_summary(path) for path in (own / "runs").glob("*-seed-*")]
    assert cell is not None and str(cell["public"]).startswith("10 records set aside from digits")


def test_whatever_would_read_the_clients_data_during_a_search_is_refused(own: Path) -> None:
    """The observer stands for any part of a run that loads a data set by name."""
    np.savez(own / "mine.npz", **vars_of("digits"))
    seen: list[int] = []

    def curious(step: Step) -> None:
        if step.record is not None:
            seen.append(load("./mine.npz").records)

    with pytest.raises(PrivacyError, match=r"'\./mine\.npz' is the clients' own data, which stays closed"):
        tune(tables(), "digits", own / "runs", budget=2, seeds=1, observe=curious)

    assert seen == []
    assert load("./mine.npz").records == 1438, "open again afterwards"


def test_real_secure_sums_are_tuned_as_ideal_ones(own: Path) -> None:
    told = tables(aggregation={"secure": "real"}, tune={"client": {"client_lr": [0.3]}})

    tuned = tune(told, "digits", own / "runs", budget=1, seeds=1)

    (cell,) = [read_summary(path) for path in (own / "runs").glob("*-seed-*")]
    assert cell is not None and cell["secure"] == "ideal"
    assert tuned.tables["aggregation"] == {"secure": "real"}
    assert any('secure = "ideal"' in note for note in tuned.document["notes"])


def test_a_best_value_at_the_end_of_its_list_is_pointed_out(searched: tuple[Path, Tuned, list[Step]]) -> None:
    _, tuned, _ = searched

    assert any("client.client_lr = 0.3 is the largest value that was tried" in n for n in tuned.document["notes"])


def test_if_no_setting_can_be_run_the_first_reason_is_the_error(own: Path) -> None:
    scheme = {"name": "fl-top", "ratio": 0.1}  # a private run needs public data for it
    private = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}

    with pytest.raises(PrivacyError, match="needs public data"):
        tune(tables(scheme=scheme, privacy=private), "digits", own / "runs", budget=2, seeds=1)


def test_the_clients_own_file_is_refused_and_nothing_is_written(own: Path) -> None:
    with pytest.raises(PrivacyError, match="tuning on the clients' data is not covered by epsilon"):
        tune(tables(), "./mine.npz", own / "runs")

    assert not (own / "runs").exists()
