from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.errors import DataError
from sottovoce.data import HAS, HAS_NOT, UNKNOWN
from sottovoce.data.images import read_fairface, read_lfw


def joined(*names: str) -> np.ndarray:
    return np.frombuffer("\n".join(names).encode(), np.uint8)


def fairface(path: Path, **more: np.ndarray) -> Path:
    faces = {"x_train": np.zeros((3, 8, 8), np.uint8), "x_val": np.zeros((2, 8, 8), np.uint8)}
    np.savez(path, male_train=np.array([0, 1, 0], np.uint8), male_val=np.array([1, 0], np.uint8), **faces, **more)
    return path


def test_each_race_of_fairface_is_a_property(tmp_path: Path) -> None:
    races = {"race_train": np.array([1, 0, 1], np.uint8), "race_val": np.array([0, 1], np.uint8)}

    found = read_fairface(fairface(tmp_path / "faces.npz", race_names=joined("White", "Black"), **races))

    assert {name: [part.tolist() for part in known] for name, known in found.properties.items()} == {
        "White": [[0, 1, 0], [1, 0]],
        "Black": [[1, 0, 1], [0, 1]],
    }


def test_faces_without_races_are_read_as_ever(tmp_path: Path) -> None:
    found = read_fairface(fairface(tmp_path / "faces.npz"))

    assert found.properties == {}
    assert found.y_train.tolist() == [0, 1, 0]


def lfw(path: Path, attributes: list[str], told: list[list[int]]) -> Path:
    faces = 12
    rows = np.resize(np.array(told, np.uint8), (faces, len(attributes)))
    np.savez(
        path,
        x=np.zeros((faces, 8, 8), np.uint8),
        male=np.arange(faces, dtype=np.uint8) % 2,
        name=joined(*(f"Person_{number}/Person_{number}_0001.jpg" for number in range(faces))),
        attr=np.packbits(rows, axis=1),
        attr_names=joined(*attributes),
        has_attr=np.arange(faces) != 1,
    )
    return path


RACES = ["Asian", "Black", "Indian", "White"]


def test_a_face_of_lfw_has_not_a_race_only_where_another_one_is_sure(tmp_path: Path) -> None:
    told = [[0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]

    black = read_lfw(lfw(tmp_path / "faces.npz", [*RACES, "Smiling"], told)).properties["Black"]

    # Person 1 has no attributes; person 3 has no race, person 4 has two.
    first = [HAS, UNKNOWN, HAS_NOT, UNKNOWN, UNKNOWN, HAS_NOT]
    every = np.array([*first, HAS, HAS, *first[2:]])
    assert np.bincount(np.concatenate(black), minlength=3).tolist() == np.bincount(every, minlength=3).tolist()


def test_attributes_without_a_race_are_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="damaged or not what its name says"):
        read_lfw(lfw(tmp_path / "faces.npz", ["Asian", "Smiling"], [[0, 1]]))
