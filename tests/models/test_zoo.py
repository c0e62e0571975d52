import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.models import NAMES, network
from sottovoce.models.base import Shape


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cnn", (28, 28, 1), 10, 1_663_370),
        ("all-cnn-c", (32, 32, 3), 10, 1_369_738),
        ("imdb-lstm", (400,), 2, 402_701),
        ("hospital-mlp", (7280,), 2, 1_496_601),
        ("lfw-cnn", (62, 47, 3), 2, 93_248 + (7 * 5 * 128) * 256 + 256 + 514),
        ("logistic", (28, 28, 1), 10, 7850),
        ("mlp", (28, 28, 1), 10, 784 * 128 + 128 + 1290),
        ("cnn", (8, 8, 1), 10, 832 + 51_264 + 256 * 512 + 512 + 5130),
    ],
)
def test_networks_have_the_published_number_of_parameters(
    name: str, shape: Shape, classes: int, parameters: int
) -> None:
    net = network(name, shape, classes)

    assert net.dim == parameters
    assert net.initialise(np.random.default_rng(0)).shape == (parameters,)


def test_hidden_is_the_width_of_the_mlp() -> None:
    assert network("mlp", (4,), 3, hidden=7).dim == 5 * 7 + 8 * 3


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="'hospital-mpl'; did you mean 'hospital-mlp'"):
        network("hospital-mpl", (10,), 2)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn", (14,)), ("cnn", (3, 3, 1)), ("all-cnn-c", (32, 32)), ("imdb-lstm", (6,)), ("hospital-mlp", (8, 8, 1))],
)
def test_a_shape_that_does_not_fit_is_named_with_what_does(name: str, shape: Shape) -> None:
    with pytest.raises(InputError) as caught:
        network(name, shape, 2)

    assert f"model {name!r} cannot read records of shape {shape}; it fits " in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_two_classes_need_one_output_where_there_is_no_softmax(name: str) -> None:
    shape = (8, 8, 1) if name in ("cnn", "all-cnn-c", "lfw-cnn") else (12,)

    net = network(name, shape, 2)

    assert net.binary == (name in ("logistic", "linear", "mlp", "imdb-lstm", "hospital-mlp"))
    assert net.shapes[-1] == ((1,) if net.binary else (2,))


def test_a_binary_network_refuses_more_classes() -> None:
    with pytest.raises(InputError, match="2 classes apart, got 3"):
        network("hospital-mlp", (12,), 3)


def test_images_are_scaled_and_other_records_are_not() -> None:
    assert network("cnn", (28, 28, 1), 10).input_scale == 1 / 255
    assert network("cnn", (8, 8, 1), 10, input_scale=1 / 16).input_scale == 1 / 16
    assert network("hospital-mlp", (12,), 2).input_scale == 1


def test_a_width_multiplies_all_layers_but_the_outputs() -> None:
    quarter = network("cnn", (28, 28, 1), 10, width=0.25)

    assert quarter.dim == 8 * 26 + 16 * (200 + 1) + 128 * (784 + 1) + 10 * 129
    assert network("hospital-mlp", (7,), 2, width=0.5).dim == 100 * 8 + 100 * 101 + 101
    assert network("all-cnn-c", (32, 32, 3), 10, width=0.001).classes == 10
    assert network("cnn", (28, 28, 1), 10, width=1).dim == 1663370


@pytest.mark.parametrize(("name", "width", "words"), [("mlp", 0.5, "width is for cnn"), ("cnn", 0, "model.width")])
def test_a_width_that_fits_no_network_is_refused(name: str, width: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        network(name, (28, 28, 1), 10, width=width)
