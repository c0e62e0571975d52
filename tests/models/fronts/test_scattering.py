from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.data import leaves
from sottovoce.models.fronts.filters import morlet, thinning
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.scattering import Scattering

SHAPES = [(28, 28, 1), (8, 8, 1), (32, 32, 3), (62, 47, 1), (9, 13, 2)]


def slow(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 81 x places coefficients of one grey image, pixel by pixel as the formula says."""

    def thinned(plane: NDArray[np.float64], step: int, sigma: float) -> NDArray[np.float64]:
        rows, columns = (thinning(size, step, sigma).astype(np.float64) for size in plane.shape)
        return rows @ plane @ columns.T

    def modulus(plane: NDArray[np.float64], number: int) -> NDArray[np.float64]:
        wave = morlet(9, math.pi * number / 8, sigma=0.8, frequency=0.75 * math.pi, slant=0.5)
        wave = wave * 0.5 / (2 * math.pi * 0.8**2)
        padded = np.pad(plane, 4, mode="symmetric")
        found = np.empty(plane.shape)
        for row in range(plane.shape[0]):
            for column in range(plane.shape[1]):
                found[row, column] = abs((padded[row : row + 9, column : column + 9] * wave).sum())
        return found

    fine = [modulus(image, number) for number in range(8)]
    half = thinned(image, 2, 0.8)
    channels = [thinned(image, 4, 1.6), *(thinned(plane, 4, 1.6) for plane in fine)]
    channels += [thinned(modulus(half, number), 2, 0.8) for number in range(8)]
    for plane in fine:
        channels += [thinned(modulus(thinned(plane, 2, 0.8), number), 2, 0.8) for number in range(8)]
    return np.array(channels).reshape(81, -1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fast_coefficients_are_those_of_the_slow_twin(shape: tuple[int, int, int]) -> None:
    x = leaves(shape, records=17).x_train[15:]  # 17 is no multiple of the lanes
    front = Scattering(shape, 1 / 255, dims=10)

    found = front.coefficients(x)

    assert found.shape == (2, 81 * shape[2], math.ceil(shape[0] / 4) * math.ceil(shape[1] / 4))
    wanted = [np.concatenate([slow(image[:, :, channel] / 255) for channel in range(shape[2])]) for image in x]
    assert np.allclose(found, wanted, atol=2e-6)


def test_a_grey_wall_has_a_mean_and_nothing_else() -> None:
    found = Scattering((28, 28, 1), 1 / 255, dims=10).coefficients(np.full((1, 28, 28, 1), 51, np.uint8))

    assert np.allclose(found[0, 0], 0.2, atol=1e-6)
    assert np.abs(found[0, 1:]).max() < 1e-5


@pytest.fixture(scope="module")
def front() -> Scattering:
    return Scattering((28, 28, 1), 1 / 255, dims=60).fitted(leaves(records=300).x_train, 1 / 255)


def test_features_have_one_length_and_depend_on_no_other_record(front: Scattering) -> None:
    x = leaves(records=40, seed=2).x_train

    together = front.features(x)

    assert together.shape == (40, 60) and together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1 / 0.3, rtol=1e-5)
    for number in (0, 16, 39):
        assert np.array_equal(front.features(x[number : number + 1])[0], together[number])
    assert np.array_equal(front.features(x[::-1])[::-1], together)


def test_the_number_of_threads_changes_no_bit(front: Scattering) -> None:
    x = leaves(records=600, seed=2).x_train

    assert np.array_equal(mapped(front.features, x, (60,), 1), mapped(front.features, x, (60,), 3))


def test_a_client_computes_the_same_bits_from_the_set_up_alone(front: Scattering) -> None:
    x = leaves(records=20, seed=2).x_train

    theirs, rest = Scattering((28, 28, 1), 1 / 255, dims=60).told(front.payload() + b"more")

    assert rest == b"more"
    assert np.array_equal(theirs.features(x), front.features(x))
    assert theirs.payload() == front.payload()
    assert np.array_equal(pickle.loads(pickle.dumps(front)).features(x), front.features(x))


def test_the_scale_of_public_images_is_their_own() -> None:
    bright = leaves((8, 8, 1), records=100, input_scale=1 / 255)
    coarse = leaves((8, 8, 1), records=100, input_scale=1 / 16)
    front = Scattering((8, 8, 1), 1 / 16, dims=20)

    x = coarse.x_test
    one, other = (front.fitted(public.x_train, public.input_scale).features(x) for public in (bright, coarse))
    assert np.abs(np.abs(one) - np.abs(other)).mean() < 0.1  # but for the rounding of 16 levels and for signs
    assert front.coefficients(x).max() <= 1.01


def test_what_is_no_image_or_too_small_is_refused_and_a_way_out_named() -> None:
    for shape in [(400,), (28, 28), (7, 28, 1)]:
        with pytest.raises(InputError, match=r'8 x 8 or more, .* use front = "fourier"'):
            Scattering(shape, 1.0)


def test_more_dims_than_coefficients_are_refused() -> None:
    with pytest.raises(InputError, match=r"at most the 324 coefficients of front 'scattering' .* got 325"):
        Scattering((8, 8, 1), 1 / 16, dims=325)
    Scattering((8, 8, 1), 1 / 16, dims=324)


def test_more_samples_than_memory_are_refused() -> None:
    front = Scattering((224, 224, 3), 1 / 255)

    with pytest.raises(InputError, match=r"projection\.samples must be at most 352 for images of shape .* got 400"):
        front.fitted(np.broadcast_to(np.uint8(0), (400, 224, 224, 3)), 1 / 255)


def test_large_images_are_read_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def function(x: NDArray[np.uint8]) -> NDArray[np.float32]:
        sizes.append(len(x))
        return np.zeros((len(x), 1), np.float32)

    mapped(function, np.zeros((600, 2), np.uint8), (1,), 1, memory=2**20)
    mapped(function, np.zeros((600, 2), np.uint8), (1,), 1, memory=100)

    assert sizes[:3] == [64, 64, 64] and sizes[-3:] == [256, 256, 88]


def test_features_without_a_projection_are_refused() -> None:
    with pytest.raises(InputError, match="no projection yet"):
        Scattering((8, 8, 1), 1 / 16, dims=10).features(np.zeros((1, 8, 8, 1), np.uint8))
