from __future__ import annotations

import gzip
import io
import lzma
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import DataError
from sottovoce.data.files import read_idx, read_npz, read_table

reuses_folder = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def npz(compression: int = zipfile.ZIP_DEFLATED, **arrays: np.ndarray) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.lib.format.write_array(body, array, allow_pickle=True)
            archive.writestr(f"{name}.npy", body.getvalue())
    return target.getvalue()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_read_plain_and_gzipped(tmp_path: Path, suffix: str) -> None:
    images = np.arange(24).reshape(2, 3, 4)
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(idx(images)) if suffix else idx(images))

    assert read_idx(path).tolist() == images.tolist()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_npz_files_are_read_as_numpy_reads_them(tmp_path: Path, compression: int) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.arange(6).reshape(2, 3)), "c": np.zeros(0)}
    path = tmp_path / "some.npz"
    path.write_bytes(npz(compression, **arrays))

    found = read_npz(path, arrays)

    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@reuses_folder
@given(cut=st.integers(0, 39), gzipped=st.booleans())
def test_a_truncated_idx_file_is_a_data_error(tmp_path: Path, cut: int, gzipped: bool) -> None:
    whole = idx(np.arange(24).reshape(2, 3, 4))
    path = tmp_path / ("images.gz" if gzipped else "images")
    path.write_bytes(gzip.compress(whole)[:cut] if gzipped else whole[:cut])

    with pytest.raises(DataError):
        read_idx(path)


@reuses_folder
@given(data=st.data(), compression=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))
def test_a_damaged_npz_file_is_a_data_error_or_harmless(tmp_path: Path, data: st.DataObject, compression: int) -> None:
    whole = bytearray(npz(compression, x=np.arange(50, dtype=np.uint8)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "some.npz"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)

    try:
        found = read_npz(path, ["x"])["x"]
    except DataError as error:
        assert "some.npz" in str(error)
    else:
        # A flipped date or attribute of the archive changes nothing that matters.
        assert found.tobytes() == bytes(range(50))


def test_a_header_that_claims_a_gigabyte_allocates_next_to_nothing(tmp_path: Path) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1, np.uint8)) | {"shape": (1 << 30,)}
    body = io.BytesIO()
    np.lib.format.write_array_header_1_0(body, header)
    lying_npz = tmp_path / "lying.npz"
    with zipfile.ZipFile(lying_npz, "w") as archive:
        archive.writestr("x.npy", body.getvalue() + b"few bytes")
    lying_idx = tmp_path / "lying"
    lying_idx.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", 1 << 10, 1 << 10, 1 << 10) + b"few bytes")
    tracemalloc.start()

    with pytest.raises(DataError, match="truncated"):
        read_npz(lying_npz, ["x"])
    with pytest.raises(DataError, match="truncated"):
        read_idx(lying_idx)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


def test_an_idx_header_beyond_any_known_set_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_bytes(bytes((0, 0, 8, 4)) + b"\xff" * 16)

    with pytest.raises(DataError, match="announces"):
        read_idx(path)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(idx(np.zeros((2, 2))) + b"x")

    with pytest.raises(DataError, match="longer than"):
        read_idx(path)


def test_python_objects_in_an_npz_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    path.write_bytes(npz(x=np.array([{"a": 1}], dtype=object)))

    with pytest.raises(DataError, match="Python objects"):
        read_npz(path, ["x"])


def test_a_missing_array_is_named_with_those_needed(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    path.write_bytes(npz(x=np.zeros(1)))

    with pytest.raises(DataError, match="has no array y; it needs x, y"):
        read_npz(path, ["x", "y"])


@pytest.mark.parametrize("form", ["csv", "csv.xz", "zip"])
def test_tables_are_read_plain_xz_and_zipped(tmp_path: Path, form: str) -> None:
    text = b"a,b,c\r\n1,two,3\r\n4,five,6\r\n"
    path = tmp_path / f"table.{form}"
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("folder/table.csv", text)
            archive.writestr("folder/IDS_mapping.csv", b"x")
    else:
        path.write_bytes(lzma.compress(text) if form == "csv.xz" else text)

    assert list(read_table(path, ["c", "b"])) == [("3", "two"), ("6", "five")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", "line 2 has 1 fields"),
        (b"", "no column a"),
        (b"a,b\n\xff\xfe,1\n", "damaged"),
        (b"b\n1\n", "no column a"),
    ],
)
def test_a_torn_table_is_a_data_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)

    with pytest.raises(DataError, match=message):
        list(read_table(path, ["a"]))


def test_a_truncated_xz_table_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.xz"
    path.write_bytes(lzma.compress(b"a,b\n" + b"1,2\n" * 1000)[:-20])

    with pytest.raises(DataError, match="damaged"):
        list(read_table(path, ["a"]))
