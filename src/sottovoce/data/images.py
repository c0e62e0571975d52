"""Read the image sets: digits, MNIST and Fashion-MNIST, packed CIFAR-10, and the two sets of faces."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import HAS, HAS_NOT, UNKNOWN, Dataset, Property
from sottovoce.data.features import held_out
from sottovoce.data.files import damaged, read_idx, read_npz

IDX: Final = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
# Both sets use the same file names; their first labels tell them apart.
_RACES: Final = ("Asian", "Black", "Indian", "White")  # among the attributes of LFW
_FIRST_LABELS: Final = {"mnist": [5, 0, 4, 1, 9, 2, 1, 3], "fashion-mnist": [9, 0, 0, 3, 0, 2, 7, 2]}


def read_digits() -> Dataset:
    """Read the 1797 digits that come with the package; a fifth of them are test records.

    They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998, UCI
    Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0), in the order of scikit-learn's copy.
    """
    arrays = read_npz(Path(__file__).with_name("digits.npz"), ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    test = held_out([str(row) for row in range(len(y))])
    return Dataset("digits", x[~test], y[~test], x[test], y[test], classes=10, input_scale=1 / 16)


def read_images(name: str, path: Path, *, classes: int) -> Dataset:
    """Read a packed npz file with x_train, y_train, x_test, y_test."""
    arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    x_train, x_test = (_images(path, arrays[part]) for part in ("x_train", "x_test"))
    return Dataset(name, x_train, arrays["y_train"], x_test, arrays["y_test"], classes=classes, input_scale=1 / 255)


def read_idx_folder(name: str, folder: Path) -> Dataset:
    """Read the four original files of MNIST or Fashion-MNIST, gzipped or plain."""
    paths = [folder / file if (folder / file).exists() else folder / f"{file}.gz" for file in IDX]
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    for other, labels in _FIRST_LABELS.items():
        if other != name and y_train[: len(labels)].tolist() == labels:
            raise DataError(f"{folder} holds {other}, not {name}; give each a folder of its own name")
    x_train, x_test = _images(paths[0], x_train), _images(paths[2], x_test)
    return Dataset(name, x_train, y_train, x_test, y_test, classes=10, input_scale=1 / 255)


def read_lfw(path: Path) -> Dataset:
    """Read packed faces; the task is gender, the owner of a record is the person, and no person is in both parts.

    Where the file has attributes, the races among them are properties.
    """
    arrays = read_npz(path, ("x", "male", "name"), ("attr", "attr_names", "has_attr"))
    with damaged(path):
        people = [name.split("/")[0] for name in _names(path, arrays["name"])]
    x, y = _images(path, arrays["x"]), arrays["male"]
    if not len(people) == len(x) == len(y):
        raise DataError(f"{path} has {len(x)} faces, {len(y)} labels and {len(people)} names")
    test = held_out(people)
    numbers = np.unique(people, return_inverse=True)[1].astype(np.int64)
    return Dataset(
        "lfw",
        x[~test],
        y[~test],
        x[test],
        y[test],
        classes=2,
        input_scale=1 / 255,
        ids=numbers[~test],
        properties={name: Property(known[~test], known[test]) for name, known in _lfw_races(path, arrays).items()},
    )


def read_fairface(path: Path) -> Dataset:
    """Read packed faces; the task is gender, and the validation part serves as test records.

    Where the file has races, each is a property.
    """
    races = ("race_names", "race_train", "race_val")
    arrays = read_npz(path, ("x_train", "male_train", "x_val", "male_val"), races)
    x_train, x_test = (_images(path, arrays[part]) for part in ("x_train", "x_val"))
    names = _names(path, arrays["race_names"]) if all(part in arrays for part in races) else []
    return Dataset(
        "fairface",
        x_train,
        arrays["male_train"],
        x_test,
        arrays["male_val"],
        classes=2,
        input_scale=1 / 255,
        properties={
            name: Property(*((arrays[part] == number).astype(np.uint8) for part in races[1:]))
            for number, name in enumerate(names)
        },
    )


def _lfw_races(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.uint8]]:
    """Return each race: a face has it where that attribute is set, has it not where another one is and it is not.

    An attribute is set where its classifier was sure, so that one which is not set says nothing by itself.
    """
    if not all(part in arrays for part in ("attr", "attr_names", "has_attr")):
        return {}
    names = _names(path, arrays["attr_names"])
    with damaged(path):
        bits = np.unpackbits(arrays["attr"], axis=1)[:, : len(names)].astype(np.bool_)
        sure = {race: bits[:, names.index(race)] & arrays["has_attr"] for race in _RACES}
    one = sum(known.astype(np.uint8) for known in sure.values()) == 1  # two races at once are an error of theirs
    told: dict[str, NDArray[np.uint8]] = {}
    for race, known in sure.items():
        told[race] = np.where(one, np.where(known, HAS, HAS_NOT), UNKNOWN).astype(np.uint8)
    return told


def _names(path: Path, joined: NDArray[np.uint8]) -> list[str]:
    with damaged(path):
        return bytes(joined).decode("utf-8").split("\n")


def _images(path: Path, x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Give grey images the channel axis that colour images have."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise DataError(f"{path}: images must be uint8 of 3 or 4 axes, got {x.dtype} of shape {x.shape}")
    return x[..., np.newaxis] if x.ndim == 3 else x
