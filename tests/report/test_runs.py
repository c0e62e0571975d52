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
    assert told["epsilon"] == 0.9
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
    runs = read_runs([make_run("a/x", name="one"), make_run("b/y", name="two")])
    assert label(runs) == ["one", "two"]

    runs = read_runs([make_run("c/x"), make_run("d/y")])
    assert label(runs) == ["x", "y"]

    runs = read_runs([make_run("e/x"), make_run("f/x")])
    assert label(runs) == [str(run.path) for run in runs]


def test_a_folder_given_twice_is_read_once(make_run: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_run("b", name="first"), make_run("a", name="second")
    monkeypatch.chdir(first.parent)

    assert [run.name for run in read_runs([first, second, Path("b")])] == ["first", "second"]


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
        ("rounds.jsonl", b'{"round": "1", "cohort": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1}\n'),
        ("rounds.jsonl", b"\xff\xfe\n"),
        ("summary.json", b'{"scheme": '),
        ("summary.json", b"[]"),
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
