"""`sottovoce start`: from tables to a run and its report."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from sottovoce.cli import main
from sottovoce.data import TableKeys, load

FILES = [str(Path(__file__).parents[1] / "files" / f"hospital_{number}.csv") for number in range(1, 6)]


def started(capsys: pytest.CaptureFixture[str], out: Path, *options: str) -> dict[str, object]:
    assert main(["start", *FILES, "--label", "died", "--yes", "--out", str(out), "--json", *options]) == 0
    written: dict[str, object] = json.loads(capsys.readouterr().out)
    return written


def rows(path: Path, count: int = 300, label: tuple[str, ...] = ("0", "1")) -> str:
    text = "".join(f"{20 + row % 60},{'fm'[row % 2]},{row},{label[row % 3 // 2]}\n" for row in range(count))
    path.write_text("age,sex,encounter_id,died\n" + text)
    return str(path)


def test_five_hospitals_become_a_private_run_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = started(capsys, tmp_path / "out")

    summary = told["summary"]
    assert isinstance(summary, dict)
    assert (summary["private"], summary["unit"], summary["units"]) == (True, "person", 393)
    assert summary["epsilon_server"] <= 1
    assert summary["measurements"]["epsilon_server"] <= 1, "measured by noisy sums, which are charged"
    assert summary["quality"]["noise"]
    assert summary["balanced_accuracy_final"] is None, "the noise hides it"
    assert summary["accuracy_final"] == summary["quality"]["accuracy"], "which does not hide what was measured"
    assert "no better than always answering 'no'" in summary["verdict"], "491 persons are too few for epsilon 1"
    assert (tmp_path / "out" / "report.html").is_file()
    written = tomllib.loads((tmp_path / "out" / "experiment.toml").read_text())
    assert written["data"]["person"] == "patient"
    assert not [key for key in written["privacy"] if key.startswith("unsafe")]


def test_what_is_shared_holds_no_folder_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "a.csv")
    rows(tmp_path / "b.csv")
    assert main(["start", "a.csv", "b.csv", "--yes", "--quiet"]) == 0
    assert main(["statement", "start/run", "--html", "statement.html"]) == 0
    assert main(["report", str(tmp_path / "start" / "run"), "--html", "report.html"]) == 0
    capsys.readouterr()

    for page in ("start/report.html", "start/run/config.toml", "start/run/summary.json", "statement.html"):
        assert str(tmp_path) not in (tmp_path / page).read_text(), page
    assert "1 run on a.csv, b.csv" in (tmp_path / "report.html").read_text()


def test_a_page_leaves_folders_out_where_files_are_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["start", rows(tmp_path / "a.csv"), "--yes", "--quiet"]) == 0
    capsys.readouterr()

    assert str(tmp_path) not in (tmp_path / "here" / "start" / "report.html").read_text()


def test_the_schema_is_the_same_whatever_the_records_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranges, categories and words must not be read off them: this is what `--yes` would publish."""
    texts = []
    for name, words in (("one", ("17", "f")), ("two", ("1e5", "unheard of"))):
        table = tmp_path / f"{name}.csv"
        rows(table)
        with table.open("a") as file:
            file.write(f"{words[0]},{words[1]},999,1\n")
        assert main(["start", str(table), "--yes", "--out", str(tmp_path / name), "--quiet", "--json"]) == 0
        capsys.readouterr()
        texts.append((tmp_path / name / "schema.toml").read_text())

    assert texts[0] == texts[1]
    keys = TableKeys(label="died", schema=str(tmp_path / "one" / "schema.toml"))
    assert load(str(tmp_path / "two.csv"), table=keys).fitted_on == "schema"


def test_what_is_declared_is_used_and_what_is_called_like_a_number_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "out", rows(tmp_path / "rows.csv")

    assert main(["start", table, "--yes", "--out", str(out), "--json", "--declare", "age=0..120"]) == 0

    told = json.loads(capsys.readouterr().out)
    columns = tomllib.loads((out / "schema.toml").read_text())["columns"]
    assert columns["age"] == {"kind": "number", "minimum": 0.0, "maximum": 120.0}
    assert columns["sex"] == {"kind": "category", "buckets": 128}
    assert columns["encounter_id"] == {"kind": "ignore"}
    assert told["check"] == ["sex"]
    assert any(line.startswith("unit: record") for line in told["rules"])
    assert told["summary"]["units"] == 240, "a fifth measures"


def test_the_twin_without_privacy_is_for_the_operator_and_in_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "out", rows(tmp_path / "rows.csv")

    assert main(["start", table, "--yes", "--out", str(out), "--json", "--plain-twin"]) == 0

    told = capsys.readouterr()
    twin = json.loads((out / "operator" / "plain-twin" / "summary.json").read_text())
    assert twin["private"] is False
    assert twin["accuracy_final"] is not None
    assert (out / "operator").stat().st_mode & 0o077 == 0
    assert "UNSAFE" in (out / "operator" / "UNSAFE.txt").read_text()
    assert "plain-twin" not in (out / "report.html").read_text()
    assert json.loads(told.out)["plain_twin"] == {
        "run": str(out / "operator" / "plain-twin"),
        "unsafe": True,
        "in_report": False,
    }
    assert repr(twin["accuracy_final"]) not in told.out + told.err


def test_of_public_records_the_twin_stands_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = started(capsys, tmp_path / "out", "--plain-twin", "--public", "--quiet")

    assert "plain-twin" in (tmp_path / "out" / "report.html").read_text()
    assert told["summary"]["accuracy_final"] is not None  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none_*.csv", "--yes"], "no file fits"),
        ([*FILES, "--label", "dead", "--yes"], "has no column 'dead' for the label; did you mean 'died'?"),
        ([*FILES, "--label", "died", "--person", "died", "--yes"], "must be two columns"),
        ([FILES[0], "--label", "bmi", "--yes"], "label 'bmi' has"),
        ([FILES[0], "--label", "ward", "--yes"], "name all that there can be, such as --classes"),
        ([FILES[0], "--label", "ward", "--classes", "heart,medicine", "--yes"], "does not name every value"),
        ([*FILES, "--declare", "age=120..0", "--yes"], "two numbers, the lower first"),
        ([*FILES, "--declare", "sex=0..1", "--yes"], "holds words, but a range was declared"),
        ([*FILES, "--declare", "wrad=a,b", "--yes"], "did you mean 'ward'?"),
        ([*FILES, "--declare", "ward", "--yes"], "--declare must be COLUMN=LOW..HIGH"),
        ([*FILES, "--label", "died", "--ignore", "died", "--yes"], "--ignore died is the label or the person"),
        ([*FILES, "--label", "died", "--declare", "ward=a,b", "--yes"], "in no category of the schema"),
        ([FILES[0], "--label", "died", "--declare", "bmi=1000..2000", "--yes"], "outside the range 1000 to 2000"),
        ([*FILES, "--epsilon", "0", "--yes"], "--epsilon must be in"),
        ([*FILES, "--label", "died"], "nothing was written; start again with --yes"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["start", *arguments, "--out", str(tmp_path / "out")]) == 2

    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_site_with_too_few_rows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", rows(tmp_path / "rows.csv", 12), "--yes", "--out", str(tmp_path / "out")]) == 2

    assert "cannot hide one another" in capsys.readouterr().err


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()

    assert main(["start", *FILES, "--yes", "--out", str(tmp_path / "out")]) == 2

    assert "is already there and was not changed" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_a_schema_that_is_learnt_takes_its_part_of_epsilon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = started(capsys, tmp_path / "out", "--epsilon", "8", "--learn-schema", "2", "--declare", "age=0..120")

    schema = tomllib.loads((tmp_path / "out" / "schema.toml").read_text())
    assert schema["columns"]["sex"] == {"kind": "category", "categories": ["f", "m"]}
    assert schema["columns"]["age"]["maximum"] == 120, "what is declared is not learnt"
    assert 1.9 < schema["learnt"]["epsilon_server"] <= 2
    summary = told["summary"]
    assert isinstance(summary, dict)
    assert 5.9 < summary["epsilon_server"] <= 6
    assert 7.9 < summary["epsilon_server_population"] <= 8, "both together are what was asked for"
    assert summary["delta_population"] <= 1e-4


@pytest.mark.parametrize("part", ["0", "1", "2", "nan"])
def test_the_part_for_a_schema_is_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str) -> None:
    options = ["--yes", "--out", str(tmp_path / "out"), "--learn-schema", part]

    assert main(["start", *FILES, "--label", "died", *options]) == 2
    assert "--learn-schema must be a part of --epsilon 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
