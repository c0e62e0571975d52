"""A package outside the tree adds one thing of each kind by entry points; command line, file and Python use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

POINTS = """
[sottovoce.schemes]
quiet = quiet_things:Quiet
[sottovoce.attacks]
shout = quiet_things:Shout
[sottovoce.defences]
halves = quiet_things:Halves
[sottovoce.metrics]
misses = quiet_things:MISSES
[sottovoce.commands]
whisper = quiet_things:whisper
[sottovoce.loggers]
diary = quiet_things:Diary
[sottovoce.data]
dots = quiet_things:DOTS
[sottovoce.fronts]
doubles = quiet_things:doubles
[sottovoce.engines]
nearby = quiet_things:Nearby
[sottovoce.aggregators]
hushed = quiet_things:Hushed
"""

CODE = '''
import json
from pathlib import Path
import numpy as np
from sottovoce.data.catalogue import Source
from sottovoce.data.dataset import Dataset
from sottovoce.federation.aggregation.aggregator import AggregationProtocol, one_message
from sottovoce.federation.aggregation.direct import Direct, direct_costs
from sottovoce.federation.engines.inline import InlineEngine
from sottovoce.federation.engines.kinds import EngineKind
from sottovoce.models.metrics import Metric
from sottovoce.runs.loggers import Logger
from sottovoce.schemes.standard import Standard
from sottovoce.threats.attacks import SignInversion
from sottovoce.threats.defences.coordinate import Median

class Quiet(Standard):
    """The whole update, quietly."""
    name = "quiet"

class Shout(SignInversion):
    """The update with its sign changed, loudly."""
    name = "shout"

class Halves(Median):
    """The middle."""
    name = "halves"

MISSES = Metric("misses", "misses", lambda answers: float(1 - answers.correct.mean()), higher=False)

def whisper(loud: bool = False) -> None:
    """Say something in a low voice."""
    print("PSST" if loud else "psst")

class Diary(Logger):
    """Lines of a file."""
    def _open(self, config): self.lines = [config["experiment"]["name"]]
    def _log(self, record): self.lines.append(record["round"])
    def _close(self, summary): Path("diary.json").write_text(json.dumps([*self.lines, summary["rounds"]]))

def dots():
    rng = np.random.default_rng(1)
    y = np.arange(120) % 2
    x = (rng.normal(size=(120, 4, 4, 1)) * 20 + 100 + 60 * y[:, None, None, None]).astype(np.uint8)
    return Dataset("dots", x[:80], y[:80], x[80:], y[80:], 2, 1 / 255)

def doubles(x):
    rows = x.reshape(len(x), -1) / np.float32(255)
    return np.hstack([rows, rows])

class Nearby(EngineKind):
    """In this process, and it says so."""
    name = "nearby"
    @classmethod
    def start(cls, table, blueprint, arrays, seconds=0.0):
        Path("nearby.txt").write_text("started")
        return InlineEngine(blueprint, arrays)

class Hushed(AggregationProtocol):
    """A sum by somebody who is trusted, and counts what it collects."""
    name = "hushed"
    costs = staticmethod(direct_costs)
    @classmethod
    def make(cls, materials):
        return Counting(materials.coding, materials.fewest)

class Counting(Direct):
    def collect(self, round_, *rest):
        with Path("hushed.txt").open("a") as file:
            file.write(f"{round_} ")
        return super().collect(round_, *rest)

DOTS = Source("dots", (80, 40), (4, 4, 1), 2, "none needed", make=dots)
'''

FILE = """
[experiment]
name = "outside"
rounds = 2
evaluate_every = 1
loggers = ["diary"]
[data]
source = "dots"
clients = 8
[model]
name = "logistic"
front = "doubles"
[cohort]
sampling = "fixed"
sample_rate = "1/2"
[scheme]
name = "quiet"
[threat]
attack = "shout"
fraction = 0.125
[aggregation]
secure = "none"
defence = "halves"
[engine]
name = "nearby"
"""

HUSHED = """
[experiment]
name = "hushed"
rounds = 2
[data]
source = "dots"
clients = 8
[model]
name = "logistic"
[aggregation]
secure = "hushed"
"""

BROKEN = """
[sottovoce.attacks]
torn = torn_things:Torn
[sottovoce.schemes]
torn = torn_things:Torn
[sottovoce.data]
torn = torn_things:TORN
[sottovoce.engines]
torn = torn_things:Torn
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an installed package beside an experiment file."""
    home = tmp_path_factory.mktemp("outside")
    info = home / "site" / "quiet_things-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet-things\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    (home / "site" / "quiet_things.py").write_text(CODE, encoding="utf-8")
    (home / "outside.toml").write_text(FILE, encoding="utf-8")
    (home / "hushed.toml").write_text(HUSHED, encoding="utf-8")
    return home


def python(home: Path, *arguments: str) -> str:
    paths = os.pathsep.join(filter(None, (str(home / "site"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=home,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sottovoce(home: Path, *arguments: str) -> str:
    return python(home, "-m", "sottovoce.cli", *arguments)


def test_the_command_line_runs_a_file_that_names_only_things_of_the_package(home: Path) -> None:
    summary = json.loads(sottovoce(home, "run", "outside.toml", "--json"))

    assert (summary["scheme"], summary["attack"], summary["rounds"]) == ("quiet", "shout", 2)
    assert (summary["front"], summary["parameters"]) == ("doubles", 33)
    assert (home / "nearby.txt").read_text(encoding="utf-8") == "started"
    assert summary["misses_final"] == pytest.approx(1 - summary["accuracy_final"])
    assert json.loads((home / "diary.json").read_text(encoding="utf-8")) == ["outside", 1, 2, 2]


def test_set_names_them_too(home: Path) -> None:
    plain = ("--set", "scheme.name=fl-std", "--set", "data.source=digits", "--set", "experiment.loggers=[]")
    back = ("--set", "scheme.name=quiet", "--set", "data.source=dots", "--set", 'experiment.loggers=["diary"]')
    (home / "diary.json").unlink(missing_ok=True)

    summary = json.loads(sottovoce(home, "run", "outside.toml", "--json", "--out", "again", *plain, *back))

    assert summary["scheme"] == "quiet"
    assert (home / "diary.json").exists()


def test_an_aggregation_protocol_of_the_package_makes_the_sums_by_file_set_and_python(home: Path) -> None:
    code = (
        "import sottovoce as sv\n"
        "result = sv.simulate('dots', 'logistic', clients=8, rounds=1, secure='hushed', engine='nearby',\n"
        "                     front='doubles')\n"
        "print(result.summary['secure'])\n"
    )

    plain = json.loads(sottovoce(home, "run", "hushed.toml", "--json", "--set", "aggregation.secure=ideal"))
    summary = json.loads(sottovoce(home, "run", "hushed.toml", "--json", "--out", "hushed"))
    said = python(home, "-c", code)

    assert summary["secure"] == "hushed"
    assert summary["accuracy_final"] == plain["accuracy_final"]
    assert said.split() == ["hushed"]
    assert (home / "hushed.txt").read_text(encoding="utf-8").split() == ["1", "2", "1"]


def test_a_package_that_is_broken_is_listed_with_the_reason_and_harms_nothing(tmp_path: Path) -> None:
    info = tmp_path / "site" / "torn_things-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torn-things\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "site" / "torn_things.py").write_text("raise RuntimeError('half of it is missing')", encoding="utf-8")

    for command in ("schemes", "attacks", "data"):
        entries = {entry["name"]: entry for entry in json.loads(sottovoce(tmp_path, command, "--json"))}
        assert "half of it is missing" in entries["torn"]["error"]
        assert sum("error" not in entry for entry in entries.values()) > 5
        assert "torn" in sottovoce(tmp_path, command)
    assert json.loads(sottovoce(tmp_path, "explain", "engine", "--json"))


def test_lists_and_help_show_them_and_the_command_runs(home: Path) -> None:
    for command, name in (("schemes", "quiet"), ("attacks", "shout"), ("data", "dots")):
        assert name in [entry["name"] for entry in json.loads(sottovoce(home, command, "--json"))]
    assert "whisper" in sottovoce(home, "--help")
    assert sottovoce(home, "whisper", "--loud") == "PSST\n"


def test_python_takes_them_by_name(home: Path) -> None:
    code = (
        "import sottovoce as sv\n"
        "result = sv.simulate('dots', 'logistic', scheme='quiet', clients=8, rounds=1, callbacks='diary',\n"
        "                     secure='none', threat={'attack': 'shout', 'fraction': 0.125}, defence='halves',\n"
        "                     sampling='fixed', sample_rate=0.5)\n"
        "print(result.summary['scheme'], result.summary['misses_final'] is not None)\n"
    )
    (home / "diary.json").unlink(missing_ok=True)

    assert python(home, "-c", code).splitlines()[-1] == "quiet True"
    assert (home / "diary.json").exists()
