from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.core.target import Target
from sottovoce.models import LocalTraining, TaskKeys, make_trainer, network
from sottovoce.models.export import architecture, export

NETWORKS = [
    ("logistic", (5,), 2, "float32"),
    ("mlp", (8, 8, 1), 10, "uint8"),
    ("cnn", (12, 12, 1), 10, "uint8"),
    ("all-cnn-c", (9, 8, 3), 10, "uint8"),
    ("imdb-lstm", (20,), 2, "uint16"),
    ("lfw-cnn", (17, 16, 1), 2, "uint8"),
    ("hospital-mlp", (20,), 2, "float32"),
]


@pytest.mark.parametrize(("name", "shape", "classes", "kind"), NETWORKS, ids=[case[0] for case in NETWORKS])
def test_torch_computes_the_same_probabilities_from_the_exported_graph(
    tmp_path: Path, name: str, shape: tuple[int, ...], classes: int, kind: str
) -> None:
    rng = np.random.default_rng(1)
    net = network(name, shape, classes)
    params = net.initialise(rng)
    x = rng.random((6, *shape), np.float32) if kind == "float32" else rng.integers(0, 255, (6, *shape)).astype(kind)
    logits = make_trainer(net, LocalTraining(), "torch").scores(params, x).astype(np.float64)
    if net.binary:
        logits = np.column_stack([np.zeros(6), logits])
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    export(net, params, "torch", tmp_path / "model.pt2", {"input_type": kind})

    module = torch.export.load(tmp_path / "model.pt2").module()
    records = torch.from_numpy(x.astype(np.int64) if kind == "uint16" else x)
    np.testing.assert_allclose(module(records).detach().numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(module(records[:1]).detach().numpy(), expected[:1], atol=1e-5)


@pytest.mark.parametrize(("name", "shape", "classes", "kind"), NETWORKS, ids=[case[0] for case in NETWORKS])
def test_the_architecture_names_every_tensor_once(name: str, shape: tuple[int, ...], classes: int, kind: str) -> None:
    net = network(name, shape, classes)

    named = [tensor for layer in architecture(net)["layers"] for tensor in layer["tensors"].values()]

    assert named == [tensor for tensor, _ in net.layout.tensors]


TASKS = {
    "regression": (TaskKeys("regression", "huber"), Target.between(-20, 60), 1),
    "multilabel": (TaskKeys("multilabel"), Target("answers"), 4),
    "ordinal": (TaskKeys("ordinal"), Target(), 4),
    "own loss": (TaskKeys("regression", torch.nn.functional.mse_loss), Target("number", 7.0, 3.0), 1),
    "weighted": (TaskKeys(class_weights=(1.0, 2.0, 5.0)), Target(), 3),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_graph_of_every_task_answers_as_the_task_does(tmp_path: Path, name: str) -> None:
    keys, target, classes = TASKS[name]
    rng = np.random.default_rng(5)
    net = network("mlp", (6,), classes, hidden=7, task=keys, target=target)
    params = net.initialise(rng)
    x = (4 * rng.standard_normal((40, 6))).astype(np.float32)
    scores = make_trainer(net, LocalTraining(), "torch").scores(params, x).astype(np.float64)

    export(net, params, "torch", tmp_path / "model.pt2", {})

    found = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(x))
    if target.kind == "number":
        np.testing.assert_allclose(found.numpy(), net.task.guesses(scores), rtol=1e-5, atol=1e-4)
        assert found.shape == (40,)
        return
    probabilities = found[0] if name == "ordinal" else found
    np.testing.assert_allclose(probabilities.numpy(), net.task.probabilities(scores), atol=1e-5)
    if name == "ordinal":  # the class is not always the likeliest one
        assert found[1].tolist() == net.task.guesses(scores).tolist()
        assert found[1].tolist() != probabilities.argmax(1).tolist()


def test_an_npz_of_numbers_says_how_its_output_becomes_a_value(tmp_path: Path) -> None:
    net = network("linear", (3,), 1, task=TaskKeys("regression"), target=Target("number", 100.5, 7.25))

    told = architecture(net)

    assert (told["task"], told["output"]) == ("regression", "one number z; the value is z * 7.25 + 100.5")


@pytest.mark.parametrize("name", TASKS)
def test_onnx_has_the_answers_of_every_task_under_their_names(tmp_path: Path, name: str) -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    runtime = pytest.importorskip("onnxruntime")
    keys, target, classes = TASKS[name]
    rng = np.random.default_rng(5)
    net = network("mlp", (6,), classes, hidden=7, task=keys, target=target)
    params = net.initialise(rng)
    x = (4 * rng.standard_normal((40, 6))).astype(np.float32)
    scores = make_trainer(net, LocalTraining(), "torch").scores(params, x)
    wanted = {key: value.numpy() for key, value in net.task.torch_answers(torch.from_numpy(scores)).items()}

    export(net, params, "onnx", tmp_path / "model.onnx", {})

    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [output.name for output in session.get_outputs()] == list(wanted)
    for key, found in zip(wanted, session.run(list(wanted), {"records": x}), strict=True):
        np.testing.assert_allclose(found, wanted[key], rtol=1e-5, atol=1e-4)


def test_safetensors_hold_the_tensors_by_name_and_the_architecture(tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors")
    net = network("cnn", (12, 12, 1), 10)
    params = net.initialise(np.random.default_rng(1))

    export(net, params, "safetensors", tmp_path / "model.safetensors", {"input_type": "uint8"})

    with files.safe_open(tmp_path / "model.safetensors", "numpy") as read:
        tensors = {name: read.get_tensor(name) for name in read.keys()}  # noqa: SIM118
        told = json.loads(read.metadata()["sottovoce"])
    assert np.array_equal(net.layout.join(tensors), params)
    assert told["name"] == "cnn" and told["inputs"] == {"input_type": "uint8"}
