from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import InputError
from sottovoce.models.fronts import make_front
from sottovoce.models.fronts.fourier import Fourier
from sottovoce.models.fronts.hashed import Hashed, presence

MASK = 2**64 - 1


def test_products_of_fourier_features_are_the_gaussian_kernel() -> None:
    """With 40,000 features the error of a product has standard deviation 0.005 / 0.09; false alarm below 1e-6."""
    x = default_rng(1).standard_normal((12, 5)).astype(np.float32)
    front = Fourier((5,), dims=40_000, bandwidth=2.0)

    found = front.features(x).astype(np.float64)

    distance = ((x[:, None] - x[None]) ** 2).sum(2)
    assert np.abs(0.3**2 * found @ found.T - np.exp(-distance / (2 * 2.0**2))).max() < 0.03


def test_columns_are_standardised_before_they_are_compared() -> None:
    x = default_rng(1).random((9, 3)).astype(np.float32)
    scaled = Fourier((3,), dims=50, centre=(0.5, 0.0, 0.5), spread=(0.25, 1.0, 2.0))

    z = (x - np.float32([0.5, 0, 0.5])) / np.float32([0.25, 1, 2])

    assert np.allclose(scaled.features(x), Fourier((3,), dims=50).features(z), atol=1e-4)


def test_fourier_features_follow_from_the_seed_and_nothing_travels() -> None:
    x = default_rng(1).random((4, 6)).astype(np.float32)
    front = Fourier((6,), dims=30, seed=3)

    assert np.array_equal(front.features(x), Fourier((6,), dims=30, seed=3).features(x))
    assert not np.array_equal(front.features(x), Fourier((6,), dims=30, seed=4).features(x))
    assert front.payload() == b"" and front.told(b"rest") == (front, b"rest")
    assert np.linalg.norm(front.features(x), axis=1).max() <= np.sqrt(2) / 0.3 + 1e-5


def slow_counts(tokens: list[int], ngrams: int, seed: int, boxes: int) -> list[int]:
    """Return the signed counts of all n-grams, with Python's own integers."""

    def mixed(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        return word ^ (word >> 31)

    counts = [0] * boxes
    for start in range(len(tokens)):
        for stop in range(start + 1, min(start + ngrams, len(tokens)) + 1):
            if 0 in tokens[start:stop]:
                continue
            word = mixed(seed + 0x9E3779B97F4A7C15)
            for token in tokens[start:stop]:
                word = mixed((word + token * 0x9E3779B97F4A7C15) & MASK)
            counts[(word >> 32) * boxes >> 32] += 1 if word & 1 else -1
    return counts


@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_hashed_features_are_those_of_the_slow_twin(ngrams: int) -> None:
    x = default_rng(2).integers(0, 6, (5, 12)).astype(np.uint16)
    front = Hashed((12,), dims=40, ngrams=ngrams, seed=7)

    found = front.features(x)

    for row, features in zip(x.tolist(), found, strict=True):
        counts = np.array(slow_counts(row, ngrams, 7, 40), np.float64)
        wanted = np.sign(counts) * np.sqrt(np.abs(counts))
        assert np.allclose(features, wanted / np.linalg.norm(wanted) / 0.3, rtol=1e-5)


def test_where_padding_lies_does_not_matter_and_order_does() -> None:
    front = Hashed((4,), dims=500, ngrams=2)

    left, right, turned = front.features(np.array([[0, 0, 5, 9], [5, 9, 0, 0], [0, 0, 9, 5]], np.uint16))

    assert np.array_equal(left, right)
    assert not np.array_equal(left, turned)
    assert not front.features(np.zeros((1, 4), np.uint16)).any()


def test_boxes_and_signs_are_used_evenly() -> None:
    """Of 5000 tokens in 100 boxes each box gets 50 on average; beyond 5 standard deviations once in 10^4 runs."""
    tokens = np.arange(1, 5001, dtype=np.uint16)[:, None]
    found = Hashed((1,), dims=100, ngrams=1).features(tokens)

    used = np.count_nonzero(found, axis=0)
    assert abs(used - 50).max() < 5 * np.sqrt(50)
    assert abs((found > 0).sum() - 2500) < 5 * np.sqrt(1250)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "reason"),
    [
        ("fourier", (28, 28, 1), "uint8", 'reads rows of numbers, .* use front = "scattering"'),
        ("fourier", (400,), "uint16", 'these records are rows of token ids; use front = "hashed"'),
        ("hashed", (28, 28, 1), "uint8", 'reads rows of token ids, .* use front = "scattering"'),
        ("hashed", (88,), "float32", 'these records are rows of numbers; use front = "fourier"'),
        ("scattering", (88,), "float32", r"reads images .* shape \(88,\)"),
        ("scatering", (28, 28, 1), "uint8", "front has no 'scatering'; did you mean 'scattering'"),
        (
            "zzzzzz",
            (28, 28, 1),
            "uint8",
            "known: scattering, gabor, fourier, hashed, encoder, none, or module:function",
        ),
        ("gabor", (28, 28, 1), "uint8", "fills w_0"),
    ],
)
def test_a_front_that_does_not_fit_the_records_is_refused(
    name: str, shape: tuple[int, ...], dtype: str, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        make_front(name, shape, dtype)


def test_presence_tells_which_words_occur_and_not_how_often() -> None:
    texts = np.array([[0, 1, 7, 7, 9], [1, 2, 9, 7, 9], [0, 0, 0, 1, 2]], np.uint16)

    found = presence(texts)
    assert found.shape == (3, 5000) and (found[0] == found[1]).all() and not found[2].any()
    assert np.flatnonzero(found[0]).tolist() == [7, 9]
    assert np.linalg.norm(found[0]) == pytest.approx(1 / 0.3)
