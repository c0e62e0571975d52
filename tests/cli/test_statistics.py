"""`sottovoce statistics`: from tables to answers, and wrong input in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from sottovoce.cli import main
from sottovoce.config.experiment import load, parse
from sottovoce.core.errors import SottovoceError
from sottovoce.data import read_tables
from sottovoce.data.preprocessing import read_numbers
from sottovoce.runs.loop import run

FOLDER = Path(__file__).parents[1] / "files"
FILES = [str(FOLDER / f"hospital_{number}.csv") for number in range(1, 6)]
SCHEMA = str(FOLDER / "hospitals.toml")

Told = dict[str, Any]


def asked(capsys: pytest.CaptureFixture[str], out: Path, *options: str) -> Told:
    assert main(["statistics", *FILES, "--schema", SCHEMA, "--out", str(out), "--json", "-q", *options]) == 0
    told: Told = json.loads(capsys.readouterr().out)
    return told


def experiment(tmp_path: Path, **changes: Any) -> Any:
    tables: dict[str, Any] = {
        "experiment": {"name": "asked", "seed": 5},
        "data": {"source": FILES, "schema": SCHEMA},
        "statistics": {"columns": ["age"], "what": ["mean"]},
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
    }
    for place, value in changes.items():
        table, _, key = place.partition("__")
        tables.setdefault(table, {})[key] = value
    return parse(tables)


def test_five_hospitals_are_told_of_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, tmp_path / "out", "--epsilon", "8", "--columns", "age,bmi,sex")

    (group,) = told["groups"]
    assert (told["unit"], told["units"], told["sites"]) == ("record", 600, 5)
    assert told["epsilon"] <= 8 < told["epsilon_server"]
    assert group["count"] == {"value": 600, "low": 600, "high": 600, "public": True}
    mean = group["columns"]["age"]["mean"]
    ages = read_numbers(read_tables([Path(file) for file in FILES]), "age", frozenset(["", "NA"]))
    assert abs(mean["value"] - np.nanmean(ages)) < 3 * (mean["high"] - mean["low"]), "the seed is nobody's choice"
    assert mean["high"] - mean["low"] < 4
    assert sum(each["budget_share"] for each in told["queries"]) == pytest.approx(1)
    assert (tmp_path / "out" / "ledger.jsonl").read_text().count("\n") > 1, "charged"


def test_a_finished_run_is_shown_again_and_not_charged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = asked(capsys, tmp_path / "out", "--columns", "age,sex", "--by", "ward")
    ledger = (tmp_path / "out" / "ledger.jsonl").read_bytes()
    page = tmp_path / "page.html"

    assert main(["statistics", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["statistics", str(tmp_path / "out"), "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "out" / "ledger.jsonl").read_bytes() == ledger
    for words in ("ward = surgery", "epsilon against the server", "share of the budget", "what is promised"):
        assert words in text.lower() and words in page.read_text().lower()


def test_a_folder_that_holds_answers_is_named_with_the_command_that_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(capsys, tmp_path / "out")
    told = ["statistics", *FILES, "--schema", SCHEMA, "--out", str(tmp_path / "out")]

    assert main(told) == 2
    assert f"`sottovoce statistics {tmp_path / 'out'}` shows again" in capsys.readouterr().err
    assert main(["statistics", str(tmp_path / "out"), "--learn", str(tmp_path / "learnt.toml")]) == 2
    assert "learnt no schema" in capsys.readouterr().err, "a file that is not written is no success"
    assert main(["statement", str(tmp_path / "out")]) == 0
    stated = capsys.readouterr().out
    assert "Quality was not measured" not in stated


def test_a_plan_of_statistics_and_a_run_of_them_know_of_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(capsys, tmp_path / "out")

    assert main(["plan", str(tmp_path / "out" / "config.toml")]) == 0
    shown = capsys.readouterr().out
    assert "against the server" in shown
    for word in ("weights", "signal", "training", "is private"):
        assert word not in shown.split("Robustness")[0].partition("- Joules")[0], word
    for typed in (["predict", "--data", FILES[0]], ["export", "--to", "npz"]):
        assert main([typed[0], str(tmp_path / "out"), *typed[1:]]) == 2
        assert "asked for statistics and has no model" in capsys.readouterr().err


def test_the_epsilons_are_those_of_one_gaussian_release(tmp_path: Path) -> None:
    summary = run(experiment(tmp_path), tmp_path / "out")

    told, z = summary["statistics"], summary["noise_multiplier"]
    for name, part in (("epsilon", 1.0), ("epsilon_server", 4 / 5)):  # four of five sites at threshold 2/3
        accountant = PLDAccountant()
        accountant.compose(dp_event.GaussianDpEvent(z * math.sqrt(part)))
        assert told[name] == pytest.approx(accountant.get_epsilon(1e-6), rel=2e-3)


def test_the_noise_in_the_answers_is_what_is_told(tmp_path: Path) -> None:
    """4,000 cells: a standard deviation that is off by 10 % is 9 of its own errors away."""
    summary = run(experiment(tmp_path, statistics__what=["histogram"], statistics__bins=4000), tmp_path / "out")
    told = summary["statistics"]
    histogram = told["groups"][0]["columns"]["age"]["histogram"]
    bins, edges = np.array([each["value"] for each in histogram["bins"]]), np.array(histogram["edges"])

    empty = np.floor(edges[1:] + 1e-6) < edges[:-1] - 1e-6  # ages are whole numbers

    assert np.std(bins[empty]) == pytest.approx(told["queries"][0]["noise_stddev"], rel=0.05)


def test_with_one_record_less_the_published_text_differs_in_values_alone(tmp_path: Path) -> None:
    """Everything but the noisy numbers follows from public facts."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        return 0.0 if isinstance(value, float) else value

    lines = Path(FILES[0]).read_text().splitlines(keepends=True)
    columns = lines[1].rstrip("\n").split(",")
    gone = ",".join([columns[0], *[""] * (len(columns) - 1)]) + "\n"  # a record that says nothing: replaced by zeros
    (tmp_path / "one.csv").write_text("".join([lines[0], gone, *lines[2:]]))
    keys = {"statistics__columns": ["age", "bmi"], "statistics__by": []}
    with_it = run(experiment(tmp_path, **keys), tmp_path / "with")
    without = run(
        experiment(tmp_path, data__source=[str(tmp_path / "one.csv"), *FILES[1:]], **keys), tmp_path / "without"
    )

    assert shape(with_it["statistics"]) == shape(without["statistics"])
    texts = [(tmp_path / name / "rounds.jsonl").read_text() for name in ("with", "without")]
    assert texts[0] == texts[1], "what is published of the round follows from the configuration"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--columns", "agee"], "did you mean 'age'?"),
        (["--by", "age"], "holds numbers"),
        (["--what", "mode"], "what (place 0) must be 'count', "),
        (["--columns", ","], "names none"),
        (["--epsilon", "-1"], "epsilon"),
    ],
)
def test_wrong_options_are_one_sentence_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["statistics", *FILES, "--schema", SCHEMA, "--out", str(tmp_path / "out"), *options]) == 2

    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ranges_are_never_taken_from_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_range, guessed = tmp_path / "open.toml", tmp_path / "guessed.toml"
    open_range.write_text('[columns.age]\nkind = "number"\n')
    guessed.write_text('[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 99\nguessed = true\n')

    for options in ([], ["--schema", str(open_range)], ["--schema", str(guessed)]):
        assert main(["statistics", *FILES, "--out", str(tmp_path / "out"), *options]) == 3
        assert "schema" in capsys.readouterr().err


def test_a_column_that_one_site_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(FILES[0]).read_text()
    (tmp_path / "bad.csv").write_text(text.replace("bmi", "body", 1))

    code = main(["statistics", FILES[0], str(tmp_path / "bad.csv"), "--schema", SCHEMA, "--out", str(tmp_path / "o")])

    assert code == 2
    assert "lacks 'bmi'" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ["inf", "1e999", "old"])
def test_a_cell_that_is_no_finite_number_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    lines = Path(FILES[0]).read_text().splitlines()
    fields = lines[6].split(",")
    lines[6] = ",".join([fields[0], cell, *fields[2:]])
    (tmp_path / "bad.csv").write_text("\n".join(lines))

    assert main(["statistics", str(tmp_path / "bad.csv"), "--schema", SCHEMA, "--out", str(tmp_path / "o")]) == 2
    assert f"line 7: column 'age' must hold finite numbers, got '{cell}'" in capsys.readouterr().err


def test_values_out_of_range_words_unseen_and_nan_have_their_places(tmp_path: Path) -> None:
    rows = [f"{age},{sex}" for age, sex in [("NaN", "x"), ("1000", "f"), ("-5", ""), ("40", "m")] * 100]
    (tmp_path / "odd.csv").write_text("\n".join(["age,sex", *rows]) + "\n")
    odd = experiment(
        tmp_path,
        data__source=str(tmp_path / "odd.csv"),
        data__clients=2,
        statistics__columns=["age", "sex"],
        statistics__what=["missing", "histogram", "categories"],
        privacy__epsilon=40.0,
    )

    columns = run(odd, tmp_path / "out")["statistics"]["groups"][0]["columns"]

    counts = {each["category"]: each["value"] for each in columns["sex"]["categories"]}
    assert counts == pytest.approx({"f": 100, "m": 100, "(other)": 100}, abs=3)
    assert columns["sex"]["missing"]["value"] == pytest.approx(100, abs=3)
    assert columns["age"]["missing"]["value"] == pytest.approx(100, abs=3)
    bins = [each["value"] for each in columns["age"]["histogram"]["bins"]]
    assert [bins[0], bins[-1]] == pytest.approx([100, 100], abs=3), "the nearest ends of the range"


def test_a_site_with_too_few_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path(FILES[0]).read_text().splitlines(keepends=True)
    (tmp_path / "one.csv").write_text("".join(lines[:2]))
    (tmp_path / "none.csv").write_text(lines[0])

    for name, words in (("one.csv", "one.csv holds 1 records"), ("none.csv", "no records")):
        files = [FILES[0], str(tmp_path / name)]
        assert main(["statistics", *files, "--schema", SCHEMA, "--out", str(tmp_path / "out")]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy__unit": "client"}, "records or persons"),
        ({"experiment__rounds": 3}, "rounds = 3"),
        ({"privacy__clip_norm": 2.0}, "clip_norm"),
        ({"cohort__sample_rate": 0.5}, "sample_rate"),
        ({"experiment__evaluation": "server"}, "evaluation"),
        ({"privacy__units": 7}, "units is 7"),
        ({"statistics__by": ["sexx"]}, "sexx"),
    ],
)
def test_keys_that_mean_nothing_to_statistics_are_refused(tmp_path: Path, changes: Any, words: str) -> None:
    with pytest.raises(SottovoceError, match=words):
        run(experiment(tmp_path, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_secure_sum_tells_what_an_ideal_one_tells(tmp_path: Path) -> None:
    ideal = run(experiment(tmp_path), tmp_path / "ideal")
    real = run(experiment(tmp_path, aggregation__secure="real"), tmp_path / "real")

    assert real["statistics"] == ideal["statistics"]


def test_an_experiment_file_is_read_and_options_change_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "asked.toml"
    file.write_text(
        f'[data]\nsource = {json.dumps(FILES)}\nschema = "{SCHEMA}"\n[statistics]\ncolumns = ["age"]\n'
        '[privacy]\nunit = "record"\nepsilon = 2.0\ndelta = 1e-6\n'
    )

    assert load(file).experiment.rounds == 1
    assert main(["statistics", str(file), "--columns", "bmi", "--out", str(tmp_path / "out"), "--json", "-q"]) == 0
    assert list(json.loads(capsys.readouterr().out)["groups"][0]["columns"]) == ["bmi"]


def test_persons_are_protected_with_all_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, tmp_path / "out", "--person", "patient", "--columns", "sex", "--set", "privacy.min_units=50")

    assert (told["unit"], told["units"]) == ("person", 491)
    words = told["groups"][0]["columns"]["sex"]
    counted = sum(each["value"] for each in words["categories"]) + words["missing"]["value"]
    assert counted == pytest.approx(491, abs=70), "each person is one, whatever rows it has"
