"""A thin device does all of a client's work without torch and numba, and sends the same bytes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, TwinAccount
from sottovoce.config.experiment import parse
from sottovoce.core import native
from sottovoce.federation.engine import drive
from sottovoce.federation.round import server_round
from sottovoce.models import choose
from sottovoce.models.fast import unavailable
from tests.federation.lean_client import HEAVY, Case, digest

ROOT = Path(__file__).parents[2]
CLIENT = 3
PRIVATE = {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}, "aggregation": {"secure": "real"}}
SECURE = {"aggregation": {"secure": "real"}}
# The first makes its set-up from the experiment's tables, as a device does; the others are told it.
CASES: dict[str, dict[str, Any]] = {
    "mlp": {"model": {"name": "mlp"}, **PRIVATE},
    "cnn": {"model": {"name": "cnn"}, **PRIVATE, "scheme": {"name": "fl-rnd", "ratio": 0.02}},
    "hospital-mlp": {"model": {"name": "hospital-mlp"}, **SECURE, "scheme": {"name": "fl-rnd", "ratio": 0.01}},
    "scattering": {"model": {"front": "scattering", "projection": {"dims": 40, "samples": 60}}, **SECURE},
    **{
        name: {"scheme": {"name": name}, **PRIVATE}
        for name in ("fl-cs", "fl-freq")
    },
    "fl-sign": {"scheme": {"name": "fl-sign"}, "privacy": {"noise_multiplier": 1.0, "delta": 1e-3}, **SECURE},
    **{name: {"scheme": {"name": name}, **SECURE} for name in ("fl-top", "sign-sgd", "fl-basic", "fl-top-bis")},
}  # fmt: skip


@dataclass
class Recorder(Hand):
    """The slow engine, which keeps what one client heard and sent."""

    heard: list[tuple[int, str, bytes, str]] = field(default_factory=list)

    def _answer(self, request: Any, client: int, payload: bytes, reply: Any) -> bytes | None:
        answer = super()._answer(request, client, payload, reply)
        if client == CLIENT and answer is not None:
            self.heard.append((request.round, request.phase, payload, digest(answer)))
        return answer


def _recorded(name: str, tables: dict[str, Any], folder: Path) -> Case:
    base: dict[str, dict[str, Any]] = {
        "experiment": {"name": name, "rounds": 2},
        "data": {"source": "digits", "clients": 6},
        "model": {"name": "logistic"},
        "client": {"local_steps": 2, "client_lr": 0.1, "trainer": "fast"},
        "cohort": {"sample_rate": 1},
    }
    if name == "hospital-mlp":
        lines = [f"{k % 7},{k % 5},{k % 3},{k % 2}" for k in range(240)]
        (folder / "patients.csv").write_text("\n".join(["a,b,c,died", *lines]))
        base["data"] |= {"source": str(folder / "patients.csv"), "label": "died"}
        base["client"]["trainer"] = "auto"  # dropout is not for the fast one
    for table, keys in tables.items():
        base[table] = {**base.get(table, {}), **keys}
    parts = gather(parse(base))
    with Recorder(parts) as engine:
        ready = stages(protect(parts))[TRAINING].server_side(engine)
        ready.enrol(engine)
        server = ready.server.with_account(TwinAccount())
        state = server.init(parts.start)
        for round_ in (1, 2):
            state = drive(engine, server_round(server, state, round_)).state
        told = None if name == "mlp" else (parts.blueprint(), parts.arrays(["train"]), ready.enrolment)
        return Case(name, base if told is None else None, told, CLIENT, engine.heard)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lean")
    file = folder / "cases"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "installed", lambda module: False)  # torch rounds otherwise than numpy
        file.write_bytes(pickle.dumps([_recorded(name, tables, folder) for name, tables in CASES.items()]))
    return file


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("level", ["2", "none"])
def test_a_client_without_torch_and_numba_sends_the_same_bytes(cases: Path, level: str) -> None:
    environment = {
        **os.environ,
        native.LEVEL: level,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    command = [sys.executable, str(ROOT / "tests/federation/lean_client.py"), str(cases)]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for case in pickle.loads(cases.read_bytes()):
        assert case.heard, case.name
        assert told["sent"][case.name] == [answer for *_, answer in case.heard], case.name
    assert told["loaded"] == [], HEAVY
    assert told["memory"] <= 120
