from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import InputError
from sottovoce.data import leaves
from sottovoce.models import LocalTraining, make_trainer
from sottovoce.models.fronts.gabor import Gabor
from sottovoce.models.network import Linear, Network
from sottovoce.models.partial import Partial
from sottovoce.models.zoo import network

CNN = network("cnn", (16, 16, 1), 10)


@pytest.fixture(scope="module")
def gabor() -> Gabor:
    return Gabor(CNN).fitted(leaves((16, 16, 1), records=400).x_train, 1 / 255)


@pytest.mark.parametrize("shape", [(16, 16, 1), (17, 14, 3)])
def test_the_network_itself_computes_what_the_front_says(shape: tuple[int, int, int]) -> None:
    """The architecture stays the papers': its own layers, run by a trainer, give +- the projected products."""
    public = leaves(shape, records=300)
    cnn = network("cnn", shape, 10)
    gabor = Gabor(cnn, 200).fitted(public.x_train, public.input_scale)
    start = cnn.initialise(default_rng(1))
    gabor.fill(start)
    lower = Network("lower", (*cnn.layers[:5], Linear(512, relu=False)), shape, 512, 1 / 255)

    outputs = make_trainer(lower, LocalTraining()).scores(start[: lower.dim], public.x_test)

    assert gabor.projection is not None
    wanted = gabor.projection.raw(gabor.coefficients(public.x_test))
    assert np.allclose(outputs[:, 0:400:2], wanted, atol=1e-4)
    assert np.array_equal(outputs[:, 1:400:2], -outputs[:, 0:400:2])
    assert not outputs[:, 400:].any()  # units that nothing is left for


def test_outputs_have_a_mean_length_on_public_images(gabor: Gabor) -> None:
    x = leaves((16, 16, 1), records=400).x_train
    part = Partial.start(CNN, ("fc2",), gabor, default_rng(1))

    assert np.linalg.norm(part.features(x), axis=1).mean() == pytest.approx(1 / 0.3, rel=1e-3)


def test_only_what_lies_below_the_last_layer_is_filled(gabor: Gabor) -> None:
    drawn = CNN.initialise(default_rng(1))
    filled = drawn.copy()
    gabor.fill(filled)
    before, after = CNN.layout.views(drawn), CNN.layout.views(filled)

    assert np.array_equal(before["6.kernel"], after["6.kernel"]) and np.array_equal(before["6.bias"], after["6.bias"])
    for name in ("0.kernel", "2.kernel", "5.kernel", "5.bias"):
        assert not np.array_equal(before[name], after[name]), name


def test_waves_of_the_first_layer_have_length_one_and_no_mean() -> None:
    start = np.zeros(CNN.dim, np.float32)
    Gabor(CNN).fitted(leaves((16, 16, 1), records=100).x_train, 1 / 255).fill(start)
    waves = CNN.layout.views(start)["0.kernel"][:, :, 0, :28]

    assert np.allclose(np.linalg.norm(waves.reshape(25, 28), axis=0), 1, atol=1e-6)
    assert np.abs(waves.sum((0, 1))).max() < 1e-5
    assert np.array_equal(waves[..., 0::2], -waves[..., 1::2])


def test_a_client_fills_the_same_from_the_set_up_alone(gabor: Gabor) -> None:
    theirs, rest = Gabor(CNN).told(gabor.payload() + b"x")
    mine, yours = np.zeros(CNN.dim, np.float32), np.zeros(CNN.dim, np.float32)
    gabor.fill(mine)
    theirs.fill(yours)

    assert rest == b"x" and np.array_equal(mine, yours)


@pytest.mark.parametrize("name", ["mlp", "logistic", "all-cnn-c", "lfw-cnn"])
def test_other_networks_are_refused(name: str) -> None:
    other = network(name, (16, 16, 1), 10)

    with pytest.raises(InputError, match=rf"fills the first layers of model 'cnn', and '{name}' has others"):
        Gabor(other)


def test_more_dims_than_there_are_pairs_or_outputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"at most 256 for front 'gabor' .* two units for each, got 257"):
        Gabor(CNN, dims=257)
    with pytest.raises(InputError, match=r"at most 64 for front 'gabor' on images of shape \(7, 7, 1\)"):
        Gabor(network("cnn", (7, 7, 1), 10), dims=65)
    assert Gabor(network("cnn", (7, 7, 1), 10)).width == 64


def test_a_front_without_numbers_fills_nothing() -> None:
    with pytest.raises(InputError, match="no projection yet"):
        Gabor(CNN).fill(np.zeros(CNN.dim, np.float32))
