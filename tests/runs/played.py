"""What tests of whole runs share: tables, models, ledgers, and a kill at the worst moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.runs.folder import read_summary

Tables = dict[str, dict[str, Any]]

ROOT = Path(__file__).parents[2]
ONE = {"workers": 1}


def merged(*several: Tables) -> Tables:
    """Merge tables, the later over the earlier."""
    tables: Tables = {}
    for each in several:
        for name, table in each.items():
            tables[name] = {**tables.get(name, {}), **table}
    return tables


def model(path: Path) -> Any:
    """Return the final model of a run as one vector."""
    with np.load(path / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays.files)])


def ledger(path: Path) -> list[tuple[str, int | None]]:
    """Return kind and round of each line."""
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    return [(line["kind"], line.get("round")) for line in lines]


SCRIPT = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from sottovoce.runs.loop import run
from sottovoce.privacy import Ledger
from tests.runs.small import small

charge = Ledger.charge

def charge_and_die(self, round_):
    charge(self, round_)
    if round_ == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

Ledger.charge = charge_and_die
run(small(**json.loads(sys.argv[2])), sys.argv[3], resume=True)
"""


def killed(tables: Tables, path: Path, round_: int) -> None:
    """Play a run in a process that dies as soon as a round is charged."""
    command = [sys.executable, "-c", SCRIPT, str(ROOT), json.dumps(tables), str(path), str(round_)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert read_summary(path) is None
