"""Which sources are the same records, and a source that is kept closed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.errors import DataError, PrivacyError
from sottovoce.data import Origin, closed, load, origin, read_like, table_dataset
from sottovoce.data.images import IDX


def write(path: Path) -> Path:
    """Write a small data set of 28 x 28 images."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 255, (30, 28, 28), np.uint8), np.arange(30) % 10
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return path


def test_a_known_set_is_itself_by_name_even_if_it_is_not_on_this_machine(tmp_path: Path) -> None:
    assert origin("fashion-mnist", tmp_path).same_as(origin("fashion-mnist"))
    assert origin("digits").same_as(origin("digits"))
    assert not origin("digits").same_as(origin("fashion-mnist"))


def test_a_file_is_itself_by_any_path_and_by_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mine.npz")
    (tmp_path / "symbolic.npz").symlink_to(tmp_path / "mine.npz")
    os.link(tmp_path / "mine.npz", tmp_path / "hard.npz")
    write(tmp_path / "other.npz")
    monkeypatch.chdir(tmp_path)
    mine = origin("./mine.npz")

    for name in ("mine.npz", str(tmp_path / "mine.npz"), "symbolic.npz", "hard.npz"):
        assert origin(name).same_as(mine) and mine.same_as(origin(name)), name
    assert origin("mine.npz", tmp_path).same_as(mine)
    assert not origin("other.npz").same_as(mine)


def test_a_file_that_is_not_there_is_itself_all_the_same(tmp_path: Path) -> None:
    assert origin(str(tmp_path / "gone.npz")).same_as(origin("gone.npz", tmp_path))
    assert not origin(str(tmp_path / "gone.npz")).same_as(origin("lost.npz", tmp_path))


def test_a_file_with_the_name_of_a_known_set_is_that_set(tmp_path: Path) -> None:
    copy = origin(str(write(tmp_path / "fashion_mnist.npz")))

    assert copy.same_as(origin("fashion-mnist")) and origin("fashion-mnist").same_as(copy)
    assert not copy.same_as(origin("mnist"))


def test_two_known_sets_whose_files_have_one_name_are_told_apart_by_the_files_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNIST and Fashion-MNIST are published under the same file names: in one folder they would be one data set."""
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path))
    for folder in ("mnist", "fashion-mnist", "both"):
        (tmp_path / folder).mkdir()
        for name in IDX:
            (tmp_path / folder / f"{name}.gz").touch()

    assert not origin("mnist").same_as(origin("fashion-mnist"))
    assert origin("mnist", tmp_path / "both").same_as(origin("fashion-mnist", tmp_path / "both"))


def test_a_closed_source_is_refused_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.npz").write_bytes(b"this is no npz file, and opening it would say so")
    other = write(tmp_path / "other.npz")
    monkeypatch.chdir(tmp_path)

    with closed(origin("mine.npz")):
        with pytest.raises(PrivacyError, match=r"'\./mine\.npz' is the clients' own data, which stays closed"):
            load("./mine.npz")
        assert load(str(other)).records == 30

    with pytest.raises(DataError, match=r"mine\.npz"):
        load("mine.npz")


def test_a_closed_known_set_is_refused_by_name_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path))
    path = write(tmp_path / "fashion_mnist.npz")

    with closed(origin("fashion-mnist")):
        for name in ("fashion-mnist", str(path)):
            with pytest.raises(PrivacyError, match="stays closed"):
                load(name)
    with closed(origin("digits")), pytest.raises(PrivacyError, match="stays closed"):
        load("digits")


def test_a_closed_table_is_not_read_like_another_either(tmp_path: Path) -> None:
    known = table_dataset({"age": [1, 2, 3, 4, 5], "sick": [0, 1, 0, 1, 0]}, label="sick")
    (tmp_path / "mine.csv").write_text("age,sick\n7,0\n8,1\n", encoding="utf-8")

    with closed(Origin("mine.csv", (tmp_path / "mine.csv",))), pytest.raises(PrivacyError, match="stays closed"):
        read_like(known, "mine.csv", tmp_path)

    assert read_like(known, "mine.csv", tmp_path).records == 2
