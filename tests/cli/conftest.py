"""Call the command line as a shell does, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SMALL = """\
[experiment]
name = "small"
rounds = 6
evaluate_every = 2
checkpoint_every = 2

[data]
source = "digits"
clients = 20

[model]
name = "logistic"

[client]
local_steps = 2
client_lr = 0.2

[cohort]
sample_rate = "1/2"

[engine]
workers = 1
"""

PATIENTS = """\
[experiment]
name = "patients"
rounds = 10
evaluate_every = 5

[data]
source = "patients.csv"
label = "died"
id = "hospital"
partition = "by-id"
clients = 10

[model]
name = "logistic"

[cohort]
sample_rate = 1

[engine]
workers = 1
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
categories = ["female", "male"]
"""

COMMAND = [sys.executable, "-m", "sottovoce.cli"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Shell = Callable[..., Outcome]


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SOTTOVOCE_DEBUG")}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str], here: Path) -> Shell:
    """Run a command in this process: the same `main`, without a second of imports each time."""
    from sottovoce.cli import main

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = main(list(arguments))
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a real run that all tests may read."""
    from sottovoce.cli import main

    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(SMALL)
    assert main(["run", str(folder / "small.toml"), "--out", str(folder / "run"), "--quiet", "--json"]) == 0
    return folder / "run"


@pytest.fixture
def patients(here: Path) -> Path:
    """Write a table of 300 patients of ten hospitals with names; who is old and male dies."""
    rng = np.random.default_rng(1)
    rows = ["hospital,age,sex,died"]
    for number in range(300):
        age, male = int(rng.integers(20, 99)), bool(rng.integers(2))
        shown = "" if number % 20 == 0 else str(age)
        sex, died = "male" if male else "female", "yes" if age + 20 * male > 70 else "no"
        rows.append(f"St. {'ABCDEFGHIJ'[number % 10]},{shown},{sex},{died}")
    (here / "patients.csv").write_text("\n".join(rows) + "\n")
    (here / "patients.toml").write_text(PATIENTS)
    (here / "schema.toml").write_text(SCHEMA)
    return here


@pytest.fixture
def trained(patients: Path, shell: Shell) -> Path:
    assert shell("run", "patients.toml", "--out", "run", "--quiet").code == 0
    return patients / "run"


def process(*arguments: str, **extra: Any) -> subprocess.Popen[str]:
    """Start a command of its own, with its own process group, so that a test can press Ctrl-C."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        # A shell's background job ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **extra,
    )
