"""Several tables as one source, and tables as they come: separators, encodings, decimal commas."""

from __future__ import annotations

import csv
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.config.experiment import parse
from sottovoce.core.errors import DataError, InputError
from sottovoce.core.provenance import Owned
from sottovoce.data import TableKeys, load, read_csv, table_dataset, table_files
from sottovoce.data import csv_file as reader
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out, held_out_rows
from sottovoce.runs.population import source_name

FILES = Path(__file__).parents[1] / "files"
SCHEMA = {"columns": {"patient": {"kind": "ignore"}}}


def hospitals(source: Any = "hospital_*.csv", **keys: Any) -> Dataset:
    return load(source, FILES, table=TableKeys(label="died", id="patient", **keys))


def table_of(folder: Path, text: str | bytes, name: str = "t.csv", **keys: Any) -> Dataset:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(content)
    return load(name, folder, table=TableKeys(**{"label": "died", "split": "part", **keys}))


def test_a_pattern_a_list_and_a_folder_are_the_same_records() -> None:
    listed = hospitals([f"hospital_{number}.csv" for number in range(1, 6)])

    for other in (hospitals(), load(str(FILES), table=TableKeys(label="died", id="patient"))):
        np.testing.assert_array_equal(other.x_train, listed.x_train)
        np.testing.assert_array_equal(other.y_test, listed.y_test)
    assert listed.records + len(listed.y_test) == 600


def test_decimal_commas_thousands_and_orders_of_columns_do_not_change_a_value() -> None:
    whole = reader.join([read_csv(path) for path in table_files("hospital_*.csv", FILES)], "all")
    from sottovoce.data.preprocessing import read_numbers

    platelets = read_numbers(whole, "platelets", frozenset([""]))
    bmi = read_numbers(whole, "bmi", frozenset([""]))

    assert (platelets.min() >= 20_000) and (platelets.max() <= 900_000)
    assert (bmi.min() >= 14) and (bmi.max() <= 55)
    assert set(whole.columns["city"]) == {"Lyon", "Köln", "Saint-Étienne", "Zürich", "Paris", "Genève"}
    assert whole.place(599).endswith("hospital_5.csv line 121")


def test_without_owners_each_file_is_one_and_its_records_are_its_own(tmp_path: Path) -> None:
    for number in range(3):
        rows = "".join(f"{10 * number + row},{row % 2}\n" for row in range(10 + number))
        (tmp_path / f"site{number}.csv").write_text("age,died\n" + rows)

    made = load("site*.csv", tmp_path, table=TableKeys(label="died", aside="nothing"))

    assert made.ids is not None
    assert np.bincount(made.ids).tolist() == [10, 11, 12]
    assert made.counts_from == Owned()
    assert made.test_from == Owned()


def test_an_experiment_on_several_files_has_one_client_for_each(tmp_path: Path) -> None:
    def data(**keys: Any) -> Any:
        return parse({"data": {"source": "hospital_*.csv", "folder": str(FILES), "label": "died", **keys}}).data

    assert (data().clients, data().partition) == (5, "by-id")
    assert (data(partition="iid", clients=7).clients, data(partition="iid").partition) == (7, "iid")
    assert data(id="patient").clients == 100
    assert parse({"data": {"source": ["nowhere_1.csv", "nowhere_2.csv"]}}).data.clients == 2
    assert parse({"data": {"source": "nowhere_*.csv"}}).data.clients == 100


def test_frames_and_files_can_be_given_as_lists() -> None:
    frames = [{"age": list(range(start, start + 30)), "sick": [0, 1] * 15} for start in (20, 40, 60)]
    asked = {"label": "sick", "model": "logistic", "rounds": 2, "sample_rate": 1}

    from_frames = sv.simulate(frames, **asked)
    from_files = sv.simulate(
        [FILES / f"hospital_{number}.csv" for number in (1, 2)],
        **{**asked, "label": "died", "schema": str(FILES / "hospitals.toml")},
    )

    assert from_frames.config["data"]["clients"] == 3
    assert from_files.config["data"]["clients"] == 2
    assert from_files.config["data"]["source"] == [str(FILES / f"hospital_{number}.csv") for number in (1, 2)]


def test_columns_that_differ_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,sex,died\n1,f,0\n")
    (tmp_path / "b.csv").write_text("sex,agee,died\nf,1,0\n")

    with pytest.raises(DataError, match=r"b.csv lacks 'age' and has 'agee' beside: .*a.csv; 'age' may be 'agee'"):
        load(["a.csv", "b.csv"], tmp_path, table=TableKeys(label="died"))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("none_*.csv", "no file fits"),
        ([], "empty list"),
        (["hospital_1.csv", "hospital_[1].csv"], "twice"),
        (["hospital_1.csv", "no.csv"], "no.csv does not exist"),
        (["hospital_1.csv", "model.npz"], "is no table"),
    ],
)
def test_sources_that_are_no_tables_are_refused(source: Any, sentence: str) -> None:
    with pytest.raises((DataError, InputError), match=sentence):
        hospitals(source)


def test_a_number_with_two_meanings_is_refused_until_its_mark_is_declared(tmp_path: Path) -> None:
    text = "dose;part;died\n950;train;0\n1,234;train;1\n1,5;test;1\n"
    doubtful = text.replace("1,5", "800")

    with pytest.raises(DataError, match=r"t.csv line 3: column 'dose' holds '1,234', which is 1234 or 1.234;.*decimal"):
        table_of(tmp_path, doubtful)
    assert table_of(tmp_path, text).preprocessing["columns"][0]["center"] == pytest.approx((950 + 1.234) / 2)
    assert table_of(tmp_path, doubtful, decimal=".").preprocessing["columns"][0]["center"] == (950 + 1234) / 2
    assert table_of(tmp_path, doubtful, decimal=",").preprocessing["columns"][0]["center"] == (950 + 1.234) / 2


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["12,5", "13,5", "12.5", "14,5"], "line 4: column 'dose' must hold finite numbers, got '12.5' .a number with"),
        (["12,5", "13,5", "high", "14,5"], "line 4: column 'dose' holds numbers and also 'high'"),
        (["5 mg", "7 mg", "9 mg", "11 mg"], "line 2: column 'dose' holds numbers and also '5 mg'"),
        (["1.234.567", "950", "800", "12.5"], "got '1.234.567' .a number with decimal commas"),
    ],
)
def test_no_number_becomes_a_category_in_silence(tmp_path: Path, cells: list[str], sentence: str) -> None:
    rows = "".join(f"{cell};train;{row % 2}\n" for row, cell in enumerate(cells))

    with pytest.raises(DataError, match=sentence):
        table_of(tmp_path, f"dose;part;died\n{rows}1;test;1\n")


def test_a_few_numbers_among_words_are_categories_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{cell};train;{row % 2}\n" for row, cell in enumerate(["a", "b", "a", "b", "7"]))

    with caplog.at_level(logging.WARNING, "sottovoce"):
        table_of(tmp_path, f"ward;part;died\n{rows}a;test;1\n")

    assert "column 'ward' is read as categories, though some of its cells are numbers" in caplog.text


def test_labels_that_are_one_number_written_in_two_ways_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,died\n" + "1,0\n2,1\n" * 5)
    (tmp_path / "b.csv").write_text("age,died\n" + "1,0.0\n2,1.0\n" * 5)

    with pytest.raises(DataError, match=r"b.csv line 2: label 'died' is '0.0', and elsewhere '0'"):
        load("*.csv", tmp_path, table=TableKeys(label="died"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_encodings_are_understood(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("größe,died\nZürich,1\n".encode(encoding))

    assert read_csv(path).columns == {"größe": ["Zürich"], "died": ["1"]}


@pytest.mark.parametrize("line", [b"Z\xfcrich \x80", "Zürich ".encode() + b"\xfc"])
def test_a_mixture_of_encodings_is_refused_with_its_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(b"city\nParis\n" + line + b"\n")

    with pytest.raises(DataError, match=r"t.csv line 3 is neither UTF-8 nor Latin-1 text"):
        read_csv(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1.5,2,3\n1.2,3,4\n", "line 1 holds numbers only"),
        ("a,b;c\n1,2;3\n", "line 1 can be cut at ',' and ';'"),
        ("a;b\n1,5;2\n1,5;2;3\n", "line 3 has 3 fields, the header 2"),
        ("a,b\n1,x\0y\n", "line 2 holds a zero byte"),
        ('a,b\n1,2\n1,"x\n', "line 3: a field that begins with a quote must end with one"),
        ('a,b\n"x"y,2\n', "line 2: a field that begins with a quote must end with one"),
    ],
)
def test_tables_that_have_two_readings_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "t.csv").write_text(text)

    with pytest.raises(DataError, match=sentence):
        read_csv(tmp_path / "t.csv")


def test_a_name_of_two_lines_is_one_of_words(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"weight\n(kg)",died\n70,1\n')

    assert list(read_csv(tmp_path / "t.csv").columns) == ["weight (kg)", "died"]


@pytest.mark.parametrize("cell", ["(12.5)", "'12'", "1,23,456", "٣٤", "€ 5", "=12"])
def test_a_number_in_disguise_is_no_category(tmp_path: Path, cell: str) -> None:
    rows = "".join(f"{age};{cell};{age % 2}\n" for age in range(40))
    (tmp_path / "t.csv").write_text("age;dose;died\n" + rows, "utf-8")

    with pytest.raises(DataError, match=r"t.csv line 2: column 'dose' holds numbers and also"):
        load("t.csv", tmp_path, table=TableKeys(label="died"))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=12),
    mark=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    block=st.sampled_from([3, 12, 1 << 20]),
)
def test_what_is_written_is_read_back_cell_by_cell(
    rows: list[list[str]], mark: str, encoding: str, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark, quoting=csv.QUOTE_ALL).writerows([["a", "b", "c"], *rows])
    path = tmp_path_factory.mktemp("written") / "t.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BLOCK", block)

        table = read_csv(path)

    expected = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    assert [list(column) for column in table.columns.values()] == expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=40))
def test_rows_that_come_one_by_one_are_held_out_like_a_list(rows: list[str]) -> None:
    np.testing.assert_array_equal(held_out_rows(iter(rows), len(rows)), held_out(rows))


def test_a_table_in_many_blocks_becomes_the_same_features(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hospitals()
    monkeypatch.setattr(reader, "BLOCK", 50)

    np.testing.assert_array_equal(hospitals().x_train, whole.x_train)


def test_progress_is_told_and_tells_nothing_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "_PATIENCE", 0.0)
    (tmp_path / "t.csv").write_text("age,died\n" + "1,0\n" * 10)

    with caplog.at_level(logging.INFO, "sottovoce"):
        read_csv(tmp_path / "t.csv")

    assert "reading t.csv: 100 %" in caplog.text


def test_a_pattern_is_one_population_however_many_files_fit_it() -> None:
    assert source_name("hospital_*.csv", str(FILES)) == "hospital_*.csv"
    assert source_name(["hospital_1.csv", "hospital_2.csv"], str(FILES)) == "hospital_1.csv, hospital_2.csv"
    assert source_name("hospital_1.csv", str(FILES)) == "hospital_1.csv"


def test_parquet_reads_like_the_same_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"age": [30, None, 41, 58, 66] * 4, "bmi": [20.5, 30.25, 25.0, 22.0, None] * 4, "died": [0, 1] * 10}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")

    made = load("t.parquet", tmp_path, table=TableKeys(label="died"))

    np.testing.assert_array_equal(made.x_train, table_dataset(columns, label="died").x_train)


def test_parquet_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")

    with pytest.raises(DataError, match=r"pip install 'sottovoce\[parquet\]'"):
        load("t.parquet", tmp_path, table=TableKeys(label="died"))


def test_a_run_on_a_list_is_reported_when_its_files_are_gone(tmp_path: Path) -> None:
    assert source_name(["gone_1.csv", "gone_2.csv"], str(tmp_path)) == "gone_1.csv, gone_2.csv"
    assert source_name("gone_*.csv", str(tmp_path)) == "gone_*.csv"


@settings(max_examples=60)
@given(
    values=st.lists(st.integers(-9_999_999, 9_999_999).map(lambda value: value / 100), min_size=12, max_size=20),
    decimal=st.sampled_from([".", ","]),
    thousands=st.sampled_from(["", " ", "'", "other"]),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16"]),
    quoted=st.booleans(),
)
def test_a_number_is_itself_or_refused_with_its_line_however_it_is_written(
    values: list[float],
    decimal: str,
    thousands: str,
    separator: str,
    encoding: str,
    quoted: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from sottovoce.data.preprocessing import kind_of, read_numbers

    mark = {"other": "." if decimal == "," else ","}.get(thousands, thousands)
    cells = [f"{value:,.2f}".replace(",", "\0").replace(".", decimal).replace("\0", mark) for value in values]
    text = io.StringIO()
    rows = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    rows.writerows([["größe", "ort"], *([cell, "Köln"] for cell in cells)])
    path = tmp_path_factory.mktemp("written") / "t.csv"
    path.write_bytes(text.getvalue().encode(encoding))

    try:
        table = read_csv(path)
        kind = kind_of(table, "größe", frozenset([""]), np.ones(table.records, np.bool_))
        found = read_numbers(table, "größe", frozenset([""]))
    except DataError as error:
        assert "line" in str(error)
        return

    assert kind == "number"
    assert found.tolist() == values
    assert set(table.columns["ort"]) == {"Köln"}
