from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import ConfigError, InputError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.runs.folder import take_lock
from sottovoce.studies.mechanisms import read_settings, run_study, study_cells
from sottovoce.studies.mechanisms.play import make_player, play
from sottovoce.studies.mechanisms.records import load_records
from sottovoce.studies.mechanisms.settings import Cell, Settings
from sottovoce.studies.mechanisms.sgd import LinearClassifier


def tiny(**keys: Any) -> Settings:
    own: dict[str, Any] = {
        "data": "digits",
        "clients": [3],
        "samples": [30],
        "iterations": 3,
        "mechanisms": ["none", "laplace"],
        "epsilons": [1.0],
        "mode": "printed",
    }
    return Settings(**(own | keys))


def test_records_of_clients_grow_or_are_fresh() -> None:
    settings = tiny()
    records = load_records(settings)

    grown, _ = records.of(1, 2, 30, cumulative=True)
    fresh, _ = records.of(1, 2, 30, cumulative=False)

    assert np.array_equal(grown, records.x_train[90:150])
    assert np.array_equal(fresh, records.x_train[120:150])


def test_clients_share_records_only_where_the_data_set_is_too_small_and_this_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = tiny(samples=[200])
    records = load_records(settings)
    kept = len(records.y_train)

    last, _ = records.of(2, 3, 200, cumulative=True)

    assert records.holders(3, 30) == 1
    assert records.holders(3, 200) == math.ceil(1800 / kept) == 2
    assert np.array_equal(last[-1], records.x_train[1799 - kept])
    assert "up to 2 clients have the same record" in caplog.text


def test_printed_records_are_scaled_over_all_and_right_ones_one_by_one() -> None:
    printed, right = load_records(tiny(test_records=100)), load_records(tiny(mode="right"))

    assert printed.x_train.min() == 0
    assert printed.x_train.max() == 1
    assert len(printed.y_test) == 100
    assert len(printed.y_train) + 100 == 1797  # the other test records are trained on, as the thesis' code does
    lengths = np.linalg.norm(right.x_train, axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert np.allclose(lengths, 1)
    assert np.allclose(right.x_train[:, -1], 1 / math.sqrt(2))
    centred = load_records(tiny(mode="right", centre=0.5)).x_train
    assert np.allclose(np.linalg.norm(centred, axis=1), 1)
    assert centred.min() < 0 <= right.x_train.min()


def test_a_right_record_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.studies.mechanisms import records as module

    whole = load_records(tiny(mode="right")).x_train[5]
    dataset = module.load("digits")
    other = dataset.x_train.copy()
    other[0] = 255
    monkeypatch.setattr(module, "load", lambda name: type(dataset)(**(vars(dataset) | {"x_train": other})))

    assert np.array_equal(load_records(tiny(mode="right")).x_train[5], whole)


@pytest.mark.parametrize("mode", ["printed", "right"])
def test_the_federated_model_is_the_mean_of_what_clients_send(mode: str) -> None:
    """Replay an iteration with the same streams, slowly."""
    settings = tiny(mode=mode)
    records = load_records(settings)
    player = make_player(settings, records)
    cell = Cell("laplace", (1.0, 1.0, 1.0), 3, 30)

    first = next(play(settings, records, cell, player))
    sent = []
    for client in range(3):
        model = player.fit(cell, client, 1, None)
        noise = player.noise(cell, client, 1, model)
        assert noise is not None
        drawn = noise.sample(Seeds(1).client(client).get(Purpose.NOISE, 1)).reshape(model.weights.shape)
        sent.append(LinearClassifier(model.weights + drawn, model.intercepts))
        assert first.local[client] == model.accuracy(records.x_test, records.y_test)
    mean = LinearClassifier(sum(s.weights for s in sent) / 3, sum(s.intercepts for s in sent) / 3)

    assert set(first.federated) == {mean.accuracy(records.x_test, records.y_test)}


def test_a_client_that_subtracts_its_noise_has_the_mean_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tiny(mode="right", subtract_own_noise=True, iterations=1)
    records = load_records(settings)
    cell = Cell("laplace", (1e9, 1e9, 1e-3), 3, 30)  # nearly all noise is the last client's

    found = next(play(settings, records, cell, make_player(settings, records)))
    clean = next(play(settings, records, Cell("none", (), 3, 30), make_player(settings, records)))

    assert found.federated[2] == clean.federated[2]
    assert found.federated[0] < clean.federated[0] - 0.2
    assert found.local == clean.local


def test_noise_follows_each_clients_own_epsilon() -> None:
    settings = tiny(mode="right")
    records = load_records(settings)
    player = make_player(settings, records)
    model = LinearClassifier(np.zeros((10, 65)), np.zeros(10))

    def spread(mechanism: Any, client: int) -> float:
        noise = player.noise(Cell(mechanism, (0.1, 1.0, 10.0), 3, 30), client, 2, model)
        assert noise is not None
        return noise.stddev

    assert spread("laplace", 0) == pytest.approx(10 * spread("laplace", 1))
    assert spread("gamma-shares", 0) == spread("gamma-shares", 2)  # one scale, or the sum is no Laplace noise


def test_right_noise_is_made_for_all_iterations_and_the_records_of_this_one() -> None:
    for cumulative, releases, count in ((True, 3, 60), (False, 1, 30)):
        settings = tiny(mode="right", cumulative=cumulative, regulariser=0.5, tolerance=1e-6)
        player = make_player(settings, load_records(settings))
        noise = player.noise(
            Cell("laplace", (0.5,) * 3, 3, 30), 0, 2, LinearClassifier(np.zeros((10, 65)), np.zeros(10))
        )

        l1 = math.sqrt(650) * (2 * math.sqrt(2) / count + 2e-6) / 0.5
        assert noise is not None
        assert noise.stddev == pytest.approx(math.sqrt(2) * l1 * releases / 0.5)


def test_right_noise_covers_the_intercepts_and_the_authors_does_not() -> None:
    for mode, size in (("right", 650), ("printed", 640)):
        settings = tiny(mode=mode)
        player = make_player(settings, load_records(settings))
        cell = Cell("laplace", (1.0,) * 3, 3, 30)
        model = player.fit(cell, 0, 1, None)
        noise = player.noise(cell, 0, 1, model)

        assert noise is not None
        assert noise.sample(np.random.default_rng(1)).size == size
        assert (mode == "right") != bool(model.intercepts.any())


def test_the_base_case_has_fresh_data_and_no_warm_start() -> None:
    base, fresh = tiny(mechanisms=["base"]), tiny(mechanisms=["none"], cumulative=False, warm_start=False)
    warm = tiny(mechanisms=["none"])

    def curve(settings: Settings) -> list[float]:
        return [step["federated"] for step in study_cells(settings)[0]["iterations"]]

    assert curve(base) == curve(fresh) != curve(warm)


def test_the_warm_start_changes_sgd_and_not_the_minimiser() -> None:
    def last(mode: str, warm: bool) -> Any:
        return study_cells(tiny(mode=mode, warm_start=warm, mechanisms=["none"]))[0]["iterations"][-1]

    assert last("printed", True) != last("printed", False)
    assert last("right", True) == last("right", False)


def test_a_study_keeps_its_cells_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings, out = tiny(), tmp_path / "study"
    whole = run_study(settings, out)
    lines = (out / "cells.jsonl").read_text().splitlines(keepends=True)
    (out / "summary.json").unlink()
    (out / "cells.jsonl").write_text(lines[0] + lines[1][:20])  # as if the machine had died

    again = run_study(settings, out, resume=True)

    for facts in (*whole, *again):
        facts.pop("seconds")
    assert again == whole
    assert len(json.loads((out / "summary.json").read_text())["cells"]) == 2
    assert whole[1]["epsilon_proven"] is None  # mode "printed" proves nothing
    older = "".join(line for line in (out / "config.toml").open() if not line.startswith("centre"))
    (out / "config.toml").write_text(older)  # as a version without this key wrote it
    assert len(run_study(settings, out, resume=True)) == 2
    with pytest.raises(InputError, match="already holds a study; add --resume"):
        run_study(settings, out)
    with pytest.raises(InputError, match="was started with other settings"):
        run_study(tiny(seed=2), out, resume=True)


def test_a_record_that_two_clients_have_costs_twice() -> None:
    for samples, holders in ((30, 1), (200, 2)):
        settings = tiny(mode="right", samples=[samples], mechanisms=["gaussian"], iterations=3)
        (facts,) = study_cells(settings)

        assert facts["holders"] == holders
        assert facts["epsilon_proven"] == holders * 1.0
        assert facts["delta"] == holders * 1e-4


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InputError, match="is not empty and holds no study"):
        run_study(tiny(), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("study.mode=wrong", r"mode must be \"printed\" or \"right\", got \"wrong\""),
        ("study.epsilons=[0.0]", r"\[study\] epsilons"),
        ("study.clients=[0]", r"\[study\] clients"),
        ("study.regularizer=0.1", "did you mean 'regulariser'"),
        ("study.epsilons=[[0.1, 1.0]]", r"a list of 2 epsilons needs clients = \[2\]"),
        ("studies.mode=right", r"there is no table \[studies\]"),
    ],
)
def test_bad_settings_are_refused_by_name(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(None, [change])


def test_radial_noise_is_not_of_the_thesis() -> None:
    with pytest.raises(ConfigError, match='"radial" is not of the thesis'):
        read_settings(None, ["study.mode=printed", 'study.mechanisms=["radial"]'])


def test_too_many_records_or_test_records_are_refused() -> None:
    with pytest.raises(InputError, match="one client would have 1500 records of 1438"):
        load_records(tiny(mode="right", samples=[500]))
    with pytest.raises(InputError, match="test_records must be at most 359"):
        load_records(tiny(test_records=400))


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    settings = Settings(data="digits", mechanisms=["none"], clients=[2], samples=[10], iterations=1)
    run_study(settings, tmp_path / "out")

    with take_lock(tmp_path / "out", tmp_path / "out"), pytest.raises(InputError, match="written by another process"):
        run_study(settings, tmp_path / "out", resume=True)
