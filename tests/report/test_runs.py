from __future__ import annotations

import json
from pathlib import Path

import pytest

from sottovoce.core.errors import InputError
from sottovoce.report import facts, label, read_run, read_runs

from .conftest import Maker


def test_a_finished_run_is_told_by_its_summary(make_run: Maker) -> None:
    (told,) = facts([read_run(make_run(summary={"accuracy_best": 0.9, "extra": 7}))])

    assert told["status"] == "finished"
    assert (told["accuracy_best"], told["extra"], told["scheme"]) == (0.9, 7, "fl-std")


def test_an_unfinished_run_is_told_by_its_rounds_and_nothing_is_invented(make_run: Maker) -> None:
    path = make_run(rounds=50, done=9, finished=False, private=True)
    with (path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 10, "coh')  # killed in the middle of a write

    (told,) = facts([read_run(path)])

    assert told["status"] == "unfinished, round 9 of 50"
    assert (told["accuracy_best"], told["best_round"], told["accuracy_final"]) == pytest.approx((0.82, 8, 0.82))
    assert (told["bytes_up_per_client_round"], told["bytes_up_total"]) == (1000, 90_000)
    assert (told["epsilon"], told["epsilon_spent"]) == (2.0, 0.9), "the plan's, and the reading so far"
    assert told["epsilon_server"] is told["paper_cost_up_bytes"] is told["bytes_setup_per_client"] is None


def test_a_run_without_a_single_round_is_still_a_run(make_run: Maker) -> None:
    path = make_run(done=0, finished=False)
    (path / "rounds.jsonl").unlink()

    (told,) = facts([read_run(path)])

    assert told["status"] == "unfinished, round 0 of 10"
    assert told["accuracy_best"] is told["bytes_up_per_client_round"] is None


def test_a_run_that_stopped_early_says_so(make_run: Maker) -> None:
    (told,) = facts([read_run(make_run(summary={"stopped_early": True}))])

    assert told["status"] == "stopped early"


def test_labels_are_names_then_folders_then_paths(make_run: Maker) -> None:
    runs, _ = read_runs([make_run("a/x", name="one"), make_run("b/y", name="two")])
    assert label(runs) == ["one", "two"]

    runs, _ = read_runs([make_run("c/x"), make_run("d/y")])
    assert label(runs) == ["x", "y"]

    runs, _ = read_runs([make_run("e/x"), make_run("f/x")])
    assert label(runs) == [str(run.path) for run in runs]


def test_a_folder_given_twice_is_read_once(make_run: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_run("b", name="first"), make_run("a", name="second")
    monkeypatch.chdir(first.parent)

    assert [run.name for run in read_runs([first, second, Path("b")])[0]] == ["first", "second"]


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path, make_run: Maker) -> None:
    make_run("many/one")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")

    for path, words in (("gone", "there is no run"), ("empty", "no config.toml"), ("file", "no run folder")):
        with pytest.raises(InputError, match=words):
            read_run(tmp_path / path)
    with pytest.raises(InputError, match=r"holds some; name them: .*many/\*"):
        read_run(tmp_path / "many")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.toml", b"not = = toml"),
        ("config.toml", b"rounds = 3\n"),
        ("config.toml", b"\xff\xfe"),
        ("rounds.jsonl", b"{]\n"),
        ("rounds.jsonl", b"[1, 2]\n"),
        ("rounds.jsonl", b'{"round": 1}\n'),
        ("rounds.jsonl", b'{"round": "1", "bytes_up": 1, "bytes_down": 1}\n'),
        ("rounds.jsonl", b"\xff\xfe\n"),
        ("summary.json", b'{"scheme": '),
        ("summary.json", b"[]"),
        ("summary.json", b'{"privacy": ["unsafe"]}'),
        ("summary.json", b"\xff"),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(make_run: Maker, file: str, content: bytes) -> None:
    path = make_run()
    (path / file).write_bytes(content)

    with pytest.raises(InputError) as caught:
        read_run(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reading_changes_nothing(make_run: Maker) -> None:
    path = make_run(finished=False)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    facts([read_run(path)])

    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    json.dumps(facts([read_run(path)]))


def test_one_damaged_run_does_not_hide_the_others_and_none_at_all_is_an_error(make_run: Maker, tmp_path: Path) -> None:
    sound, broken = make_run("sound"), make_run("broken")
    (broken / "summary.json").write_text("{")

    runs, damaged = read_runs([broken, sound, tmp_path / "gone"])

    assert [run.path for run in runs] == [sound]
    assert [(told["path"], told["status"]) for told in damaged] == [
        (str(broken), "damaged"),
        (str(tmp_path / "gone"), "damaged"),
    ]
    assert "summary.json" in damaged[0]["reason"]
    with pytest.raises(InputError, match=r"summary.json.*; there is no run folder"):
        read_runs([broken, tmp_path / "gone"])


@pytest.mark.parametrize("older", [False, True])
def test_an_unfinished_private_run_has_the_bytes_of_a_client_with_and_without_cohorts(
    make_run: Maker, older: bool
) -> None:
    (told,) = facts([read_run(make_run(private=True, finished=False, done=4, older=older))])

    assert (told["bytes_up_per_client_round"], told["bytes_down_per_client_round"]) == (1000, 4000)
    assert (told["bytes_up_total"], told["bytes_expected"]) == (40_000, not older)
    assert told["seconds"] is None


def test_a_cohort_that_the_config_does_not_tell_is_not_guessed(make_run: Maker) -> None:
    path = make_run(private=True, finished=False, done=4)
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(config.replace('"1/10"', '"often"'))

    (told,) = facts([read_run(path)])

    assert told["bytes_up_per_client_round"] is None


def test_the_best_round_of_an_unfinished_run_is_one_round_for_all_metrics(make_run: Maker) -> None:
    path = make_run(finished=False, done=2)
    records = [
        {"round": 1, "accuracy": 0.9, "balanced_accuracy": 0.5, "auroc": 0.5},
        {"round": 2, "accuracy": 0.7, "balanced_accuracy": 0.6, "auroc": 0.4},
    ]
    told = [{"cohort": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1} | record for record in records]
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in told))

    (found,) = facts([read_run(path)])

    assert (found["selected_by"], found["best_round"]) == ("balanced_accuracy", 2)
    assert (found["accuracy_best"], found["balanced_accuracy_best"], found["auroc_best"]) == (0.7, 0.6, 0.4)


def test_a_summary_cannot_pose_as_another_run_or_status(make_run: Maker) -> None:
    path = make_run(summary={"label": "x", "path": "y", "status": "damaged", "ledger": 3, "bytes_expected": True})

    (told,) = facts([read_run(path)])

    assert (told["label"], told["path"], told["status"]) == ("small", str(path), "finished")
    assert (told["ledger"], told["bytes_expected"]) == (None, False)


@pytest.mark.parametrize("private", [False, True])
def test_only_private_runs_have_a_ledger_and_an_untouched_one_is_intact(make_run: Maker, private: bool) -> None:
    (told,) = facts([read_run(make_run(private=private))])

    assert told["ledger"] == ({"intact": True, "charges": 10, "problem": None} if private else None)


def test_a_ledger_cut_short_or_gone_does_not_prove_the_rounds_that_were_run(make_run: Maker) -> None:
    path = make_run(private=True)
    ledger = path / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-2]))

    (cut,) = facts([read_run(path)])
    ledger.unlink()
    (gone,) = facts([read_run(path)])

    assert cut["ledger"]["problem"] == "ledger.jsonl has no charge for round 9, which was run"
    assert gone["ledger"] == {"intact": False, "charges": 0, "problem": "there is no ledger.jsonl"}


@pytest.mark.parametrize("key", ["aborted", "reason"])
def test_a_round_that_released_nothing_needs_no_charge(make_run: Maker, key: str) -> None:
    path = make_run(private=True, done=3)
    ledger = path / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    records[-1][key] = True
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    (told,) = facts([read_run(path)])

    assert told["ledger"]["intact"]
