"""A server killed at any step and resumed: its ledger is never shorter, and no round number is used twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.privacy.ledger import verify
from sottovoce.runs.folder import read_operator, read_rounds
from tests.runs.killed_server import POINTS
from tests.runs.played import ROOT, ledger

NEXT_ROUND = ("checkpoint",)  # killed when round 2 was over: nothing is void


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play all points in one process, which forks each life of a server."""
    path = tmp_path_factory.mktemp("killed")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "tests.runs.killed_server", str(path)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **one}, timeout=600)
    return path


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_server_goes_on_with_the_next_round_and_forgets_no_charge(point: str, folder: Path) -> None:
    path = folder / str(list(POINTS).index(point))
    life = json.loads((path / "life.json").read_text())
    summary, rounds = life["summary"], read_rounds(path)
    before = (path / "ledger.before").read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    charges = [number for kind, number in ledger(path) if kind == "charge"]
    void = point not in NEXT_ROUND

    assert life["asked"] == [3, 4]
    assert (path / "ledger.jsonl").read_bytes().startswith(whole)
    assert verify(path / "ledger.jsonl").problem is None
    assert len(set(charges)) == len(charges)
    assert {1, 3, 4} <= set(charges)
    assert sum(kind == "torn" for kind, _ in ledger(path)) == ("within" in point)
    assert [record["round"] for record in rounds] == [1, 2, 3, 4]
    assert [record["round"] for record in read_operator(path)] == [1, 2, 3, 4]
    assert [record.get("void", False) for record in rounds] == [False, void, False, False]
    assert summary["void_rounds"] == void
    assert (summary["epsilon"] is None) == void
    assert summary["rounds"] == 4
    # The draws of the void round count, whether or not it was charged.
    assert [number for kind, number in ledger(path) if kind == "draws"] == [1, 2, 3, 4]
