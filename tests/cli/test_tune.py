"""`sottovoce tune`: what it prints and writes, what it refuses, and which files it opens."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

from .conftest import COMMAND, Shell, environment

FILE = """\
[experiment]
name = "mine"
rounds = 2

[data]
source = "mine.npz"
clients = 20
records_per_client = 20

[model]
name = "logistic"

[cohort]
sample_rate = "1/2"

[tune]
client.client_lr = [0.001, 0.3]

[engine]
workers = 1
"""

FASHION = """\
[experiment]
name = "fashion"
rounds = 1

[data]
source = "fashion-mnist"
clients = 10

[model]
name = "logistic"

[cohort]
sample_rate = 1

[tune]
client.client_lr = [0.1]

[engine]
workers = 2
"""

HOOK = """\
import os, sys

_log = os.open(os.environ["OPENED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def _note(event, arguments):
    if event == "open":
        os.write(_log, f"{os.getpid()} {arguments[0]}\\n".encode("utf-8", "replace"))

sys.addaudithook(_note)
"""


@pytest.fixture
def mine(here: Path) -> Path:
    (here / "mine.toml").write_text(FILE)
    return here


def test_the_chosen_file_is_written_once_with_how_it_was_chosen(shell: Shell, mine: Path) -> None:
    words = ("tune", "mine.toml", "--on", "digits", "--budget", "2", "--seeds", "1")

    first = shell(*words)
    again = shell(*words, "--json")
    other = shell(*words, "--out", "other.toml", "--json")

    assert first.code == 0
    assert "client.client_lr" in first.out and "0.3" in first.out
    assert "run 2 of 2: client_lr 0.3, seed 10001: 0." in first.err and "best so far 0." in first.err
    assert "note: 'digits' has 1438 train records: 239 score" in first.err
    text = (mine / "mine-tuned.toml").read_text()
    assert text.startswith("# Chosen by: sottovoce tune mine.toml --on digits --budget 2 --seeds 1\n")
    tables = tomllib.loads(text)
    assert tables["client"]["client_lr"] == 0.3
    assert tables["experiment"]["chosen_on"] == "digits"
    assert (again.code, again.json()["exit_code"]) == (2, 2)
    assert again.err == "error: mine-tuned.toml exists already and is not overwritten; choose another with --out\n"
    assert other.json()["chosen"] == {"client.client_lr": 0.3}
    assert (mine / "other.toml").read_text() == text, "the same cells, read again"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--on", "mine.npz"), 3, "tuning on the clients' data is not covered by epsilon"),
        (("--on", "digitz"), 2, "there is no data set 'digitz'; did you mean 'digits'?"),
        (("--on", "gone.npz"), 2, "gone.npz"),
        (("--on", "mnist", "--set", "data.source=digits"), 2, "they must match: give --on another data set"),
        (("--on", "digits", "--budget", "0"), 2, "budget must be at least 1, got 0"),
        (("--on", "digits", "--budget", "3", "--seeds", "2"), 2, "budget must be at least 4 for 2 seeds, got 3"),
        (("--on", "digits", "--set", "tune.client.client_lr=[]"), 2, "client.client_lr is an empty list"),
        (("--on", "digits", "--set", "tune.client.clientlr=[1]"), 2, "did you mean 'client_lr'?"),
        (("--on", "digits", "--set", "tune.privacy.epsilon=[1]"), 2, "privacy.epsilon is not for tuning"),
        (("--on", "digits", "--out", "no/where.toml"), 2, "there is no folder no"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    shell: Shell, mine: Path, words: tuple[str, ...], code: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOTTOVOCE_DATA", str(mine))
    monkeypatch.setenv("XDG_CACHE_HOME", str(mine / "cache"))
    if "mnist" in words:
        _pictures(mine / "mnist.npz")
    before = {path.name for path in mine.iterdir()}

    outcome = shell("tune", "mine.toml", *words)

    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert reason in outcome.err
    assert {path.name for path in mine.iterdir()} - {"cache"} == before


def test_public_data_must_be_named(shell: Shell, mine: Path) -> None:
    outcome = shell("tune", "mine.toml")

    assert outcome.code == 2 and "--on" in outcome.err


def test_an_interrupted_search_says_how_to_go_on(shell: Shell, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sottovoce.search.tune.tune", interrupted)

    outcome = shell("tune", "mine.toml", "--on", "digits", "--runs", "my runs", "--set", "client.local_steps=3", "-q")

    assert outcome.code == 4
    assert outcome.err == (
        "interrupted; go on with: sottovoce tune mine.toml --on digits --set client.local_steps=3 --budget 30 "
        "--seeds 3 --runs 'my runs' --quiet\n"
    )


def test_a_terminal_sees_a_bar_and_a_line_for_each_run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sottovoce.cli.commands.tune import _progress
    from sottovoce.search.cells import Step

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    step = Step(3, {"client.client_lr": 0.3}, 10001, 20, best={"client.client_lr": 0.1}, best_score=0.9)

    with _progress(8, quiet=False) as (observe, say):
        observe(step._replace(record={"round": 7}))
        observe(step._replace(score=0.85))
        observe(step._replace(reason="too [much]"))
        say("a message")

    told = capfd.readouterr().err
    assert "run 3 of 8" in told and "round 7/20" in told
    assert "run 3 of 8: client_lr 0.3, seed 10001: 0.8500; best so far 0.9000 with client_lr 0.1" in told
    assert "client_lr 0.3: cannot be run: too [much]" in told and "a message" in told


def test_no_file_of_the_clients_data_is_opened_by_any_process(tmp_path: Path) -> None:
    """An audit hook in every process writes down each file that is opened; a run of the file shows that it sees."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "data").mkdir()
    for name in ("fashion_mnist.npz", "mnist.npz"):
        _pictures(tmp_path / "data" / name)
    (tmp_path / "fashion.toml").write_text(FASHION)

    def opened(log: str, *words: str) -> list[tuple[str, str]]:
        extra = {
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")]),
            "SOTTOVOCE_DATA": str(tmp_path / "data"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "OPENED": str(tmp_path / log),
        }
        told = subprocess.run(
            [*COMMAND, *words], cwd=tmp_path, env=environment(**extra), capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr
        lines = (tmp_path / log).read_text().splitlines()
        return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]

    tuned = opened("tuned.log", "tune", "fashion.toml", "--on", "mnist", "--budget=1", "--seeds=1", "--records=60")
    run = opened("run.log", "run", "fashion-tuned.toml")

    def of_clients(seen: list[tuple[str, str]]) -> list[str]:
        return [path for _, path in seen if "fashion_mnist" in path or "unpacked/fashion-mnist" in path]

    assert any(path.endswith("mnist.npz") for _, path in tuned)
    assert len({process for process, _ in tuned}) >= 2, "the workers are watched too"
    assert of_clients(run), "the hook sees the file when it is opened"
    assert of_clients(tuned) == []


def _pictures(path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 255, (120, 28, 28), np.uint8), np.arange(120) % 10
    np.savez(path, x_train=x, y_train=y, x_test=x[:30], y_test=y[:30])
