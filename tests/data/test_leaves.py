from __future__ import annotations

import hashlib

import numpy as np
import pytest

from sottovoce.core.errors import DataError
from sottovoce.data import describe, describe_leaves, fetch, leaves, load
from sottovoce.data.catalogue import SOURCES
from sottovoce.data.dead_leaves import draw_leaves


@pytest.mark.parametrize("shape", [(28, 28, 1), (8, 8, 1), (32, 32, 3), (62, 47, 1)])
def test_leaves_come_in_any_shape_as_images_from_black_to_white(shape: tuple[int, ...]) -> None:
    drawn = leaves(shape, classes=4, records=200)

    assert drawn.x_train.shape == (200, *shape) and drawn.x_train.dtype == np.uint8
    assert drawn.x_train.min() == 0 and drawn.x_train.max() > 240
    assert set(drawn.y_train) == {0, 1, 2, 3}
    # No image is empty, and most have ground that no leaf covers.
    assert (drawn.x_train.reshape(200, -1).max(1) > 0).mean() > 0.95
    assert 0.3 < (drawn.x_train == 0).mean() < 0.9


def test_the_seed_decides_and_more_images_leave_the_first_as_they_were() -> None:
    few, labels = draw_leaves(20, (12, 12, 1), 10, seed=1)
    many, more = draw_leaves(700, (12, 12, 1), 10, seed=1)
    other, _ = draw_leaves(20, (12, 12, 1), 10, seed=2)

    assert np.array_equal(few, many[:20]) and np.array_equal(labels, more[:20])
    assert not np.array_equal(few, other)


def test_the_images_are_the_published_ones() -> None:
    # A projection that was fitted on them depends on them, and so does every published result.
    stored = leaves(records=50).x_train

    assert hashlib.sha256(stored.tobytes()).hexdigest()[:16] == "76820440d52bcdda"


def test_a_network_sees_values_up_to_one_whatever_the_scale_of_the_stored_ones() -> None:
    digits = leaves((8, 8, 1), records=200, input_scale=1 / 16)
    floats = leaves((8, 8, 1), records=200, input_scale=1.0)

    assert digits.x_train.dtype == np.uint8 and digits.x_train.max() == 16
    assert floats.x_train.dtype == np.float32 and 0.9 < floats.x_train.max() <= 1
    assert np.abs(digits.x_train / 16 - floats.x_train).max() <= 1 / 32 + 1e-6


def test_the_label_decides_the_uppermost_leaf() -> None:
    """A linear model on leaves of two classes learns more than chance: an ellipse leaves its corners free."""
    drawn = leaves((16, 16, 1), classes=2, records=4000)
    x = np.column_stack([drawn.x_train.reshape(len(drawn.y_train), -1) / 255, np.ones(len(drawn.y_train))])
    area = (drawn.x_train > 0).reshape(len(x), -1).mean(1)

    # A rectangle covers 4 / pi times the area of an ellipse; means of 2000 images each, more than 4 standard errors.
    difference = area[drawn.y_train == 1].mean() - area[drawn.y_train == 0].mean()
    assert difference > 4 * area.std() * np.sqrt(2 / 2000) / 2


def test_leaves_are_a_data_set_that_needs_no_file() -> None:
    loaded = load("leaves")
    listed = next(entry for entry in describe() if entry.name == "leaves")

    assert (loaded.records, len(loaded.y_test)) == SOURCES["leaves"].records == (listed.train, listed.test)
    assert (loaded.shape, loaded.classes) == (listed.shape, listed.classes)
    assert listed.where == "drawn"
    with pytest.raises(DataError, match="drawn from a seed, so there is nothing to fetch"):
        fetch("leaves")


def test_leaves_are_told_as_what_they_are_and_only_images() -> None:
    assert describe_leaves(4000, 7) == "synthetic: dead leaves, seed 7, 4,000 images"
    with pytest.raises(DataError, match=r"records of shape \(400,\) are none"):
        leaves((400,))
