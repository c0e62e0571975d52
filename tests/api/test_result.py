"""What a result shows of a run, and what it keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from tests.api.small import WORDS, blobs, simulate

X, Y = blobs()


@pytest.fixture(scope="module")
def result() -> sv.Result:
    return simulate((X, WORDS[Y]), rounds=4, evaluate_every=1)


def test_a_result_is_read_from_its_folder(result: sv.Result, tmp_path: Path) -> None:
    saved = sv.result(result.save(tmp_path / "kept"))

    assert saved.summary == result.summary
    assert saved.rounds == result.rounds and len(saved.rounds) == 4
    assert saved.classes == result.classes
    assert saved.predict(X).tolist() == result.predict(X).tolist()
    assert all(np.array_equal(saved.model[name], tensor) for name, tensor in result.model.items())
    assert result["accuracy_final"] == result.summary["accuracy_final"]


def test_a_temporary_folder_goes_with_its_result() -> None:
    short = simulate((X, Y), rounds=1)
    folder = short.folder
    assert folder.exists() and "temporary" in repr(short)

    del short

    assert not folder.exists()


def test_a_named_folder_stays(tmp_path: Path) -> None:
    kept = simulate((X, Y), rounds=1, out=tmp_path / "run")

    assert kept.folder == tmp_path / "run" and "temporary" not in repr(kept)
    with pytest.raises(sv.InputError, match="already holds a run"):
        simulate((X, Y), rounds=1, out=tmp_path / "run")
    assert simulate((X, Y), rounds=1, out=tmp_path / "run", resume=True).summary == kept.summary


def test_save_overwrites_nothing(result: sv.Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")

    with pytest.raises(sv.InputError, match="exists already"):
        result.save(tmp_path)
    with pytest.raises(sv.InputError, match="exists already"):
        result.save(tmp_path / "file")


def test_a_result_shows_itself_in_a_terminal_and_in_a_notebook(result: sv.Result) -> None:
    shown = repr(result)
    page = result._repr_html_()

    assert "fl-std, 4 rounds, 6 clients" in shown
    assert f"{result['accuracy_final']:.4f}" in shown and "not private" in shown and "up" in shown
    assert page.startswith("<table>") and "<svg" in page and "http" not in page


def test_plot_draws_the_accuracy_of_every_round(result: sv.Result) -> None:
    figure = result.plot()

    assert list(figure.data[0].x) == [1, 2, 3, 4]
    assert list(figure.data[0].y) == [record["accuracy"] for record in result.rounds]


def test_records_of_another_shape_are_refused(result: sv.Result) -> None:
    with pytest.raises(sv.InputError, match=r"reads float32 records of shape \(4,\)"):
        result.predict(X[:, :2])
    with pytest.raises(sv.InputError, match="was not trained on one"):
        result.predict({"a": [1.0]})


def test_a_frame_comes_back_as_it_went_in_and_predicts_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": X[:, 0], "dose": X[:, 1], "sick": Y == 0})

    result = simulate(frame, label="sick", rounds=8)

    assert result.classes == (False, True)
    assert result.predict(frame.drop(columns="sick")).dtype == np.bool_
    assert (result.predict(frame) == frame["sick"]).mean() > 0.9
    assert list(result.frame().columns)[:1] == ["cohort"] and len(result.frame()) == 8
    assert "a fifth" in result["test_data"]
    with pytest.raises(sv.DataError, match="has no column 'sik'; did you mean 'sick'"):
        simulate(frame, label="sik")
    with pytest.raises(sv.PrivacyError, match="fitted on the clients' records"):
        simulate(frame, label="sick", privacy=sv.Privacy(epsilon=8, delta=1e-3))


def test_a_dict_of_columns_is_a_table_too() -> None:
    table = {"age": X[:, 0], "dose": X[:, 1], "sick": WORDS[Y]}

    result = simulate(table, label="sick", rounds=4)

    assert set(result.predict(table)) <= set(WORDS)


def test_a_run_that_is_not_finished_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match="there is no run folder"):
        sv.result(tmp_path / "none")
    kept = simulate((X, Y), rounds=1, out=tmp_path / "run")
    (kept.folder / "summary.json").unlink()
    with pytest.raises(sv.InputError, match="is not finished"):
        sv.result(tmp_path / "run")


def test_run_takes_a_path_and_returns_a_result(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(
        '[experiment]\nname = "tiny"\nrounds = 1\n[data]\nclients = 5\n'
        '[model]\nname = "logistic"\n[engine]\nworkers = 1\n',
        encoding="utf-8",
    )
    seen: list[Any] = []

    result = sv.run(tmp_path / "small.toml", tmp_path / "run", callbacks=[seen.append])

    assert sv.load(str(tmp_path / "small.toml"), ["experiment.rounds=2"]).experiment.rounds == 2
    assert result["name"] == "tiny" and len(seen) == 1
    assert sv.run(str(tmp_path / "small.toml"), tmp_path / "run", resume=True).summary == result.summary


def test_importing_sottovoce_loads_nothing_heavy() -> None:
    code = (
        "import sys, sottovoce; dir(sottovoce); "
        "print([name for name in ('torch', 'pandas', 'numpy', 'pydantic', 'scipy') if name in sys.modules])"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert told.strip() == "[]"


def test_dir_lists_the_public_names() -> None:
    assert [name for name in dir(sv) if not name.startswith("_")] == sv.__all__
