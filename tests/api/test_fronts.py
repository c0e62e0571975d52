from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.errors import InputError
from sottovoce.data import load
from sottovoce.models.network import Flatten, Linear, Network

FRONT = {"front": "scattering", "projection": {"dims": 30, "samples": 200}}
FEW = {"clients": 10, "rounds": 8, "sample_rate": 1.0, "client_lr": 0.5, "workers": 1}


def test_a_front_is_two_arguments_and_the_result_reads_raw_records(tmp_path: Path) -> None:
    digits = load("digits")
    x_train, x_test = digits.x_train * np.uint8(15), digits.x_test * np.uint8(15)  # images from 0 to 255

    data = (x_train, digits.y_train, x_test, digits.y_test)
    result = sv.simulate(data, "logistic", **FRONT, **FEW, out=tmp_path / "run")

    right = (result.predict(x_test) == digits.y_test).mean()
    assert result["front"] == "scattering" and result["dim"] == 310
    assert right == pytest.approx(result["accuracy_final"]) and right > 0.6
    again = sv.result(tmp_path / "run")
    assert np.array_equal(again.predict_scores(x_test), result.predict_scores(x_test))
    assert set(result.model) == {"1.kernel", "1.bias"}


def test_layers_that_train_are_a_key_of_the_scheme() -> None:
    digits = load("digits")

    result = sv.simulate("digits", "mlp", ("fl-top", {"train": "head", "ratio": 0.5}), hidden=16, **FEW)

    assert (result["dim"], result["parameters"], result["message_length"]) == (170, 1210, 85)
    assert set(result.model) == {"1.kernel", "1.bias", "2.kernel", "2.bias"}
    assert (result.predict(digits.x_test) == digits.y_test).mean() == pytest.approx(result["accuracy_final"])


def test_a_network_that_is_given_can_train_its_head_too() -> None:
    net = Network("mine", (Flatten(), Linear(12), Linear(10, relu=False)), (8, 8, 1), 10, 1 / 16)

    result = sv.simulate("digits", net, ("fl-std", {"train": "layers: fc2"}), **FEW)

    assert result["dim"] == 130
    assert result.predict(load("digits").x_test).shape == (359,)


def test_texts_are_read_as_tokens_by_a_front_for_texts() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 200)
    x = rng.integers(1, 20, (200, 8)) + 20 * y[:, None]

    result = sv.simulate((x, y), "logistic", front="hashed", projection={"dims": 60}, **{**FEW, "client_lr": 2.0})

    assert result["accuracy_final"] > 0.9
    assert (result.predict(x) == y).mean() > 0.9


def test_a_model_that_is_an_object_has_no_front() -> None:
    net = Network("mine", (Flatten(), Linear(10, relu=False)), (8, 8, 1), 10)

    with pytest.raises(
        InputError, match="front='scattering' is for a model that is named, such as 'logistic', got Network"
    ):
        sv.simulate("digits", net, **FRONT, **FEW)
    with pytest.raises(InputError, match="front has no 'scatter'; did you mean 'scattering'"):
        sv.simulate("digits", "logistic", front="scatter", **FEW)
