from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import DataError
from sottovoce.data import adult, imdb
from sottovoce.data.features import held_out


@given(rows=st.lists(st.lists(st.integers(1, 4999), max_size=900), min_size=1, max_size=5))
def test_left_padding_agrees_with_its_obvious_twin(rows: list[list[int]]) -> None:
    tokens = np.array([token for row in rows for token in row], np.uint16)

    padded = imdb.left_pad(tokens, np.array([len(row) for row in rows], np.int64))

    expected = [[0] * (400 - len(row[-400:])) + row[-400:] for row in rows]
    assert padded.tolist() == expected


def test_lengths_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(DataError, match="3 tokens were given for rows of 4 in all"):
        imdb.left_pad(np.ones(3, np.uint16), np.array([2, 2]))


def _reviews(path: Path, reviews: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in reviews.items():
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_the_authors_archive_is_encoded_by_frequency_in_train(tmp_path: Path) -> None:
    path = _reviews(
        tmp_path / "aclImdb_v1.tar.gz",
        {
            "train/pos/0_9.txt": "Good, good FILM",
            "train/neg/0_2.txt": "bad<br />film film's",
            "train/neg/10_2.txt": "film",
            "train/unsup/0_0.txt": "bad bad bad bad",
            "test/pos/0_9.txt": "a good film",
            "test/neg/0_1.txt": "bad",
        },
    )

    found = imdb.read_archive(path)

    # film 3 times, good twice, then bad and film's once each in alphabetical order
    assert found.y_train.tolist() == [0, 1, 0]
    assert found.x_train[:, -4:].tolist() == [[1, 5, 3, 6], [1, 4, 4, 3], [0, 0, 1, 3]]
    assert found.x_test[:, -4:].tolist() == [[0, 0, 1, 5], [1, 2, 4, 3]]


def test_an_archive_without_reviews_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no reviews"):
        imdb.read_archive(_reviews(tmp_path / "a.tar.gz", {"README": "nothing"}))
    (tmp_path / "b.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="damaged"):
        imdb.read_archive(tmp_path / "b.tar.gz")


PERSON = "{age}, Private, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, {sex}, 0, 0, 40, Cuba, {income}"


def test_adult_originals_and_packed_table_give_the_same_features(tmp_path: Path) -> None:
    people = [
        PERSON.format(age=20 + number, sex=("Male", "Female")[number % 2], income=("<=50K", ">50K")[number % 3 == 0])
        for number in range(30)
    ]
    (tmp_path / "adult.data").write_text("\n".join(people[:20]) + "\n\n")
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + "".join(f"{person}.\n" for person in people[20:]))
    packed = tmp_path / "adult.csv"
    packed.write_text(",".join(adult._HEADER) + "\n" + "\n".join(person.replace(", ", ",") for person in people))

    original, other = adult.read_originals(tmp_path), adult.read_packed(packed)

    np.testing.assert_array_equal(original.x_train, other.x_train)
    np.testing.assert_array_equal(original.y_test, other.y_test)
    assert original.records == 24
    assert original.y_train.sum() + original.y_test.sum() == 10
    assert original.fitted_on == "schema"
    assert original.class_names == ("<=50K", ">50K")
    assert original.x_train[:, 0].min() >= (20 - 17) / (90 - 17)
    # 5 numbers, 83 words that UCI lists, of which these have 6; a missing occupation leaves none
    assert original.shape == (88,)
    assert set(original.x_train[:, 5:].sum(1)) == {6.0}


def test_a_torn_adult_row_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_text("1, 2, 3\n")
    (tmp_path / "adult.test").write_text("")

    with pytest.raises(DataError, match="a row has 3 fields, 15 were expected"):
        adult.read_originals(tmp_path)


@given(owners=st.lists(st.sampled_from("abcdefghijklmnopqrst"), min_size=5, max_size=50))
def test_held_out_owners_are_whole_and_do_not_depend_on_order(owners: list[str]) -> None:
    test = held_out(owners)

    out = {owner for owner, held in zip(owners, test, strict=True) if held}
    assert len(out) == round(0.2 * len(set(owners)))
    assert [owner in out for owner in owners] == test.tolist()
    assert held_out(owners[::-1]).tolist() == test.tolist()[::-1]
