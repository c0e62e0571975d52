"""Shifted and mirrored copies of images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.core.errors import InputError
from sottovoce.data import Dataset, Property, augmented, load


def images(count: int = 40, height: int = 20, width: int = 10) -> Dataset:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    y = np.arange(count, dtype=np.uint8) % 5
    known = Property(y.copy() % 2, np.zeros(2, np.uint8))
    return Dataset("own", x, y, x[:2], y[:2], classes=5, ids=np.arange(count), properties={"odd": known})


def copies_of(image: np.ndarray) -> dict[bytes, tuple[int, int, bool]]:
    """Make every copy that may be, the slow way: pad with the edge, cut out, mirror."""
    height, width, _ = image.shape
    far_down, far_right = height // 10, width // 10
    padded = np.pad(image, ((far_down, far_down), (far_right, far_right), (0, 0)), mode="edge")
    found = {}
    for down in range(-far_down, far_down + 1):
        for right in range(-far_right, far_right + 1):
            cut = padded[far_down - down :, far_right - right :][:height, :width]
            found[cut.tobytes()] = (down, right, False)
            found[np.ascontiguousarray(cut[:, ::-1]).tobytes()] = (down, right, True)
    return found


def test_copies_are_shifted_by_at_most_a_tenth_and_mirrored() -> None:
    data = images()
    more = augmented(data, 4, np.random.default_rng(2))

    assert more.records == 160
    assert np.array_equal(more.x_train[:40], data.x_train), "the originals come first"
    seen = {copies_of(data.x_train[record % 40])[more.x_train[record].tobytes()] for record in range(40, 160)}
    assert {down for down, _, _ in seen} == {-2, -1, 0, 1, 2}
    assert {right for _, right, _ in seen} == {-1, 0, 1}
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def test_a_copy_has_label_owner_and_properties_of_its_original() -> None:
    data = images()
    more = augmented(data, 3, np.random.default_rng(2))

    assert more.y_train.tolist() == data.y_train.tolist() * 3
    assert more.ids is not None and more.ids.tolist() == list(range(40)) * 3
    assert more.properties["odd"].train.tolist() == data.properties["odd"].train.tolist() * 3
    assert more.x_test is data.x_test


def test_once_is_the_data_itself_and_only_images_have_copies() -> None:
    data = images()
    table = replace(data, x_train=np.zeros((40, 3), np.float32), x_test=np.zeros((2, 3), np.float32))

    assert augmented(data, 1, np.random.default_rng(1)) is data
    with pytest.raises(InputError, match=r"\[data\] augment shifts and mirrors images, and own has none"):
        augmented(table, 2, np.random.default_rng(1))


def test_clients_share_the_copies_and_records_that_are_set_aside_have_none() -> None:
    tables = {"source": "digits", "clients": 20, "augment": 3, "held_out": 0.5}
    parts = gather(small(data=tables))
    train = load("digits").records

    assert parts.dataset.records == 3 * (train - parts.splits["held_out"].records)
    assert parts.partition.total == parts.dataset.records
    again = gather(small(data=tables))
    assert np.array_equal(again.dataset.x_train, parts.dataset.x_train)
    other = gather(small(data=tables, experiment={"seed": 2}))
    assert not np.array_equal(other.dataset.x_train, parts.dataset.x_train)


def test_faces_in_colour_are_taken_before_grey_ones(tmp_path: Path) -> None:
    names = np.frombuffer(b"\n".join(f"P{number}/P{number}_1.jpg".encode() for number in range(12)), np.uint8)
    keys = {"male": np.arange(12, dtype=np.uint8) % 2, "name": names}
    np.savez(tmp_path / "lfw_gray62x47.npz", x=np.zeros((12, 62, 47), np.uint8), **keys)
    assert load("lfw", tmp_path).shape == (62, 47, 1)

    np.savez(tmp_path / "lfw_rgb62x47.npz", x=np.zeros((12, 62, 47, 3), np.uint8), **keys)
    assert load("lfw", tmp_path).shape == (62, 47, 3)
