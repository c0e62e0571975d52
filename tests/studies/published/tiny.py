"""Published tables of a few seconds, in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sottovoce.studies.published import setup, table

SETUP = """\
title = "digits"
differs = ["other data"]

[tables]
experiment = { rounds = 6, evaluate_every = 2, checkpoint_every = 2 }
data = { source = "digits", clients = 20 }
model = { name = "logistic" }
client = { local_steps = 2, client_lr = 0.1 }
cohort = { sample_rate = "1/2" }
engine = { workers = 1 }

[parts]
std.scheme.name = "fl-std"
sign.scheme = { name = "fl-sign", server_lr = 0.02 }
dp.privacy = { noise_multiplier = 2.0, delta = 1e-2, clip_norm = 0.5 }
greedy.privacy.delta = 0.5
ballots = { aggregation.secure = "ideal-ballot", privacy = { noise_multiplier = 2.0, delta = 1e-2 } }
"""

ONE = """\
title = "one"
source = "nowhere"
setup = { full = "digits", small = "digits" }
columns = ["accuracy", "round", "cost_up", "epsilon"]
unit = "kB"
small.experiment.rounds = 4

[[rows]]
name = "FL-STD"
uses = ["std"]
printed = { accuracy = 0.9, round = 4, cost_up = 1 }

[[rows]]
name = "FL-SIGN"
uses = ["sign"]
printed = { accuracy = 0.2, round = "?" }

[[rows]]
name = "FL-STD-DP"
uses = ["std", "dp"]
printed = { accuracy = "-", round = 3, epsilon = 1 }

[[rows]]
name = "FL-STD-DP refused"
uses = ["std", "dp", "greedy"]
printed = { accuracy = 0.5, epsilon = 1 }

[[rows]]
name = "FL-SIGN-DP by ballots"
uses = ["sign", "ballots"]
printed = { accuracy = "new" }
"""

TWO = """\
title = "two"
source = "nowhere"
setup = { full = "digits", small = "digits" }
columns = ["accuracy"]
kind = "curves"

[[rows]]
name = "the same run under another name"
uses = ["std"]
small.experiment.rounds = 4
printed = {}
"""

THREE = """\
title = "weights"
source = "nowhere"
setup = { full = "digits", small = "digits" }
columns = []
kind = "weights"

[[rows]]
name = "FL-TOP"
uses = []
set.scheme = { name = "fl-top", ratio = 0.2 }
printed = {}

[[rows]]
name = "FL-STD"
uses = ["std"]
printed = {}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put tiny tables in the place of the published ones, and return a folder for runs."""
    folder = tmp_path / "published"
    (folder / "tables").mkdir(parents=True)
    (folder / "setups").mkdir()
    (folder / "setups" / "digits.toml").write_text(SETUP)
    for name, text in (("1.1", ONE), ("1.2", TWO), ("1.3", THREE)):
        (folder / "tables" / f"{name}.toml").write_text(text)
    monkeypatch.setattr(table, "_FOLDER", folder)
    table.read_table.cache_clear()
    setup.read_setup.cache_clear()
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "runs"
    table.read_table.cache_clear()
    setup.read_setup.cache_clear()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the runs of all tests of a file: a cell that one test has run, others read."""
    return tmp_path_factory.mktemp("shared")
