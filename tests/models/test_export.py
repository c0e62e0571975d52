from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.models import LocalTraining, make_trainer, network
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
