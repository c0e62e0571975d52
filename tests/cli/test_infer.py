from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sottovoce.cli import main

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "threats"


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    """Write a small set of made-up faces that is read as fairface: dark ones are black."""
    rng = np.random.default_rng(1)
    parts: dict[str, np.ndarray] = {}
    for part, count in (("train", 400), ("val", 20)):
        race = (np.arange(count) % 2).astype(np.uint8)
        x = rng.integers(120, 250, (count, 12, 12))
        x[race == 1] -= 100
        parts |= {f"x_{part}": x.astype(np.uint8), f"race_{part}": race}
        parts[f"male_{part}"] = (np.arange(count) // 2 % 2).astype(np.uint8)
    names = np.frombuffer(b"White\nBlack", np.uint8)
    np.savez(tmp_path / "fairface_gray32_25k.npz", race_names=names, **parts)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path, faces: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(f"""
[experiment]
name = "tiny"
rounds = 16
[data]
source = "fairface"
folder = "{faces}"
clients = 2
[model]
name = "mlp"
hidden = 8
[client]
local_steps = 1
batch_size = 8
client_lr = 0.1
[cohort]
sampling = "fixed"
sample_rate = 1
[inference]
pairs = 2
iterations = 5
""")
    return path


def test_a_property_is_inferred_from_an_experiment_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "property", str(file), "--json", "--out", str(tmp_path / "kept")]) == 0

    (found,) = json.loads(capsys.readouterr().out)
    assert found["property"] == "Black"
    assert 0.8 < found["auc"] <= 1
    assert json.loads((tmp_path / "kept" / "property.json").read_text()) == [found]


def test_every_point_of_a_sweep_is_attacked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = 'sweep.scheme.name=["fl-std", "fl-sign"]'

    assert main(["infer", "property", str(file), "--set", sweep, "--set", "experiment.rounds=8"]) == 0

    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines() if " fl-" in f" {line}"] == ["fl-std", "fl-sign"]
    assert "AUC" in told


def test_images_are_rebuilt_and_drawn(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "made" / "images.png"

    assert main(["infer", "images", str(file), "--png", str(picture), "--set", "client.batch_size=2"]) == 0

    told = capsys.readouterr()
    assert "SSIM of unrelated" in told.out
    assert f"the images are in {picture}" in told.err
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "change", "message"),
    [
        ("property", "inference.property=Blue", "fairface has no property 'Blue'; it has White, Black"),
        ("property", "inference.propery=Black", "[inference] has no key 'propery'; did you mean 'property'?"),
        ("property", "cohort.sample_rate=1/2", "set [cohort] sample_rate = 1 without cap"),
        ("images", "client.batch_size=65", "65 images would be looked for at once"),
        ("images", "data.source=digits", "images of 11 x 11 or more"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(
    file: Path, capsys: pytest.CaptureFixture[str], command: str, change: str, message: str
) -> None:
    assert main(["infer", command, str(file), "--set", change]) == 2

    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert told.err.count("error:") == 1


@pytest.mark.parametrize("name", ["property-inference", "gradient-inversion"])
def test_the_experiment_files_are_whole(name: str) -> None:
    from sottovoce.config.experiment import load
    from sottovoce.search.sweep import layout

    points = layout(load(EXPERIMENTS / f"{name}.toml"))

    assert {point.scheme.name for point in points} == {"fl-std", "fl-sign", "fl-top", "fl-cs"}
    assert all(point.inference is not None for point in points)
