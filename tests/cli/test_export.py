from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core import packages
from sottovoce.models.export import export
from sottovoce.runs.saved_model import read_model

from .conftest import Shell

STRANGER = """
import json, sys
import numpy as np, torch
extra = {"sottovoce.json": ""}
model = torch.export.load(sys.argv[1], extra_files=extra).module()
x = torch.from_numpy(np.load(sys.argv[2]))
assert not any(name.startswith("sottovoce") for name in sys.modules)
one = model(x[:1])
print(json.dumps([model(x).tolist(), one.tolist(), json.loads(extra["sottovoce.json"])["inputs"]["class_names"]]))
"""


@pytest.mark.parametrize("which", ["digits", "patients"])
def test_torch_loads_the_export_without_sottovoce_and_says_the_same(
    which: str, shell: Shell, here: Path, request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue("finished" if which == "digits" else "trained")
    rng = np.random.default_rng(2)
    x = rng.integers(0, 17, (20, 8, 8, 1)).astype(np.uint8) if which == "digits" else rng.random((20, 3), np.float32)
    np.save(here / "x.npy", x)
    expected = read_model(run).predict(x)

    outcome = shell("export", str(run), "--to", "torch", "--out", "model.pt2")
    told = subprocess.run(
        [sys.executable, "-c", STRANGER, "model.pt2", "x.npy"], cwd=here, capture_output=True, text=True, check=True
    )
    all_of_them, one, names = json.loads(told.stdout)

    assert (outcome.code, outcome.out) == (0, "model.pt2\n")
    np.testing.assert_allclose(all_of_them, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(one, expected.probabilities[:1], atol=1e-5)
    assert names == (None if which == "digits" else ["no", "yes"])


def test_an_npz_is_enough_to_compute_the_same_by_hand(trained: Path, shell: Shell) -> None:
    x = np.random.default_rng(3).random((5, 3), np.float32)

    document = shell("export", str(trained), "--to", "npz", "--json").json()

    with np.load(document["file"], allow_pickle=False) as arrays:
        told = json.loads(arrays["architecture"].item())
        (linear,) = [layer for layer in told["layers"] if layer["layer"] == "Linear"]
        logits = x @ arrays[linear["tensors"]["kernel"]] + arrays[linear["tensors"]["bias"]]
    expected = read_model(trained).predict(x).probabilities[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits[:, 0])), expected, atol=1e-6)
    assert told["inputs"]["table"]["label"] == "died"
    assert document["file"] == "run.npz"


def test_onnx_without_its_packages_names_the_extra(
    finished: Path, here: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "installed", lambda module: False)

    outcome = shell("export", str(finished), "--to", "onnx")

    assert outcome.code == 2
    assert outcome.err == (
        "error: --to onnx needs onnx and onnxscript and torch, which are not installed; "
        "install it with: pip install 'sottovoce[onnx]'\n"
    )
    assert not list(here.glob("*.onnx"))


def test_onnx_says_the_same(finished: Path, here: Path, shell: Shell) -> None:
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name)
    runtime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(2).integers(0, 17, (20, 8, 8, 1)).astype(np.uint8)

    assert shell("export", str(finished), "--to", "onnx", "--out", "model.onnx").code == 0

    session = runtime.InferenceSession(str(here / "model.onnx"))
    for count in (20, 1):
        (found,) = session.run(["probabilities"], {"records": x[:count]})
        np.testing.assert_allclose(found, read_model(finished).predict(x[:count]).probabilities, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["sottovoce"])["name"] == "logistic"


def test_an_export_that_fails_leaves_no_file(finished: Path, here: Path, shell: Shell) -> None:
    assert "known: torch, onnx, npz" in shell("export", str(finished), "--to", "tflite").err
    assert "there is no folder nowhere" in shell("export", str(finished), "--to", "npz", "--out", "nowhere/m.npz").err
    model = read_model(finished)
    with pytest.raises(Exception, match="vector of"):
        export(model.network, model.params[1:], "npz", here / "m.npz", model.inputs)

    assert [path.name for path in here.iterdir()] == ["small.toml"]
