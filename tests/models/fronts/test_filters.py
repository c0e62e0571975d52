from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.models.fronts.filters import gaussian, mirrored, morlet, thinning


@given(angle=st.floats(0, np.pi), sigma=st.floats(0.5, 2))
def test_a_wave_sees_nothing_where_nothing_changes(angle: float, sigma: float) -> None:
    wave = morlet(9, angle, sigma=sigma, frequency=2.0, slant=0.5)

    assert abs(wave.sum()) < 1e-9
    assert np.allclose(wave, wave[::-1, ::-1].conj())


def test_a_wave_answers_to_stripes_across_its_direction() -> None:
    columns = np.arange(41)
    stripes = np.cos(0.75 * np.pi * columns)[None, :] * np.ones((41, 1))
    along, across = (
        abs((morlet(41, angle, sigma=0.8, frequency=0.75 * np.pi, slant=0.5) * stripes).sum())
        for angle in (0, np.pi / 2)
    )

    assert along > 20 * across


@pytest.mark.parametrize(("length", "step"), [(28, 4), (28, 2), (8, 4), (47, 4), (14, 2), (9, 2)])
def test_thinning_keeps_a_constant_and_the_middle_of_a_slope(length: int, step: int) -> None:
    matrix = thinning(length, step, 1.0)

    assert matrix.shape == (-(-length // step), length)
    assert np.allclose(matrix.sum(1), 1, atol=1e-6)
    places = matrix @ np.arange(length)
    inside = slice(2, -3)
    assert np.allclose(places[inside], (step * (np.arange(len(places)) + 0.5) - 0.5)[inside], atol=0.05)


@given(length=st.integers(1, 9), margin=st.integers(0, 30))
def test_mirrored_is_numpys_symmetric_padding(length: int, margin: int) -> None:
    assert np.array_equal(mirrored(length, margin), np.pad(np.arange(length), margin, mode="symmetric"))


def test_a_gaussian_sums_to_one_and_is_the_same_from_all_sides() -> None:
    window = gaussian(5, 0.8)

    assert np.isclose(window.sum(), 1)
    assert np.allclose(window, window.T) and np.allclose(window, window[::-1])
