from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import DataError
from sottovoce.data.cifar import BINARY, PICKLED, _parse_pickle, read_archive, read_folder


def _string(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Write a batch with the opcodes that Python 2 used, as in the published files."""
    shape = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in pixels.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\n("
        + _string(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + _string(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _string(b"b") + b"tR"
    array += b"(K\x01" + shape + dtype + b"\x89" + _string(pixels.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes((label,)) for label in labels) + b"e"
    return b"\x80\x02}(" + _string(b"data") + array + _string(b"labels") + numbers + b"u."


def python3_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    return pickle.dumps({b"data": pixels, b"labels": labels}, protocol=3)


def binary(pixels: np.ndarray, labels: list[int]) -> bytes:
    return np.column_stack([np.array(labels, np.uint8), pixels]).tobytes()


def batches(rng: np.random.Generator) -> list[tuple[np.ndarray, list[int]]]:
    return [(rng.integers(0, 256, (4, 3072), np.uint8), rng.integers(0, 10, 4).tolist()) for _ in range(6)]


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(("names", "write"), [(BINARY, binary), (PICKLED, python2_pickle), (PICKLED, python3_pickle)])
def test_all_published_forms_give_the_same_images(tmp_path: Path, archived: bool, names: tuple, write) -> None:  # type: ignore[no-untyped-def,type-arg]
    written = batches(np.random.default_rng(1))
    path = tmp_path / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, batch in zip(names, written, strict=True):
            body = write(*batch)
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(body)
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))

    found = read_archive(path) if archived else read_folder(tmp_path)

    assert found.x_train.shape == (20, 32, 32, 3)
    assert found.y_test.tolist() == written[5][1]
    # The third record of the second batch: green is its second plane.
    green = written[1][0][2].reshape(3, 32, 32)[1]
    np.testing.assert_array_equal(found.x_train[6, :, :, 1], green)


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_runs_no_code(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "owned"
    body = pickle.dumps({b"data": Hostile(marker), b"labels": [1]}, protocol=protocol)

    with pytest.raises(DataError, match="was refused"):
        _parse_pickle(tmp_path / "data_batch_1", body)

    assert not marker.exists()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_torn_pickle_is_a_data_error_or_a_batch(tmp_path: Path, data: st.DataObject) -> None:
    body = bytearray(python2_pickle(np.zeros((1, 3072), np.uint8), [3]))
    # The long run of pixels is of no interest: change the opcodes before and after it.
    place = data.draw(st.one_of(st.integers(0, 200), st.integers(len(body) - 30, len(body) - 1)))
    body[place] = data.draw(st.integers(0, 255))

    try:
        x, y = _parse_pickle(tmp_path / "batch", bytes(body))
    except DataError:
        return
    assert x.shape[1:] == (32, 32, 3)
    assert len(x) == len(y)


def test_half_a_record_is_refused(tmp_path: Path) -> None:
    for name in BINARY:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(3072))

    with pytest.raises(DataError, match="no whole number of 3073-byte records"):
        read_folder(tmp_path)


def test_a_truncated_archive_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(BINARY[0])
        member.size = 3073
        archive.addfile(member, io.BytesIO(os.urandom(3073)))
    path.write_bytes(path.read_bytes()[:1500])

    with pytest.raises(DataError):
        read_archive(path)
