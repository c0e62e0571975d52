"""Other tasks than classes: numbers, several answers and orders, with and without privacy, by arrays and by files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.config.experiment import parse
from sottovoce.core.errors import DataError, InputError, PrivacyError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((600, 5)).astype(np.float32)
Y = 120 + 15 * (X @ np.array([1.0, -0.5, 0.3, 0.0, 0.2])) + 2 * RNG.standard_normal(600)
FEW: dict[str, Any] = {"clients": 10, "rounds": 6, "sample_rate": 1.0, "client_lr": 0.1, "batch_size": 20, "workers": 1}


def test_a_named_model_learns_a_number_and_tells_errors_in_its_units() -> None:
    result = sv.simulate((X, Y), "linear", task="regression", **FEW)

    assert result["r2_final"] > 0.9
    assert result["mae_final"] < 6
    assert result["rmse_final"] >= result["mae_final"]
    assert result["accuracy_final"] is None
    assert result["auroc_final"] is None
    assert result["selected_by"] == "r2"
    assert result["verdict"] is None
    assert np.abs(result.predict(X[:50]) - Y[:50]).mean() < 6


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("columns", [3, 60, 300])
def test_squared_losses_do_not_diverge_unless_a_rate_is_given(model: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    alike = 0.9 * rng.standard_normal((400, 1)) + 0.4 * rng.standard_normal((400, columns))
    y = alike.sum(1) + rng.standard_normal(400)

    result = sv.simulate((alike.astype(np.float32), y), model, task="regression", clients=10, rounds=12)

    assert result["r2_final"] > 0.2


def test_only_a_squared_loss_takes_the_rate_that_is_safe() -> None:
    rates = [
        parse({"model": model}).client.client_lr
        for model in ({"task": "regression"}, {"task": "regression", "loss": "huber"}, {"name": "mlp"})
    ]

    assert rates == ["auto", 0.1, 0.1]
    assert parse({"model": {"task": "regression"}, "client": {"client_lr": 0.3}}).client.client_lr == 0.3


def test_two_workers_give_the_bits_of_one() -> None:
    one, two = (sv.simulate((X, Y), "mlp", task="regression", **{**FEW, "rounds": 2, "workers": n}) for n in (1, 2))

    for name, tensor in one.model.items():
        assert tensor.tobytes() == two.model[name].tobytes()


def test_a_model_that_learnt_nothing_is_told_to_be_no_better_than_the_mean() -> None:
    noise = RNG.standard_normal(600)
    result = sv.simulate((X, noise), "linear", task="regression", **FEW)

    assert result["verdict"].startswith("no better than always answering")


def test_a_private_run_needs_the_range_of_the_labels_and_measures_by_it() -> None:
    keys = {**FEW, "clients": 150, "rounds": 4}
    with pytest.raises(PrivacyError, match=r"range of the labels.*label_range"):
        sv.simulate((X, Y), "linear", task="regression", privacy=sv.Privacy(epsilon=4), **keys)
    result = sv.simulate(
        (X, Y), "linear", task="regression", label_range=(0, 240), privacy=sv.Privacy(epsilon=20), **keys
    )

    assert result["epsilon"] <= 20
    assert 0 <= result["mae_final"] <= 240
    assert result["selected_by"] == "mae"
    best = min(record["mae"] for record in result.rounds if record.get("mae") is not None)
    assert result["mae_best"] == best


def test_several_answers_and_orders_are_learnt_and_predicted() -> None:
    answers = (X @ RNG.standard_normal((5, 3)) > 0).astype(np.int64)
    several = sv.simulate((X, answers), "mlp", task="multilabel", **{**FEW, "client_lr": 1.0})
    order = np.digitize(X[:, 0], [-0.5, 0.5])
    ordinal = sv.simulate((X, order), "mlp", task="ordinal", **{**FEW, "client_lr": 1.0})

    assert several["f1_final"] > 0.8
    assert several.predict(X[:4]).shape == (4, 3)
    assert several.predict_scores(X[:4]).shape == (4, 3)
    assert ordinal["accuracy_final"] > 0.6
    assert ordinal["mae_final"] < 0.5
    assert ordinal.predict_scores(X[:4]).sum(1) == pytest.approx([1] * 4)


def test_public_weights_move_the_answers_to_the_rare_class() -> None:
    rare = (X[:, 0] + RNG.standard_normal(600) > 1.8).astype(np.int64)
    plain, weighted = (
        sv.simulate((X, rare), "logistic", classes=2, class_weights=weights, **{**FEW, "client_lr": 0.5})
        for weights in (None, [1.0, 10.0])
    )

    assert weighted.predict(X).mean() > 2 * plain.predict(X).mean()


@pytest.mark.parametrize(
    ("data", "keys", "words"),
    [
        ((X, np.array(["high"] * 600)), {"task": "regression"}, "needs labels that are numbers, got 'high'"),
        ((X, np.where(np.arange(600) == 3, np.nan, Y)), {"task": "regression"}, "1 of 600 labels are NaN"),
        ((X, Y), {"task": "regresion"}, "task"),
        ((X, Y), {}, "to learn numbers set task='regression'"),
        ((X, Y), {"task": "regression", "loss": "cubic"}, "squared, absolute, huber or module:function"),
        ((X, Y), {"task": "regression", "label_range": (5, 1)}, "the lower first"),
        ((X, Y), {"task": "multilabel"}, "row of answers"),
        ((X, Y), {"task": "regression", "partition": "dirichlet"}, "deals by class"),
        ((X, Y), {"task": "regression", "scheme": "fl-once", "rounds": 1}, "fl-once solves for classes"),
        ("digits", {"task": "regression"}, "the labels of 'digits' are classes"),
    ],
)
def test_wrong_input_is_one_sentence(data: Any, keys: dict[str, Any], words: str) -> None:
    with pytest.raises((DataError, InputError), match=words):
        sv.simulate(data, "linear", **keys)


def _csv(folder: Path, last: str = "121.5") -> Path:
    path = folder / "patients.csv"
    rows = [f"{x[0]:.3f},{x[1]:.3f},{y:.2f}" for x, y in zip(X[:200], Y[:200], strict=True)]
    path.write_text("age,dose,pressure\n" + "\n".join([*rows, f"0.5,0.5,{last}"]) + "\n", "utf-8")
    return path


def test_a_table_with_a_numeric_label_is_read_and_a_text_is_refused_with_its_line(tmp_path: Path) -> None:
    result = sv.simulate(str(_csv(tmp_path)), "linear", label="pressure", task="regression", **FEW)

    assert result["r2_final"] > 0.5
    assert result.predict({"age": [0.0, 1.0], "dose": [0.0, 0.0]}).shape == (2,)
    with pytest.raises(DataError, match=r"patients.csv line 202.*regression"):
        sv.simulate(str(_csv(tmp_path, "high")), "linear", label="pressure", task="regression", **FEW)
    with pytest.raises(DataError, match=r"line 202.*missing"):
        sv.simulate(str(_csv(tmp_path, "")), "linear", label="pressure", task="regression", **FEW)


def test_the_schema_gives_the_range_and_labels_beyond_it_are_cut_off(tmp_path: Path) -> None:
    schema = {"label": {"minimum": 100, "maximum": 140}}
    columns = {"a": X[:, 0].tolist(), "pressure": Y.tolist()}
    result = sv.simulate(columns, "linear", label="pressure", task="regression", schema=schema, **FEW)

    assert result["quality"]["baseline"]["rmse"] < float(Y.std())


def test_an_export_of_every_task_says_what_predict_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    orders = np.digitize(Y, [110, 120, 130])
    answers = np.column_stack([Y > 120, X[:, 0] > 0]).astype(int)
    for task, y in (("regression", Y), ("ordinal", orders), ("multilabel", answers)):
        result = sv.simulate((X, y), "mlp", task=task, **{**FEW, "rounds": 2})

        file = result.export(tmp_path / f"{task}.pt2")

        found = torch.export.load(file).module()(torch.from_numpy(X[:50]))
        if task == "regression":
            np.testing.assert_allclose(found.numpy(), result.predict(X[:50]), rtol=1e-5)
            continue
        probabilities = found[0] if task == "ordinal" else found
        np.testing.assert_allclose(probabilities.numpy(), result.predict_scores(X[:50]), atol=1e-5)
        said = found[1] if task == "ordinal" else (probabilities > 0.5).to(torch.int64)
        assert said.tolist() == result.predict(X[:50]).tolist()


def test_an_export_needs_a_form_and_a_folder(tmp_path: Path) -> None:
    result = sv.simulate((X, Y), "linear", task="regression", **{**FEW, "rounds": 1})

    with pytest.raises(InputError, match=r"must end in one of \.pt2 \(torch\)"):
        result.export(tmp_path / "model.bin")
    with pytest.raises(InputError, match="there is no folder"):
        result.export(tmp_path / "nowhere" / "model.npz")
    with pytest.raises(InputError, match="known: torch, onnx, npz"):
        result.export(tmp_path / "model", to="tflite")
    file = result.export(tmp_path / "model", to="npz")

    with np.load(file, allow_pickle=False) as arrays:
        value = X[:9] @ arrays["1.kernel"] + arrays["1.bias"]
    target = result.saved.network.task.target
    np.testing.assert_allclose(value[:, 0] * target.scale + target.centre, result.predict(X[:9]), rtol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_a_module_of_ones_own_is_exported_with_its_task(form: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    images = RNG.integers(0, 255, (120, 8, 9, 1)).astype(np.uint8)
    layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.5)]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(4 * 6 * 7, 1))
    result = sv.simulate((images, Y[:120]), module, task="regression", **{**FEW, "rounds": 1})
    if form == "onnx":
        for name in ("onnx", "onnxscript"):
            pytest.importorskip(name)
        runtime = pytest.importorskip("onnxruntime")

    file = result.export(tmp_path / f"model.{form}")

    if form == "pt2":
        found = torch.export.load(file).module()(torch.from_numpy(images[:20])).numpy()
    else:
        (found,) = runtime.InferenceSession(str(file)).run(["values"], {"records": images[:20]})
    np.testing.assert_allclose(found, result.predict(images[:20]), rtol=1e-5)
    with pytest.raises(InputError, match="an npz holds no code"):
        result.export(tmp_path / "model.npz")


def test_a_module_that_torch_cannot_trace_is_one_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Branching(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(5, 1)

        def forward(self, x: Any) -> Any:
            return self.linear(x if float(x.sum()) > 0 else -x)

    result = sv.simulate((X, Y), Branching(), task="regression", **{**FEW, "rounds": 1})

    with pytest.raises(InputError, match="torch cannot trace Branching") as caught:
        result.export(tmp_path / "model.pt2")

    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
