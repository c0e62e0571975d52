from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import DataError
from sottovoce.data import balance
from sottovoce.data.hospital import _FIELDS, DIAGNOSES, DRUGS, icd9, read_diabetes130

LEAKS = ("readmitted",)


def row(encounter: int, patient: int, **changes: str) -> dict[str, str]:
    usual = {
        "gender": "Female",
        "age": "[70-80)",
        "admission_type_id": "1",
        "discharge_disposition_id": "1",
        "num_medications": "10",
        "time_in_hospital": "3",
        **dict.fromkeys(DIAGNOSES, "?"),
        **dict.fromkeys(DRUGS, "No"),
        **dict.fromkeys(LEAKS, "0"),
    }
    return usual | {"encounter_id": str(encounter), "patient_nbr": str(patient)} | changes


def table(path: Path, rows: list[dict[str, str]]) -> Path:
    columns = [*_FIELDS, *DIAGNOSES, *DRUGS, *LEAKS]
    lines = [",".join(columns), *(",".join(entry[name] for name in columns) for entry in rows)]
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def patients(count: int, **changes: str) -> list[dict[str, str]]:
    return [row(number, number, **changes) for number in range(1, count + 1)]


def test_only_the_first_encounter_of_a_patient_counts(tmp_path: Path) -> None:
    rows = patients(10)
    rows.insert(0, row(99, 3, discharge_disposition_id="11"))

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    assert len(found.y_train) + len(found.y_test) == 10
    assert found.y_train.sum() + found.y_test.sum() == 0


@pytest.mark.parametrize(
    "changes", [{"admission_type_id": "3"}, {"admission_type_id": "4"}, {"diag_2": "648"}, {"diag_1": "650.1"}]
)
def test_elective_newborn_and_pregnant_admissions_are_left_out(tmp_path: Path, changes: dict[str, str]) -> None:
    rows = [*patients(10), row(11, 11, **changes)]

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    assert len(found.y_train) + len(found.y_test) == 10


@pytest.mark.parametrize("changes", [{"age": "[0-10)"}, {"age": "[10-20)"}, {"time_in_hospital": "2"}])
def test_minors_and_stays_under_three_days_are_left_out(tmp_path: Path, changes: dict[str, str]) -> None:
    rows = [*patients(10), row(11, 11, **changes)]

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    assert len(found.y_train) + len(found.y_test) == 10


def test_the_youngest_adults_and_stays_of_three_days_are_kept(tmp_path: Path) -> None:
    rows = [*patients(10), row(11, 11, age="[20-30)", time_in_hospital="3"), row(12, 12, age="[90-100)")]

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    assert len(found.y_train) + len(found.y_test) == 12


def test_a_patient_whose_first_stay_was_short_is_not_represented_by_a_later_one(tmp_path: Path) -> None:
    rows = [*patients(10), row(11, 11, time_in_hospital="1"), row(12, 11, time_in_hospital="9")]

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    assert len(found.y_train) + len(found.y_test) == 10


@pytest.mark.parametrize(("disposition", "died"), [("11", 1), ("19", 1), ("20", 1), ("21", 1), ("1", 0), ("13", 0)])
def test_death_in_hospital_is_the_label(tmp_path: Path, disposition: str, died: int) -> None:
    found = read_diabetes130(table(tmp_path / "d.csv", patients(10, discharge_disposition_id=disposition)))

    assert set(found.y_train.tolist()) == {died}


def test_features_are_those_of_the_classification_whoever_has_them(tmp_path: Path) -> None:
    rows = [*patients(300, diag_1="428", diag_2="8", diag_3="250.43", insulin="Up")]

    found = read_diabetes130(table(tmp_path / "d.csv", rows))

    # age, medications, 3 genders, 4 admission types, 3 doses of 23 drugs, 117 sections, 10 kinds of diabetes, accidents
    assert found.shape == (2 + 3 + 4 + 3 * 23 + 117 + 10 + 1,)
    names = icd9().features
    first = found.shape[0] - len(names)
    places = [first + names.index(name) for name in ("420-429", "001-009", "250.4")]
    assert found.x_train[:, places].min() == 1
    assert found.x_train[:, first:].sum() == 3 * len(found.x_train)
    assert found.x_train[:, :first].sum(1).max() <= 5, "age, medications, gender, admission and insulin"
    assert found.x_train.dtype == np.float32
    assert 0 <= found.x_train.min() <= found.x_train.max() <= 1


def test_what_leaks_the_outcome_changes_nothing(tmp_path: Path) -> None:
    rows = patients(50)
    before = read_diabetes130(table(tmp_path / "a.csv", rows))
    for number, entry in enumerate(rows):
        entry |= {"readmitted": "<30", "time_in_hospital": str(3 + number)}

    after = read_diabetes130(table(tmp_path / "b.csv", rows))

    np.testing.assert_array_equal(before.x_train, after.x_train)


def test_the_split_follows_the_patient_and_not_the_order_of_rows(tmp_path: Path) -> None:
    rows = patients(100)

    forward = read_diabetes130(table(tmp_path / "a.csv", rows))
    backward = read_diabetes130(table(tmp_path / "b.csv", rows[::-1]))

    assert forward.ids is not None
    assert backward.ids is not None
    assert len(forward.ids) == 80
    assert forward.ids.tolist() == backward.ids.tolist()


def test_a_table_of_words_where_numbers_belong_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'num_medications' must hold finite numbers"):
        read_diabetes130(table(tmp_path / "a.csv", patients(10, num_medications="many")))
    with pytest.raises(DataError, match="damaged"):
        read_diabetes130(table(tmp_path / "b.csv", [row(1, 1) | {"encounter_id": "first"}]))
    with pytest.raises(DataError, match="no first encounter of an adult for at least 3 days"):
        read_diabetes130(table(tmp_path / "c.csv", []))


@given(y=st.lists(st.integers(0, 2), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_balancing_keeps_as_many_of_each_class_as_of_the_rarest(y: list[int], seed: int) -> None:
    labels = np.array(y)

    kept = balance(labels, np.random.default_rng(seed))

    assert len(set(kept.tolist())) == len(kept) >= 1
    present, before = np.unique(labels, return_counts=True)
    assert set(np.unique(labels[kept])) == set(present)
    assert set(np.bincount(labels[kept])[present]) == {before.min()}
    assert kept.tolist() == balance(labels, np.random.default_rng(seed)).tolist()
