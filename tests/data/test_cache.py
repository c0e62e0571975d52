from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sottovoce.data import Dataset, Property
from sottovoce.data.cache import unpacked


class Reader:
    """Count how often the source is really read."""

    def __init__(self, ids: bool = True) -> None:
        self.calls = 0
        self.ids = np.arange(4) if ids else None

    def __call__(self) -> Dataset:
        self.calls += 1
        x = np.arange(16, dtype=np.uint8).reshape(4, 2, 2, 1)
        known = {
            "East Asian": Property(np.array([0, 1, 2, 1], np.uint8), np.array([1], np.uint8)),
            "tall": Property(np.zeros(4, np.uint8), np.zeros(1, np.uint8)),
        }
        return Dataset("d", x, np.arange(4), x[:1], np.zeros(1, np.uint8), 4, 1 / 16, self.ids, properties=known)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"original")
    return path


@pytest.mark.parametrize("ids", [True, False])
def test_a_second_load_reads_the_copy_and_gives_the_same(source: Path, ids: bool) -> None:
    reader = Reader(ids)

    first, second = (unpacked("d", [source], reader) for _ in range(2))

    assert reader.calls == 1
    original = reader()
    for found in (first, second):
        np.testing.assert_array_equal(found.x_train, original.x_train)
        assert found.y_train.dtype == original.y_train.dtype
        assert (found.classes, found.input_scale, found.name) == (4, 1 / 16, "d")
        assert (found.ids is not None) == ids
        assert list(found.properties) == ["East Asian", "tall"]
        assert [part.tolist() for part in found.properties["East Asian"]] == [[0, 1, 2, 1], [1]]


def test_another_size_or_time_of_the_file_is_read_anew(source: Path) -> None:
    reader = Reader()
    unpacked("d", [source], reader)

    source.write_bytes(b"longer than before")
    unpacked("d", [source], reader)
    os.utime(source, ns=(1, 1))
    unpacked("d", [source], reader)

    assert reader.calls == 3


def test_writing_to_a_loaded_array_never_reaches_the_copy(source: Path) -> None:
    unpacked("d", [source], Reader())
    with pytest.raises(ValueError, match="read-only"):
        unpacked("d", [source], Reader()).x_train[:] = 0

    assert unpacked("d", [source], Reader()).x_train.max() == 15


@pytest.mark.parametrize("file", ["x_train.npy", "facts.json"])
@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\x00"])
def test_a_damaged_copy_is_made_anew(source: Path, cache: Path, file: str, damage: bytes) -> None:
    reader = Reader()
    unpacked("d", [source], reader)
    (copy,) = (cache / "unpacked").iterdir()
    (copy / file).write_bytes(damage)

    assert unpacked("d", [source], reader).x_train.max() == 15
    assert reader.calls == 2
    assert unpacked("d", [source], reader).x_train.max() == 15
    assert reader.calls == 2


def test_a_cache_that_cannot_be_written_is_no_error(source: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    reader = Reader()

    assert unpacked("d", [source], reader).records == 4
    assert unpacked("d", [source], reader).records == 4
    assert reader.calls == 2


def test_a_failed_copy_leaves_nothing_behind(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", full)

    assert unpacked("d", [source], Reader()).records == 4
    assert list((cache / "unpacked").iterdir()) == []
