from __future__ import annotations

import gzip
import json
import logging
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.errors import DataError
from sottovoce.data import Preprocessing, TableKeys, as_table, load, read_csv, table_dataset
from sottovoce.data.dataset import Dataset

from .conftest import SHARED

PATIENTS = """\
patient,age,sex,part,died
anna,30,f,train,no
bert,50,m,train,yes
cleo,?,f,train,no
dora,70,,test,yes
emil,40,x,test,no
"""

SCHEMA = """\
[label]
classes = ["no", "yes"]

[columns.age]
kind = "number"
minimum = 0
maximum = 100

[columns.sex]
kind = "category"
categories = ["f", "m"]
missing = "category"
"""


def read(folder: Path, text: str = PATIENTS, name: str = "patients.csv", **keys: str | None) -> Dataset:
    (folder / name).write_text(text, encoding="utf-8")
    given = {"label": "died", "id": "patient", "split": "part", **keys}
    return load(name, folder, table=TableKeys(**given))


def refusal(folder: Path, text: str = PATIENTS, **keys: str | None) -> str:
    with pytest.raises(DataError) as caught:
        read(folder, text, **keys)
    return str(caught.value)


def test_without_a_schema_numbers_are_standardised_and_categories_one_hot_by_the_train_records(tmp_path: Path) -> None:
    made = read(tmp_path)

    # Ages 30 and 50 have mean 40 and standard deviation 10; the missing one is the mean. "x" is unknown in train.
    assert made.x_train.tolist() == [[-1, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert made.x_test.tolist() == [[3, 0, 0], [0, 0, 0]]
    assert (made.y_train.tolist(), made.y_test.tolist()) == ([0, 1, 0], [1, 0])
    assert made.class_names == ("no", "yes")
    assert made.fitted_on == "training records"
    assert made.ids is not None and len(set(made.ids.tolist())) == 3


def test_with_a_schema_nothing_is_taken_from_the_records(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)

    made = read(tmp_path, schema="schema.toml")

    assert made.fitted_on == "schema"
    np.testing.assert_array_equal(made.x_train, np.float32([[0.3, 1, 0, 0], [0.5, 0, 1, 0], [0.5, 1, 0, 0]]))
    np.testing.assert_array_equal(made.x_test, np.float32([[0.7, 0, 0, 1], [0.4, 0, 0, 0]]))
    changed = read(tmp_path, PATIENTS.replace("anna,30", "anna,99"), schema="schema.toml")
    assert changed.preprocessing == made.preprocessing


def test_another_record_changes_the_preprocessing_only_if_it_was_fitted(tmp_path: Path) -> None:
    changed = PATIENTS.replace("anna,30", "anna,99")

    assert read(tmp_path).preprocessing != read(tmp_path, changed).preprocessing


@pytest.mark.parametrize(
    ("column", "fitted"),
    [
        ('kind = "number"', ["age"]),
        ('kind = "number"\nminimum = 0\nmaximum = 100\nmissing = "mean"', ["age"]),
        ('kind = "number"\nmean = 45\nstddev = 20', []),
        ('kind = "category"', ["age"]),
        ('kind = "ignore"', []),
    ],
)
def test_what_a_schema_leaves_open_is_said_to_be_fitted(tmp_path: Path, column: str, fitted: list[str]) -> None:
    (tmp_path / "schema.toml").write_text(
        f'others = "ignore"\n[label]\nclasses = ["no", "yes"]\n[columns.age]\n{column}\n'
        '[columns.sex]\nkind = "category"\ncategories = ["f"]\n'
    )

    made = read(tmp_path, schema="schema.toml")

    assert made.preprocessing is not None
    assert made.preprocessing["fitted"] == fitted
    assert made.fitted_on == ("training records" if fitted else "schema")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ('"middle"', [[0.5]]),
        ('"zero"', [[0.0]]),
        ('"mean"', [[0.4]]),
        ("25", [[0.25]]),
        ("250", [[1.0]]),
        ('"category"', [[0.0, 1.0]]),
    ],
)
def test_each_rule_for_missing_numbers_does_what_it_says(
    tmp_path: Path, missing: str, expected: list[list[float]]
) -> None:
    (tmp_path / "schema.toml").write_text(
        f'others = "ignore"\n[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 100\nmissing = {missing}\n'
    )

    made = read(tmp_path, schema="schema.toml")

    np.testing.assert_array_equal(made.x_train[2:], np.float32(expected))


def test_a_missing_value_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text('[columns.age]\nkind = "number"\nmissing = "refuse"\n')

    assert "patients.csv line 4: column 'age' is missing" in refusal(tmp_path, schema="schema.toml")


def test_the_preprocessing_survives_json_and_gives_the_same_features(tmp_path: Path) -> None:
    made = read(tmp_path)

    again = Preprocessing.of(json.loads(json.dumps(made.preprocessing)))

    table = read_csv(tmp_path / "patients.csv")
    np.testing.assert_array_equal(again.apply(table), np.concatenate([made.x_train, made.x_test]))
    assert again.describe() == made.preprocessing
    assert again.features == ["age", "sex=f", "sex=m"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.csv.xz", "t.csv.zip", "T.CSV"])
def test_every_form_of_a_table_reads_the_same(tmp_path: Path, name: str) -> None:
    plain = read(tmp_path)
    text = PATIENTS.replace(",", "\t") if "tsv" in name else PATIENTS
    content, path = text.encode(), tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inner.csv", content)
    else:
        path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(content))

    packed = load(name, tmp_path, table=TableKeys(label="died", id="patient", split="part"))

    np.testing.assert_array_equal(packed.x_train, plain.x_train)


def test_semicolons_a_byte_order_mark_blank_lines_and_unnamed_columns_are_understood(tmp_path: Path) -> None:
    lines = [f"{number};{line}".replace(",", ";") for number, line in enumerate(PATIENTS.splitlines())]
    lines[0] = lines[0].removeprefix("0")
    text = "\ufeff" + "\n\n".join(lines) + "\n"

    np.testing.assert_array_equal(read(tmp_path, text).x_train, read(tmp_path).x_train)


def test_columns_of_numbers_booleans_and_nothing_read_like_the_same_csv(tmp_path: Path) -> None:
    columns = {
        "age": [30.0, 50.0, float("nan"), 70.0, 40.5],
        "sex": ["f", "m", "f", None, "m"],
        "part": ["train", "train", "train", "test", "test"],
        "died": [False, True, False, True, False],
    }
    made = table_dataset(columns, label="died", split="part")
    text = "age,sex,part,died\n30,f,train,False\n50,m,train,True\n,f,train,False\n70,,test,True\n40.5,m,test,False\n"

    from_file = read(tmp_path, text, id=None)

    assert made.class_names == ("False", "True")
    np.testing.assert_array_equal(made.x_test, from_file.x_test)
    assert as_table({"n": np.array([1.0, np.nan, 2.5])}).columns["n"] == ["1", "", "2.5"]


def test_a_fifth_is_set_aside_by_the_content_of_the_records_and_named(tmp_path: Path) -> None:
    header, *rows = [f"{row},{row % 2}" for row in range(-1, 100)]
    forward = read(tmp_path, "\n".join(["n,died", *rows]), id=None, split=None)
    backward = read(tmp_path, "\n".join(["n,died", *rows[::-1]]), id=None, split=None)

    assert header and (len(forward.y_test), len(forward.y_train)) == (20, 80)
    assert set(forward.x_test[:, 0].round(3).tolist()) == set(backward.x_test[:, 0].round(3).tolist())
    assert forward.preprocessing is not None
    assert forward.preprocessing["split"] == "a fifth of the records, by the SHA-256 of their content"


def test_many_owners_are_set_aside_whole_and_few_are_not(tmp_path: Path) -> None:
    def made(owners: int) -> Dataset:
        rows = [f"p{row % owners},{row},{row // owners % 2}" for row in range(200)]
        return read(tmp_path, "\n".join(["patient,n,died", *rows]), split=None)

    many, few = made(50), made(4)

    assert many.ids is not None and few.ids is not None
    assert len(set(many.ids.tolist())) == 40 and len(many.y_test) == 40
    assert len(set(few.ids.tolist())) == 4


def test_classes_that_are_numbers_are_sorted_by_value(tmp_path: Path) -> None:
    made = read(tmp_path, "n,died\n" + "".join(f"{row},{row % 12}\n" for row in range(60)), id=None, split=None)

    assert made.class_names == tuple(str(number) for number in range(12))


def test_one_class_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = read(tmp_path, PATIENTS.replace("yes", "no"))

    assert "every train record has label 'no'" in caplog.text
    assert made.class_names == ("no", "not no")


def test_a_column_of_nothing_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    made = read(tmp_path, PATIENTS.replace(",f,", ",,").replace(",m,", ",,"))

    assert made.preprocessing is not None
    assert made.preprocessing["ignored"] == ["sex"]


QUANTITY = "n,died\n" + "".join(f"{row},{row * 1.5}\n" for row in range(500))
TYPING_ERROR = "age,died\n" + "".join(f"{row},{row % 2}\n" for row in range(50)) + "4o,1\n"


@pytest.mark.parametrize(
    ("text", "keys", "sentence"),
    [
        (PATIENTS, {"label": "dead"}, "has no column 'dead'; did you mean 'died'?"),
        (PATIENTS, {"label": None}, "name the column with the label in [data] label"),
        (PATIENTS, {"label": "part"}, "label, id, person and split must be different columns"),
        (QUANTITY, {"id": None, "split": None}, "label 'died' has 500 different numbers, as a quantity has"),
        ("", {}, "is empty or begins with an empty line"),
        ("patient,age,sex,part,died\n", {}, "has a header and no records"),
        (PATIENTS + "fred,1,m\n", {}, "line 7 has 3 fields, the header 5"),
        (TYPING_ERROR, {"id": None, "split": None}, "line 52: column 'age' must hold finite numbers, got '4o'"),
        (TYPING_ERROR.replace("4o", "inf"), {"id": None, "split": None}, "must hold finite numbers, got 'inf'"),
        (PATIENTS.replace("test", "later"), {}, "line 5: split 'part' must be \"train\" or \"test\", got 'later'"),
        (PATIENTS.replace("test", "train"), {}, "no record has 'test' in the split column 'part'"),
        (PATIENTS.replace("m,train,yes", "m,train,"), {}, "line 3: label 'died' is missing"),
        (PATIENTS.replace("bert", ""), {}, "line 3: id 'patient' is missing"),
        (PATIENTS.replace("sex", "age"), {}, "has two columns 'age'; rename one"),
        ("patient,part,died\na,train,no\nb,test,yes\n", {}, "has no column left to learn from"),
        ("n,died\n1,0\n2,1\n", {"id": None, "split": None}, "has 2 records, too few to set a fifth aside"),
        (
            "name,died\n" + "".join(f"name{row},{row % 2}\n" for row in range(200)),
            {"id": None, "split": None},
            "column 'name' has 160 different words among 160 train records",
        ),
        (PATIENTS, {"schema": "none.toml"}, "there is no schema file"),
    ],
)
def test_a_table_that_cannot_be_learnt_from_is_refused(
    tmp_path: Path, text: str, keys: dict[str, str | None], sentence: str
) -> None:
    assert sentence in refusal(tmp_path, text, **keys)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("[columns.age]\nkind = 'word'", "[columns.age] kind must be one of number, category, ignore, got 'word'"),
        ("[columns.agee]\nkind = 'number'", "has no column 'agee'; did you mean 'age'?"),
        ("[columns.age]\nkind = 'number'\nminimun = 1", "has no key 'minimun'; did you mean 'minimum'?"),
        ("[columns.age]\nkind = 'number'\nminimum = 1", "minimum and maximum belong together"),
        ("[columns.age]\nkind = 'number'\nminimum = 9\nmaximum = 1", "minimum must be below maximum, got 9 and 1"),
        ("[columns.age]\nkind = 'number'\nmissing = 'middle'", 'missing = "middle" needs a range'),
        ("[columns.age]\nkind = 'number'\nmissing = 'drop'", "missing must be one of mean, middle, zero"),
        ("[columns.sex]\nkind = 'category'\ncategories = ['f', 'f']", "must be at least 1 different values"),
        ("[columns.sex]\nkind = 'category'\ncategories = ['f', '?']", "categories must not hold '?'"),
        ("[columns.died]\nkind = 'category'", "'died' is the label, id, person or split column and no feature"),
        ("[label]\nclasses = ['no', 'maybe']", "label 'died' must be one of the classes 'no', 'maybe', got 'yes'"),
        ("others = 'drop'", 'others must be "infer" or "ignore"'),
        ("[columns.age", "not TOML"),
        ("columns = 3", "columns must be a table, got 3"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(tmp_path: Path, schema: str, sentence: str) -> None:
    (tmp_path / "schema.toml").write_text(schema)

    assert sentence in refusal(tmp_path, schema="schema.toml")


def test_a_huge_file_is_refused_after_its_limit_and_not_read_further(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1_000_000))

    with pytest.raises(DataError, match=r"holds more than 1 MiB of text.*npz"):
        read_csv(path, limit=1 << 20)


def test_other_encodings_and_damaged_archives_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"name,died\nJos\xe9\x80,1\n")
    (tmp_path / "torn.csv.xz").write_bytes(lzma.compress(PATIENTS.encode())[:-20])

    with pytest.raises(DataError, match=r"latin.csv line 2 is neither UTF-8 nor Latin-1 text.* as UTF-8"):
        read_csv(tmp_path / "latin.csv")
    with pytest.raises(DataError, match=r"torn.csv.xz is damaged"):
        read_csv(tmp_path / "torn.csv.xz")
    with pytest.raises(DataError, match="does not exist"):
        read_csv(tmp_path / "none.csv")


def test_the_keys_of_a_table_are_refused_beside_another_source() -> None:
    with pytest.raises(DataError, match=r"\[data\] label is for a table"):
        load("digits", table=TableKeys(label="digit"))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "keys", "records", "features", "classes"),
    [
        ("adult.csv.xz", TableKeys(label="income", split="split"), (32561, 16281), 105, ("<=50K", ">50K")),
        ("support2.csv.xz", TableKeys(label="hospdead"), (7284, 1821), 72, ("0", "1")),
    ],
)
def test_real_tables_are_read_whole(
    name: str, keys: TableKeys, records: tuple[int, int], features: int, classes: tuple[str, ...]
) -> None:
    if not SHARED or not (Path(SHARED) / name).exists():
        pytest.skip("needs the packed data sets; set SOTTOVOCE_DATA to their folder")

    made = load(name, SHARED, table=keys)

    assert (made.records, len(made.y_test)) == records
    assert (made.shape, made.class_names) == ((features,), classes)
    assert np.isfinite(made.x_train).all()


def test_centred_numbers_are_those_of_a_new_file_read_in_the_same_way() -> None:
    """A missing cell, whatever its rule, has the same feature in training and in prediction."""
    schema = {
        "columns": {
            "age": {"kind": "number", "minimum": 20, "maximum": 100},
            "dose": {"kind": "number", "minimum": 0, "maximum": 4, "missing": "zero"},
            "sex": {"kind": "category", "categories": ["f", "m"]},
        },
        "label": {"classes": ["no", "yes"]},
    }
    columns = {
        "age": [20, 60, 100, None, 40],
        "dose": [0, 4, None, 1, 2],
        "sex": ["f", "m", "f", "m", "f"],
        "sick": ["no", "yes", "no", "yes", "no"],
    }
    plain = table_dataset(columns, label="sick", split=None, schema=schema)

    made = plain.centred()

    assert plain.ranged == (0, 1)
    assert made.ranged == ()
    assert made.preprocessing is not None
    again = Preprocessing.of(made.preprocessing).apply(as_table(columns))
    whole = Preprocessing.of(plain.preprocessing or {}).apply(as_table(columns))
    assert np.allclose(again[:, :2], 2 * whole[:, :2] - 1)
    assert (again[:, 2:] == whole[:, 2:]).all()
    assert np.allclose(made.x_train[:, :2], 2 * plain.x_train[:, :2] - 1)
    assert made.centred() is made
