"""What a private run says on stderr follows from no client's records, and from no cohort, whatever its epsilon is.

Where the plan has no epsilon against outsiders (rounds that may lack a quorum, no answer rate), the progress took the
run for one that is not private: it told how many clients failed and what they had sent. Reading a table, it told how
many of the clients' cells lie outside their range.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.cli import output
from sottovoce.cli.app import app
from sottovoce.cli.progress import RunNumbers
from sottovoce.config.experiment import to_toml
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.runs.records import RoundRecords
from tests.runs.small import small

PRIVACY: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 1.0}
SCHEMA = (
    'others = "ignore"\n[label]\nclasses = ["no", "yes"]\n'
    '[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 100\n'
    '[columns.sex]\nkind = "category"\ncategories = ["f", "m"]\n'
)


def said(command: str, experiment: Any, folder: Path, *more: str) -> str:
    """Return what a command says on stderr, without the time that is left."""
    folder.mkdir(exist_ok=True)
    grid = "\n[sweep]\nexperiment.seed = [1, 2]\n" if command == "sweep" else ""
    (folder / "file.toml").write_text(to_toml(experiment.tables()) + grid)
    done = CliRunner().invoke(app, [command, str(folder / "file.toml"), *more])
    assert done.exit_code == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_progress_of_a_private_run_without_epsilon_tells_no_failures_and_no_bytes(tmp_path: Path, command: str) -> None:
    devices = {"profile": "phone-lte", "dropout": 0.5}
    tables: dict[str, Any] = {"privacy": PRIVACY, "devices": devices}
    told = said(command, small(**tables), tmp_path / "x", "--out", str(tmp_path / "run"))
    assert "round" in told
    assert "failed" not in told
    assert " up" not in told


def test_whoever_watches_is_told_that_a_round_is_private() -> None:
    whole = RoundRecords({"round": 1, "epsilon": None}, {"bytes_up": 7, "bytes_down": 9, "failures": [3]}).whole
    tally = RunNumbers(2)
    tally.take(whole)
    assert (tally.private, tally.bytes_up, tally.trouble) == (True, 0, "")
    public = RunNumbers(2)
    public.take(RoundRecords({"round": 1, "epsilon": None, "bytes_up": 7, "bytes_down": 9}, None).whole)
    assert (public.private, public.bytes_up) == (False, 7)


def table(folder: Path, age: str, sex: str, label: str) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(1)
    rows = [f"{rng.integers(1, 10**6) / 10**4},{'fm'[k % 2]},no" for k in range(99)]
    (folder / "own.csv").write_text("\n".join(["age,sex,sick", *rows, f"{age},{sex},{label}"]) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    return folder / "own.csv"


@pytest.mark.parametrize("command", ["run", "plan", "sweep"])
def test_a_record_changes_nothing_that_a_private_command_says(tmp_path: Path, command: str) -> None:
    told = []
    for name, row in (("a", ("50", "f", "yes")), ("b", ("900", "f", "yes")), ("c", ("50", "x", "no"))):
        own = table(tmp_path / name, *row)
        data = {"source": str(own), "label": "sick", "schema": str(own.parent / "schema.toml"), "clients": 10}
        tables: dict[str, Any] = {"data": data, "privacy": PRIVACY}
        out = [] if command == "plan" else ["--out", str(tmp_path / name / "run")]
        text = said(command, small(**tables), own.parent, *out).replace(str(own.parent), "")
        told.append([line.partition(" s left")[0].rpartition(",")[0] or line for line in text.splitlines()])
    assert told[0] == told[1] == told[2]


def test_without_privacy_what_is_odd_in_a_table_is_said(tmp_path: Path) -> None:
    own = table(tmp_path / "a", "900", "x", "no")
    data = {"source": str(own), "label": "sick", "schema": str(own.parent / "schema.toml"), "clients": 10}
    told = said("plan", small(data=data), own.parent)
    assert "outside its range" in told
    assert "unknown category" in told


def test_the_operator_at_a_terminal_hears_it_and_a_log_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (False, True):
        heard: list[str] = []
        monkeypatch.setattr(output, "_at_terminal", lambda terminal=terminal: terminal)
        with output.messages(heard.append, private=True):
            logging.getLogger("sottovoce.data").info("of clients", extra=OF_CLIENTS)
            logging.getLogger("sottovoce.data").info("of nobody")
        assert heard == (["operator only: of clients"] if terminal else []) + ["of nobody"]
