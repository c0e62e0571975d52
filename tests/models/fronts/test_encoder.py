"""Pretrained networks as fronts: what everybody must have alike, and that a record is in no call with another."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import DataError, InputError, WireError
from sottovoce.data.raw import text_rows
from sottovoce.models import LocalTraining, make_trainer
from sottovoce.models.export import export
from sottovoce.models.fronted import Fronted
from sottovoce.models.fronts import make_front
from sottovoce.models.fronts.encoder import Encoder, EncoderKeys
from sottovoce.models.fronts.pretrained import READY, directions, read_weights
from sottovoce.models.whitening import Whitening
from sottovoce.models.zoo import network
from tests.models.fronts.encoders import WIDTH, image_encoder, text_encoder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = default_rng(3).integers(0, 256, (9, 8, 8, 3)).astype(np.uint8)


def made(source: Path | str, **keys: object) -> Encoder:
    dims = keys.pop("dims", None)
    front = make_front(
        "encoder", X.shape[1:], "uint8", input_scale=1 / 255, dims=dims, encoder=EncoderKeys(str(source), **keys)
    )
    assert isinstance(front, Encoder)
    return front


def test_features_are_the_mean_over_places_of_length_one_over_0_3(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    image_encoder(tmp_path / "own.onnx")
    kernel = default_rng(1).normal(size=(WIDTH, 3, 3, 3)).astype(np.float32)

    found = made(tmp_path / "own.onnx", mean=(0.5,), std=(0.25,)).features(X)

    x = torch.from_numpy((X.transpose(0, 3, 1, 2) / np.float32(255) - 0.5) / 0.25)
    slow = torch.relu(torch.nn.functional.conv2d(x.float(), torch.from_numpy(kernel))).mean((2, 3)).numpy()
    slow *= 1 / 0.3 / np.linalg.norm(slow, axis=1, keepdims=True)
    assert found.shape == (9, WIDTH) and np.allclose(found, slow, atol=1e-5)


def test_a_records_features_are_the_same_bits_alone_and_in_company(tmp_path: Path) -> None:
    image_encoder(tmp_path / "own.onnx")
    front = made(tmp_path / "own.onnx", size=11)

    alone = np.concatenate([front.features(X[row : row + 1]) for row in range(len(X))])

    assert np.array_equal(front.features(X), alone)


def test_a_client_with_another_file_transform_or_licence_refuses_the_set_up(tmp_path: Path) -> None:
    digest = image_encoder(tmp_path / "own.onnx")
    (tmp_path / "other").mkdir()
    image_encoder(tmp_path / "other" / "own.onnx", seed=2)
    server = made(tmp_path / "own.onnx", licence="MIT")
    told = server.payload()

    assert server.told(told + b"rest")[1] == b"rest" and len(told) <= server.most_bytes
    assert json.loads(told[2:])["sha256"] == digest
    for other in (
        made(tmp_path / "other" / "own.onnx", licence="MIT"),
        made(tmp_path / "own.onnx", licence="MIT", size=9),
        made(tmp_path / "own.onnx", licence="MIT", mean=(0.5,)),
        made(tmp_path / "own.onnx"),
    ):
        with pytest.raises(WireError, match="set-up has another encoder than this node"):
            other.told(told)


def test_a_file_of_another_digest_than_the_experiments_is_refused_before_it_is_read(tmp_path: Path) -> None:
    digest = image_encoder(tmp_path / "own.onnx")
    assert made(tmp_path / "own.onnx", digest=digest).width == WIDTH

    with pytest.raises(InputError, match=f"has SHA-256 {digest}, but 0000"):
        made(tmp_path / "own.onnx", digest="0" * 64).features(X)


def test_dims_are_projected_by_public_records_and_travel(tmp_path: Path) -> None:
    image_encoder(tmp_path / "own.onnx")
    public = default_rng(4).integers(0, 256, (60, 8, 8, 3)).astype(np.uint8)

    server = made(tmp_path / "own.onnx", dims=3).fitted(public, 1 / 255)
    node, rest = made(tmp_path / "own.onnx", dims=3).told(server.payload())

    assert rest == b"" and server.width == 3
    assert np.array_equal(node.features(X), server.features(X))
    with pytest.raises(InputError, match="at most the 6 features"):
        made(tmp_path / "own.onnx", dims=7)


def test_texts_are_read_as_bytes_and_an_empty_one_is_zero(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    text_encoder(tmp_path)
    keys = EncoderKeys(str(tmp_path / "text.onnx"), tokenizer=str(tmp_path / "tokenizer.json"))
    rows = text_rows(["good film", "film good", "bad", ""])
    front = make_front("encoder", rows.shape[1:], "uint8", input_scale=1.0, encoder=keys)

    found = front.features(rows)

    table = default_rng(2).normal(size=(5, WIDTH)).astype(np.float32)
    slow = table[[1, 3]].mean(0)
    assert np.allclose(found[0], slow / np.linalg.norm(slow) / 0.3, atol=1e-5)
    assert np.allclose(found[0], found[1], atol=1e-6) and not np.allclose(found[0], found[2])
    assert not found[3].any()
    with pytest.raises(InputError, match="reads texts"):
        make_front("encoder", (4,), "float32", input_scale=1.0, encoder=keys).features(np.zeros((1, 4), np.float32))


def test_a_torch_module_gives_what_torch_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import sys
    from types import ModuleType

    module = ModuleType("own_nets")
    torch.manual_seed(0)
    module.net = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.ReLU())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_nets", module)
    front = made("own_nets:net")

    with torch.inference_mode():
        slow = module.net(torch.from_numpy(X.transpose(0, 3, 1, 2) / np.float32(255))).mean((2, 3)).numpy()

    assert np.allclose(front.features(X), slow / np.linalg.norm(slow, axis=1, keepdims=True) / 0.3, atol=1e-5)
    assert len(front.described["sha256"]) == 64


@pytest.mark.parametrize(
    ("source", "words"),
    [("efficientnet-lite1", "did you mean 'efficientnet-lite0'"), ("gone.onnx", "there is no file gone.onnx")],
)
def test_a_wrong_source_is_named_with_a_way_out(source: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(source).features(X)


def test_a_file_that_is_no_onnx_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.onnx").write_bytes(b"\x00no model")

    with pytest.raises(InputError, match="is no ONNX model"):
        made(tmp_path / "own.onnx").features(X)


def test_a_file_of_weights_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "bad.pth").write_bytes(pickle.dumps(Evil()))

    with pytest.raises(DataError, match="is not a part of weights"):
        read_weights(tmp_path / "bad.pth")
    assert not (tmp_path / "ran").exists()


def test_directions_have_one_sign_and_keep_what_the_classes_differ_in() -> None:
    weights = default_rng(5).normal(size=(7, 10)).astype(np.float32)

    found = directions(weights, 4)

    assert found.shape == (10, 4) and np.allclose(found.T @ found, np.eye(4), atol=1e-5)
    assert all(column[np.abs(column).argmax()] > 0 for column in found.T)
    centred = weights - weights.mean(0)
    assert np.linalg.norm(centred @ found) ** 2 == pytest.approx((np.linalg.svd(centred)[1][:4] ** 2).sum(), rel=1e-4)


@pytest.mark.parametrize("name", sorted(READY))
def test_a_network_that_is_ready_by_name_reads_its_package(name: str) -> None:
    ready = READY[name]
    if importlib.util.find_spec(ready.module) is None:
        pytest.skip(f"{ready.package} is not installed")
    if not ready.tokenizer:
        front = make_front("encoder", (8, 8, 1), "uint8", input_scale=1 / 255, encoder=EncoderKeys(name, size=32))
        found = front.features(X[:2, :, :, :1])
        assert found.shape == (2, 256) and front.payload()
        return
    pytest.importorskip("tokenizers")
    rows = text_rows(["A man is eating food.", "Someone eats a meal.", "The girl carries a baby."])
    found = make_front("encoder", rows.shape[1:], "uint8", input_scale=1.0, encoder=EncoderKeys(name)).features(rows)
    likeness = found @ found.T * 0.09
    assert found.shape[1] == ready.width and likeness[0, 1] > likeness[0, 2] + 0.3


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("whitened", [False, True])
def test_front_whitening_and_head_are_one_onnx_graph_that_answers_alike(
    opset: int, whitened: bool, tmp_path: Path
) -> None:
    import onnxruntime

    image_encoder(tmp_path / "own.onnx", size=12, opset=opset)
    front, net = made(tmp_path / "own.onnx"), network("mlp", (WIDTH,), 3, hidden=4)
    whitening = None
    if whitened:
        whitening = Whitening(WIDTH, 4)
        whitening = whitening.known(default_rng(6).normal(size=whitening.length).astype(np.float32))
    model = Fronted(front, net, whitening)
    params = default_rng(7).normal(size=net.dim).astype(np.float32)

    export(model, params, "onnx", tmp_path / "whole.onnx", {"input_type": "uint8"})

    (found,) = onnxruntime.InferenceSession(str(tmp_path / "whole.onnx")).run(["probabilities"], {"records": X})
    scores = make_trainer(net, LocalTraining()).scores(params, model.features(X))
    assert np.allclose(found, net.task.probabilities(scores), atol=1e-4)


def test_a_text_model_is_exported_from_its_tokens(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    import onnxruntime

    text_encoder(tmp_path)
    keys = EncoderKeys(str(tmp_path / "text.onnx"), tokenizer=str(tmp_path / "tokenizer.json"))
    rows = text_rows(["good film"])
    front, net = Encoder.make(rows.shape[1:], "uint8", input_scale=1.0, dims=None, seed=1, encoder=keys), None
    net = network("logistic", (WIDTH,), 2)
    params = default_rng(7).normal(size=net.dim).astype(np.float32)

    export(Fronted(front, net), params, "onnx", tmp_path / "whole.onnx", {"input_type": "uint8"})

    tokens = {"input_ids": np.array([[1, 3]]), "attention_mask": np.ones((1, 2), np.int64)}
    (found,) = onnxruntime.InferenceSession(str(tmp_path / "whole.onnx")).run(["probabilities"], tokens)
    scores = make_trainer(net, LocalTraining()).scores(params, front.features(rows))
    assert np.allclose(found, net.task.probabilities(scores), atol=1e-5)
