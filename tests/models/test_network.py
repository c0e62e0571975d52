import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce.models
from sottovoce.core.errors import InputError
from sottovoce.models.network import (
    Conv1d,
    Conv2d,
    DropoutLayer,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Linear,
    Lstm,
    MaxPool,
    MaxPool1d,
    Network,
)

WORDS = Network(
    "words", (Embedding(40, 6), Conv1d(8, 3), MaxPool1d(2), Lstm(5), Linear(1, relu=False)), (9,), 2, 1, "bce"
)
IMAGES = Network("images", (Conv2d(4, 3), MaxPool(2), Flatten(), Linear(3, relu=False)), (7, 6, 2), 3, 1 / 255)


def test_tensors_have_the_orientation_of_keras() -> None:
    assert dict(IMAGES.layout.tensors) == {
        "0.kernel": (3, 3, 2, 4),
        "0.bias": (4,),
        "3.kernel": (3 * 3 * 4, 3),
        "3.bias": (3,),
    }
    assert dict(WORDS.layout.tensors) == {
        "0.embedding": (40, 6),
        "1.kernel": (3, 6, 8),
        "1.bias": (8,),
        "3.kernel": (8, 20),
        "3.recurrent": (5, 20),
        "3.bias": (20,),
        "4.kernel": (5, 1),
        "4.bias": (1,),
    }


def test_dim_counts_every_tensor_once() -> None:
    assert IMAGES.dim == 9 * 2 * 4 + 4 + 36 * 3 + 3
    assert WORDS.dim == 240 + 144 + 8 + 160 + 100 + 20 + 5 + 1


def test_shapes_run_from_the_record_to_the_logits() -> None:
    assert IMAGES.shapes == ((7, 6, 2), (7, 6, 4), (3, 3, 4), (36,), (3,))
    assert WORDS.shapes == ((9,), (9, 6), (7, 8), (3, 8), (5,), (1,))


def test_an_odd_zero_of_same_padding_stands_at_the_end() -> None:
    assert Conv2d(1, 3, stride=2).pads(32) == (0, 1)
    assert Conv2d(1, 3, stride=2).pads(33) == (1, 1)
    assert Conv2d(1, 5).pads(28) == (2, 2)
    assert Conv1d(1, 4, padding="same").pads(10) == (1, 2)


@given(
    size=st.integers(1, 40),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 3),
    padding=st.sampled_from(["same", "valid"]),
)
def test_padded_windows_fill_the_output_exactly(size: int, kernel: int, stride: int, padding: str) -> None:
    layer = Conv2d(1, kernel, padding=padding, stride=stride)  # type: ignore[arg-type]
    if padding == "valid" and kernel > size:
        with pytest.raises(InputError, match="does not fit"):
            layer.output((size, size, 1))
        return

    height, width, _ = layer.output((size, size, 1))

    assert height == width == (size + sum(layer.pads(size)) - kernel) // stride + 1
    assert height == (math.ceil(size / stride) if padding == "same" else height)


def test_kernels_start_glorot_uniform_and_biases_at_zero() -> None:
    net = Network("wide", (Conv2d(16, 5), Flatten(), Linear(64), Linear(10, relu=False)), (10, 10, 8), 10)

    tensors = net.layout.views(net.initialise(np.random.default_rng(1)))

    for name, fan_in, fan_out in (("0.kernel", 25 * 8, 25 * 16), ("2.kernel", 1600, 64), ("3.kernel", 64, 10)):
        limit = math.sqrt(6 / (fan_in + fan_out))
        assert 0.95 * limit < np.abs(tensors[name]).max() <= limit
        assert tensors[name].std() == pytest.approx(limit / math.sqrt(3), rel=0.1)
    for name in ("0.bias", "2.bias", "3.bias"):
        assert not tensors[name].any()


def test_an_lstm_starts_orthogonal_with_open_forget_gates() -> None:
    tensors = WORDS.layout.views(WORDS.initialise(np.random.default_rng(1)))

    recurrent = tensors["3.recurrent"]
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(5), atol=1e-6)
    assert tensors["3.bias"].tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10
    assert np.abs(tensors["0.embedding"]).max() <= 0.05


def test_one_stream_gives_one_start() -> None:
    first, again, other = (WORDS.initialise(np.random.default_rng(seed)) for seed in (3, 3, 4))

    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@given(rate=st.floats(0, 0.9), seed=st.integers(0, 2**32))
def test_dropout_keeps_the_mean(rate: float, seed: int) -> None:
    factors = DropoutLayer(rate).factors(40, (50, 2), np.random.default_rng(seed))

    assert factors.dtype == np.float32
    assert set(np.unique(factors)) <= {np.float32(0), np.float32(1 / (1 - rate))}
    # The share of kept units lies within six standard deviations: false alarms below 1e-8.
    assert abs(np.mean(factors > 0) - (1 - rate)) <= 6 * math.sqrt(rate * (1 - rate) / factors.size) + 1e-6


def test_a_layer_that_cannot_follow_is_named() -> None:
    with pytest.raises(InputError, match=r"odd cannot read records of shape \(5,\): Conv2d needs \(height"):
        Network("odd", (Conv2d(3, 3), GlobalAveragePool()), (5,), 3)


def test_the_last_layer_must_give_one_logit_a_class() -> None:
    with pytest.raises(InputError, match="must give 10 values"):
        Network("short", (Linear(9, relu=False),), (4,), 10)


def test_binary_cross_entropy_is_for_two_classes() -> None:
    assert WORDS.binary
    assert not IMAGES.binary
    with pytest.raises(InputError, match="2 classes, got 3"):
        Network("three", (Linear(1, relu=False),), (4,), 3, 1, "bce")


def test_networks_travel_to_workers() -> None:
    assert pickle.loads(pickle.dumps(WORDS)) == WORDS
    assert hash(WORDS) != hash(IMAGES)


def test_importing_the_room_does_not_import_torch_or_scikit_learn() -> None:
    code = "import sys, sottovoce.models; print(sorted({'torch', 'sklearn'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_names_are_sorted_and_there() -> None:
    names = sottovoce.models.__all__

    assert sorted(names, key=lambda name: (not name.isupper(), name.islower(), name)) == names
    assert all(hasattr(sottovoce.models, name) for name in names)
