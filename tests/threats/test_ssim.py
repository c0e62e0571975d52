from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.threats.measures import ssim

RNG = np.random.default_rng(3)


def slow(one: NDArray[np.float64], other: NDArray[np.float64], largest: float) -> float:
    """The paper's formula, window by window, with the weights and moments written out."""
    place = np.arange(11) - 5
    weights = np.exp(-(place[:, None] ** 2 + place[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = (0.01 * largest) ** 2, (0.03 * largest) ** 2
    found = []
    for channel in range(one.shape[2]):
        for top in range(one.shape[0] - 10):
            for left in range(one.shape[1] - 10):
                x = one[top : top + 11, left : left + 11, channel]
                y = other[top : top + 11, left : left + 11, channel]
                mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
                var_x, var_y = (weights * (x - mean_x) ** 2).sum(), (weights * (y - mean_y) ** 2).sum()
                both = (weights * (x - mean_x) * (y - mean_y)).sum()
                found.append(
                    (2 * mean_x * mean_y + c1) * (2 * both + c2) / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
                )
    return float(np.mean(found))


@pytest.mark.parametrize(("shape", "largest"), [((11, 11, 1), 1.0), ((28, 28, 1), 1.0), ((13, 17, 3), 255.0)])
def test_the_fast_similarity_is_the_papers_formula(shape: tuple[int, ...], largest: float) -> None:
    one = RNG.random(shape) * largest
    other = np.clip(one + 0.2 * largest * RNG.standard_normal(shape), 0, largest)

    assert ssim(one, other, largest=largest) == pytest.approx(slow(one, other, largest), abs=1e-10)


def test_an_image_is_wholly_like_itself_and_hardly_like_noise() -> None:
    image = RNG.random((28, 28, 1))

    assert ssim(image, image) == pytest.approx(1)
    assert abs(ssim(image, RNG.random((28, 28, 1)))) < 0.1
    assert ssim(image, 1 - image) < 0


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ((10, 28, 1), (10, 28, 1), "images of 11 x 11 or more"),
        ((28, 28, 1), (28, 27, 1), "two images of one shape"),
        ((28, 28), (28, 28), "two images of one shape"),
    ],
)
def test_images_that_cannot_be_compared_are_refused(one: tuple[int, ...], other: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ssim(np.zeros(one), np.zeros(other))
