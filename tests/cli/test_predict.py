from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Shell

PRIVATE = ["--set", "privacy.epsilon=8", "--set", "privacy.delta=0.01", "--set", "privacy.clip_norm=1"]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_csv_is_trained_on_and_what_was_done_to_it_is_in_the_run_folder(trained: Path) -> None:
    told = json.loads((trained / "preprocessing.json").read_text())

    assert (told["input_shape"], told["class_names"]) == ([3], ["no", "yes"])
    assert (told["table"]["fitted_on"], told["table"]["fitted"]) == ("training records", ["died", "age", "sex"])
    assert told["table"]["columns"][0]["missing"] == "mean"
    assert (told["table"]["id"], told["table"]["source"]) == ("hospital", "patients.csv")
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["clients"] == 10 and summary["balanced_accuracy_final"] > 0.7


def test_a_private_run_refuses_a_preprocessing_that_was_fitted_on_the_clients_records(
    patients: Path, shell: Shell
) -> None:
    refused = shell("run", "patients.toml", "--out", "private", *PRIVATE)

    assert refused.code == 3
    assert "fitted on the clients' records (columns died, age, sex)" in refused.err
    assert "[data] schema" in refused.err and "unsafe_preprocessing = true" in refused.err
    assert not (patients / "private").exists()


def test_a_private_run_takes_a_schema_or_says_that_it_is_unsafe(patients: Path, shell: Shell) -> None:
    safe = shell("run", "patients.toml", "--out", "safe", *PRIVATE, "--set", "data.schema=schema.toml", "--json")
    key = "privacy.unsafe_preprocessing=true"
    unsafe = shell("run", "patients.toml", "--out", "unsafe", *PRIVATE, "--set", key, "--json")

    assert (safe.code, unsafe.code) == (0, 0)
    assert safe.json()["privacy"]["unsafe"] == []
    assert unsafe.json()["privacy"]["unsafe"] == ["unsafe_preprocessing"]
    assert json.loads((patients / "safe" / "preprocessing.json").read_text())["table"]["fitted_on"] == "schema"


def test_every_file_and_every_key_of_a_run_folder_is_documented(patients: Path, shell: Shell, finished: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text(encoding="utf-8")
    words = set(re.findall(r"`([^`]+)`", page))
    shell("run", "patients.toml", "--out", "private", *PRIVATE, "--set", "data.schema=schema.toml", "--quiet")

    missing = set()
    for run in (finished, patients / "private"):
        files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
        documents = [json.loads((run / name).read_text()) for name in files if name.endswith(".json")]
        documents += [json.loads(line) for name in files if name.endswith(".jsonl") for line in (run / name).open()]
        documents += [document["table"] for document in documents if document.get("table")]
        keys = {key for document in documents for key in document}
        missing |= {word for word in files | keys if word not in words and f"{word.rpartition('_')[0]}_*" not in words}

    assert missing == set()


def test_bad_keys_of_a_table_are_one_sentence_and_nothing_is_written(patients: Path, shell: Shell) -> None:
    cases = {
        "data.label=dyed": "patients.csv has no column 'dyed'; did you mean 'died'?",
        "data.source=patient.csv": "patient.csv does not exist",
        "data.labl=died": "[data] has no key 'labl'; did you mean 'label'?",
        "data.source=digits": "[data] label is for a table",
    }
    for change, sentence in cases.items():
        outcome = shell("run", "patients.toml", "--out", "run", "--set", change)

        assert (outcome.code, outcome.out) == (2, "")
        assert sentence in outcome.err
        assert outcome.err.count("\n") == 1
    assert not (patients / "run").exists()


def test_public_records_of_a_table_are_treated_like_the_clients(patients: Path, shell: Shell) -> None:
    lines = (patients / "patients.csv").read_text().splitlines()
    (patients / "public.csv").write_text("\n".join(line.split(",", 1)[1] for line in lines[:30]))

    changes = ["--set", "scheme.name=fl-top", "--set", "scheme.ratio=0.5", "--set", "scheme.public=public.csv"]
    outcome = shell("run", "patients.toml", *changes, "--json")

    assert outcome.code == 0
    assert outcome.json()["public"] == "public.csv"


def test_predict_names_classes_and_probabilities_and_measures_what_has_labels(trained: Path, shell: Shell) -> None:
    outcome = shell("predict", str(trained), "--data", "patients.csv")

    answers = rows(outcome.out)
    assert outcome.code == 0 and len(answers) == 300
    assert list(answers[0]) == ["record", "predicted", "label", "probability no", "probability yes"]
    correct = sum(answer["predicted"] == answer["label"] for answer in answers) / 300
    assert f"300 records: accuracy {correct:.4f}" in outcome.err
    for answer in answers:
        yes = float(answer["probability yes"])
        assert yes + float(answer["probability no"]) == pytest.approx(1, abs=1e-5)
        assert (answer["predicted"] == "yes") == (yes > 0.5)


def test_predictions_on_the_test_records_agree_with_the_runs_own_accuracy(
    here: Path, shell: Shell, finished: Path
) -> None:
    from sottovoce.data import load

    digits = load("digits")
    np.savez(here / "digits.npz", x=digits.x_test, y=digits.y_test)
    summary = json.loads((finished / "summary.json").read_text())

    final = shell("predict", str(finished), "--data", "digits.npz", "--json").json()
    best = shell("predict", str(finished), "--data", "digits.npz", "--json", "--best").json()

    assert final["accuracy"] == pytest.approx(summary["accuracy_final"])
    assert best["accuracy"] == pytest.approx(summary["accuracy_best"])
    assert (final["model"], best["model"], len(final["predictions"])) == ("final", "best", len(digits.y_test))


def test_a_folder_and_a_pattern_are_predicted_file_after_file(trained: Path, shell: Shell) -> None:
    (trained.parent / "new").mkdir()
    for name in ("a", "b"):
        shutil.copy(trained.parent / "patients.csv", trained.parent / "new" / f"{name}.csv")
    single = rows(shell("predict", "run", "--data", "patients.csv").out)
    folder, pattern = (rows(shell("predict", "run", "--data", name).out) for name in ("new", "new/*.csv"))

    assert folder == pattern
    assert [row["predicted"] for row in folder] == 2 * [row["predicted"] for row in single]
    assert "holds no table" in shell("predict", "run", "--data", "run").err


def test_predict_works_without_labels_and_with_columns_in_any_order(trained: Path, shell: Shell) -> None:
    (trained.parent / "new.csv").write_text("name,sex,age\nJo,male,90\nAl,female,21\nSam,,\nKim,other,50\n")

    outcome = shell("predict", str(trained), "--data", "new.csv", "--out", "answers.csv")

    answers = rows((trained.parent / "answers.csv").read_text())
    assert (outcome.code, outcome.out) == (0, "")
    assert [answer["predicted"] for answer in answers[:2]] == ["yes", "no"]
    assert "label" not in answers[0]
    assert "column 'sex': 1 of 4 cells in an unknown category" in outcome.err
    assert "4 records, without labels\nthe predictions are in answers.csv\n" in outcome.err


def test_records_with_and_without_labels_may_be_mixed(trained: Path, shell: Shell) -> None:
    (trained.parent / "new.csv").write_text("sex,age,died\nmale,90,yes\nfemale,21,\n")

    document = shell("predict", str(trained), "--data", "new.csv", "--json").json()

    assert (document["records"], document["labelled"], document["accuracy"]) == (2, 1, 1.0)
    assert document["auroc"] is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sex,died\nmale,yes\n", "new.csv has no column 'age'"),
        ("sex,age\nmale,old\n", "new.csv line 2: column 'age' must hold finite numbers, got 'old'"),
        ("sex,age,died\nmale,90,perhaps\n", "label 'died' must be one of the classes 'no', 'yes', got 'perhaps'"),
        ("", "new.csv is empty"),
    ],
)
def test_a_table_that_does_not_fit_the_run_is_one_sentence(
    trained: Path, shell: Shell, text: str, sentence: str
) -> None:
    (trained.parent / "new.csv").write_text(text)

    outcome = shell("predict", str(trained), "--data", "new.csv")

    assert (outcome.code, outcome.out) == (2, "")
    assert sentence in outcome.err and outcome.err.count("\n") == 1


def test_records_of_another_shape_type_or_number_are_one_sentence(here: Path, shell: Shell, finished: Path) -> None:
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "small": (
            {"x": np.zeros((3, 7, 7), np.uint8)},
            "reads uint8 records of shape (8, 8, 1), got 3 of uint8 and shape (7, 7, 1)",
        ),
        "floats": ({"x": np.zeros((3, 8, 8, 1), np.float32)}, "reads uint8 records"),
        "nameless": ({"z": np.zeros(3)}, "has no array x"),
        "labels": ({"x": np.zeros((3, 8, 8), np.uint8), "y": np.array([0, 1, 10])}, "in [0, 9], got 0 to 10"),
        "uneven": ({"x": np.zeros((3, 8, 8), np.uint8), "y": np.array([0, 1])}, "3 records and 2 labels"),
        "nobody": ({"x": np.zeros((0, 8, 8), np.uint8)}, "got 0 of uint8"),
    }
    for name, (arrays, sentence) in cases.items():
        np.savez(here / f"{name}.npz", **arrays)
        outcome = shell("predict", str(finished), "--data", f"{name}.npz")

        assert (outcome.code, outcome.out) == (2, ""), name
        assert sentence in outcome.err and outcome.err.count("\n") == 1
    (here / "table.csv").write_text("a,b\n1,2\n")
    refused = shell("predict", str(finished), "--data", "table.csv")
    assert "give an npz file with x of shape (records, 8, 8, 1)" in refused.err


def test_folders_without_a_model_or_its_inputs_say_what_they_lack(here: Path, shell: Shell, finished: Path) -> None:
    np.savez(here / "x.npz", x=np.zeros((1, 8, 8), np.uint8))
    for gone, sentence in {
        "config.toml": "holds no run",
        "model.npz": "the run is not finished",
        "preprocessing.json": "run it again",
    }.items():
        copy = here / f"without-{gone}"
        shutil.copytree(finished, copy)
        (copy / gone).unlink()
        for command in (("predict", str(copy), "--data", "x.npz"), ("export", str(copy), "--to", "npz")):
            outcome = shell(*command)

            assert outcome.code == 2
            assert sentence in outcome.err and outcome.err.count("\n") == 1
    assert "holds no run" in shell("predict", "nowhere", "--data", "x.npz").err


def test_a_network_that_was_given_as_an_object_is_refused_and_not_guessed(
    here: Path, shell: Shell, finished: Path
) -> None:
    shutil.copytree(finished, here / "run")
    told = json.loads((finished / "environment.json").read_text())
    (here / "run" / "environment.json").write_text(json.dumps({**told, "given": ["network"]}))

    outcome = shell("export", "run", "--to", "npz")

    assert (outcome.code, outcome.out) == (2, "")
    assert "was given as a Python object" in outcome.err


def test_predictions_never_overwrite_their_records(trained: Path, shell: Shell) -> None:
    before = (trained.parent / "patients.csv").read_text()

    outcome = shell("predict", str(trained), "--data", "patients.csv", "--out", "./patients.csv")

    assert outcome.code == 2 and "choose another" in outcome.err
    assert (trained.parent / "patients.csv").read_text() == before


def test_a_threshold_changes_the_answers_and_not_the_probabilities(patients: Path, shell: Shell, trained: Path) -> None:
    plain, low = (
        shell("predict", str(trained), "--data", "patients.csv", "--json", *more).json()
        for more in ([], ["--threshold", "0.01"])
    )

    assert low["threshold"] == 0.01 and plain["threshold"] is None
    assert low["loss"] == plain["loss"] and low["auroc"] == pytest.approx(plain["auroc"])
    assert low["quality"]["calibration_error"] == plain["quality"]["calibration_error"]
    assert low["quality"]["sensitivity"] > plain["quality"]["sensitivity"] or plain["quality"]["sensitivity"] == 1
    for one, other in zip(low["predictions"], plain["predictions"], strict=True):
        assert one["probabilities"] == other["probabilities"]
        assert one["predicted"] == ("yes" if one["probabilities"]["yes"] >= 0.01 else "no")


def test_the_run_chooses_a_threshold_on_its_training_records(patients: Path, shell: Shell, trained: Path) -> None:
    chosen = json.loads((trained / "summary.json").read_text())["quality"]["threshold"]

    told = shell("predict", str(trained), "--data", "patients.csv", "--threshold", "chosen", "--json").json()

    assert chosen["chosen_on"] == "training records"
    assert told["threshold"] == chosen["probability"]
    assert "sensitivity" in shell("predict", str(trained), "--data", "patients.csv", "--threshold", "chosen").err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--threshold", "1.5"], "--threshold must be a probability between 0 and 1, got 1.5"),
        (["--threshold", "half"], "or 'chosen', got 'half'"),
        (["--threshold", "chosen", "--best"], "is of the final model; leave --best out"),
    ],
)
def test_a_wrong_threshold_is_one_sentence(
    patients: Path, shell: Shell, trained: Path, more: list[str], sentence: str
) -> None:
    refused = shell("predict", str(trained), "--data", "patients.csv", *more)

    assert refused.code == 2 and sentence in refused.err


def test_a_private_run_looks_at_no_training_record_for_a_threshold(patients: Path, shell: Shell) -> None:
    told = ["--set", "data.schema=schema.toml", "--set", "data.test_public=true", "--set", "data.clients=8"]
    assert shell("run", "patients.toml", "--out", "private", *PRIVATE, *told, "--quiet").code == 0

    quality = json.loads((patients / "private" / "summary.json").read_text())["quality"]
    refused = shell("predict", "private", "--data", "patients.csv", "--threshold", "chosen")

    assert quality["threshold"] is None and "may not look at them" in quality["threshold_reason"]
    assert refused.code == 2 and "chose no threshold" in refused.err
