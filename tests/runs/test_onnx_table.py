"""The graph of a table reads its columns as `predict` does: rows of a real CSV go in, the same answers come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.errors import InputError
from sottovoce.data import read_tables
from sottovoce.runs.saved_model import read_model

SCHEMA = """
missing_values = ["", "?", "-999"]
[columns.age]
kind = "number"
minimum = 0
maximum = 100
missing = "category"
[columns.dose]
kind = "number"
scale = "octaves"
[columns.ward]
kind = "category"
categories = ["surgery", "eye", "heart"]
missing = "category"
[columns.sex]
kind = "category"
categories = ["f", "m"]
[columns.weight]
kind = "number"
mean = 70
stddev = 15
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home, rng = tmp_path_factory.mktemp("table"), np.random.default_rng(3)
    rows = ["age,dose,ward,sex,weight,pressure,died"]
    for row in range(240):
        age = "" if row % 11 == 0 else "-999" if row % 17 == 0 else f"{rng.uniform(-5, 120):.3f}"
        dose = "?" if row % 13 == 0 else f"{rng.choice([-1, 1]) * 10 ** rng.uniform(-4, 8):.6g}"
        ward = rng.choice(["surgery", "eye", "heart", "never heard of", "", "?"])
        weight = "?" if row % 19 == 0 else f"{rng.normal(70, 15):.1f}"
        rows.append(
            f"{age},{dose},{ward},{'fm'[row % 2]},{weight},{rng.normal(120, 15):.2f},{['no', 'yes'][row % 3 == 0]}"
        )
    (home / "patients.csv").write_text("\n".join(rows) + "\n")
    (home / "schema.toml").write_text(SCHEMA)
    return home


def _run(folder: Path, out: Path, schema: str = SCHEMA, **keys: Any) -> sv.Result:
    (out / "schema.toml").write_text(schema)
    label = "pressure" if keys.get("task") == "regression" else "died"
    ignored = f'\n[columns.{"died" if label == "pressure" else "pressure"}]\nkind = "ignore"\n'
    (out / "schema.toml").write_text(schema + ignored)
    return sv.simulate(
        str(folder / "patients.csv"),
        "mlp",
        label=label,
        schema=str(out / "schema.toml"),
        clients=4,
        rounds=2,
        sample_rate=1.0,
        workers=1,
        hidden=8,
        out=out / "run",
        **keys,
    )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_rows_of_a_csv_have_the_answers_of_predict(folder: Path, tmp_path: Path, task: str) -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    runtime = pytest.importorskip("onnxruntime")
    result = _run(folder, tmp_path, task=task)
    table = read_tables([folder / "patients.csv"])
    number = {"": np.nan, "?": np.nan}
    cells: dict[str, Any] = {
        name: np.array([number[cell] if cell in number else float(cell) for cell in table.columns[name]])
        for name in ("age", "dose", "weight")
    }
    cells |= {name: np.array(list(table.columns[name]), object) for name in ("ward", "sex")}

    session = runtime.InferenceSession(str(result.export(tmp_path / "model.onnx")))

    expected = read_model(tmp_path / "run").predict_file(folder / "patients.csv")
    wanted = expected.answers if task == "regression" else expected.probabilities
    assert sorted(each.name for each in session.get_inputs()) == sorted(cells)
    assert json.loads(session.get_modelmeta().custom_metadata_map["sottovoce"])["task"] == task
    for some in (slice(None), slice(0, 1)):
        (found,) = session.run(None, {name: column[some] for name, column in cells.items()})
        np.testing.assert_allclose(found, wanted[some], rtol=1e-5, atol=1e-5)
    assert len(np.unique(wanted.round(6), axis=0)) > 100  # the answers differ, so that a wrong column would show


def test_what_a_graph_cannot_compute_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    hashed = SCHEMA.replace('categories = ["f", "m"]', "buckets = 16")
    refusing = SCHEMA.replace('categories = ["f", "m"]', 'categories = ["f", "m"]\nmissing = "refuse"')
    for name, schema, words in (("a", hashed, "'sex' is hashed into buckets"), ("b", refusing, "'sex' has missing")):
        (tmp_path / name).mkdir()
        result = _run(folder, tmp_path / name, schema)

        with pytest.raises(InputError, match=words) as caught:
            result.export(tmp_path / "model.onnx")

        assert "--features" in str(caught.value)
        assert not (tmp_path / "model.onnx").exists()
