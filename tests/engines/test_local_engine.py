"""The local engine: the twin's models bit for bit, leavers, workers that die, and what a run folder tells of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import Parts, gather
from sottovoce.checks import engine_checks
from sottovoce.checks.twin import Hosted, Played, few, play, same
from sottovoce.config.engine import EngineTable
from sottovoce.core.errors import InputError, RunError
from sottovoce.federation.engines import local
from sottovoce.federation.engines.inline import InlineEngine
from sottovoce.federation.engines.kinds import LocalKind
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.federation.engines.worker import Worker
from sottovoce.federation.engines.workers import Workers
from sottovoce.planning.plan import plan
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run

REAL = {"secure": "real"}
SESSION = {"secure": "real", "key_life": "session"}
PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_local_engine_keeps_the_contract(workers: int) -> None:
    def start(parts: Parts) -> LocalEngine:
        return LocalEngine(parts.blueprint(), parts.arrays(), workers)

    engine_checks(start)


def test_the_engine_in_this_process_keeps_the_contract() -> None:
    engine_checks(lambda parts: InlineEngine(parts.blueprint(), parts.arrays()))


@pytest.mark.parametrize("aggregation", [{}, REAL, SESSION])
@pytest.mark.parametrize("scheme", ["fl-std", "fl-cs", "sign-sgd"])
def test_a_run_in_this_process_has_the_bits_of_workers(scheme: str, aggregation: dict[str, Any]) -> None:
    experiment = few(scheme, aggregation=aggregation if scheme != "sign-sgd" else {})
    inline = play(experiment, rounds=2, engine=lambda parts: InlineEngine(parts.blueprint(), parts.arrays()))
    workers = play(experiment, rounds=2, engine=lambda parts: LocalEngine(parts.blueprint(), parts.arrays(), 2))
    assert same(inline, workers) and inline.story == workers.story


def test_one_worker_is_this_process_and_a_long_run_has_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: 2)
    parts = gather(few())

    def kind(workers: int, seconds: float) -> type[Workers]:
        with LocalKind.start(EngineTable(workers=workers), parts.blueprint(), parts.arrays(), seconds) as started:
            return type(started)

    assert kind(1, 1e6) is kind(0, 0.1) is InlineEngine
    assert kind(0, 1e6) is kind(2, 0.1) is LocalEngine


def test_an_error_in_this_process_keeps_its_traceback_and_torch_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    parts = gather(few())

    def fail(*_: object) -> None:
        raise ZeroDivisionError("where a breakpoint would stand")

    with InlineEngine(parts.blueprint(), parts.arrays()) as engine:
        assert torch.get_num_threads() == 1
        monkeypatch.setattr(Worker, "scores", fail)
        with pytest.raises(ZeroDivisionError, match="breakpoint"):
            engine.scores(parts.start, "test")
        with pytest.raises(ValueError, match="read-only"):
            engine._worker._arrays["x_train"][0] = 0
    assert torch.get_num_threads() == before


def test_a_host_in_this_process_keeps_the_contract() -> None:
    engine_checks(Hosted)


def test_aborted_rounds_are_told_and_charged_only_if_they_reached_the_unmask_request(tmp_path: Path) -> None:
    early = [[1, client, "consistency"] for client in (0, 4, 5)]
    late = [[2, client, "unmask"] for client in (0, 4, 5)]
    experiment = few(
        experiment={"rounds": 3}, aggregation=REAL, privacy=PRIVATE, devices={"leave": early + late}, engine=_ONE
    )

    summary = run(experiment, tmp_path / "run")

    first, second, third = read_operator(tmp_path / "run")
    assert first["reason"] == "round 1: 6 clients signed the survivors, but the threshold is 7; nothing was released"
    assert first["failures"] == dict.fromkeys(("0", "4", "5"), "left before consistency")
    assert second["reason"] == (
        "round 2: 6 clients answered the unmask request, but the threshold is 7; nothing was released"
    )
    assert "reason" not in third
    assert _charged(tmp_path / "run") == [2, 3]
    first, second, third = read_rounds(tmp_path / "run")
    assert [record.get("aborted") for record in (first, second, third)] == [True, True, None]
    assert summary["aborted_rounds"] == 2
    assert summary["epsilon"] is summary["epsilon_spent"] is third["epsilon"] is None, "who leaves tells who was drawn"


@pytest.mark.parametrize("aggregation", [REAL, SESSION], ids=["round", "session"])
def test_a_killed_worker_ends_the_run_in_one_sentence_and_the_run_can_be_resumed(
    tmp_path: Path, aggregation: dict[str, Any]
) -> None:
    experiment = few(experiment={"rounds": 4, "checkpoint_every": 2}, aggregation=aggregation, engine={"workers": 2})

    def kill_a_worker(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            os.kill(_workers()[0], signal.SIGKILL)

    with pytest.raises(RunError, match=r"worker \d was killed by signal 9; the run can be resumed"):
        run(experiment, tmp_path / "run", observe=kill_a_worker)
    assert not _workers(), "no worker outlives its engine"

    run(experiment, tmp_path / "run", resume=True)

    assert np.array_equal(_model(tmp_path / "run"), play(experiment, rounds=4).models[-1])
    enrolled = ["enrol" in record["phases"] for record in read_rounds(tmp_path / "run")]
    assert enrolled == ([True, False, True, False] if aggregation is SESSION else [False] * 4)


def test_the_overhead_of_a_real_sum_is_in_the_summary_and_in_the_plan(tmp_path: Path) -> None:
    experiment = few(experiment={"rounds": 2}, aggregation=SESSION, engine=_ONE)
    packed = 650 * 4  # 64 * 10 + 10 coordinates of 32 bits

    summary = run(experiment, tmp_path / "run")
    costs = plan(experiment)

    records = read_rounds(tmp_path / "run")
    for record in records:
        assert record["bytes_up"] == sum(phase["up"] for phase in record["phases"].values())
        assert record["bytes_down"] == sum(phase["down"] for phase in record["phases"].values())
    up = sum(record["bytes_up"] for record in records)
    assert summary["secure_expansion"] == pytest.approx(up / (18 * packed))
    assert summary["secure_overhead_up_bytes_per_client_round"] == pytest.approx(up / 18 - packed)
    each = {phase: {way: size / 9 for way, size in sizes.items()} for phase, sizes in records[1]["phases"].items()}
    assert costs["bytes_per_client_phase"] == each
    assert costs["secure_expansion"] == pytest.approx(records[1]["bytes_up"] / (9 * packed))
    first = records[0]["phases"]
    assert costs["bytes_enrolment_per_client"] == {
        "up": first["enrol"]["up"] / 9,
        "down": (first["enrol"]["down"] + first["introduce"]["down"]) / 9,
    }
    assert costs["bytes_up_total"] == summary["bytes_up_total"]
    assert costs["bytes_down_total"] == summary["bytes_down_total"]


def test_an_ideal_sum_has_no_overhead_to_tell(tmp_path: Path) -> None:
    summary = run(few(experiment={"rounds": 1}, aggregation={"secure": "ideal"}, engine=_ONE), tmp_path / "run")

    assert summary["secure_expansion"] is None
    assert summary["secure_overhead_up_bytes_per_client_round"] is None


def test_chances_to_leave_by_phase_survive_in_the_folder(tmp_path: Path) -> None:
    experiment = few(
        experiment={"rounds": 2, "checkpoint_every": 1},
        aggregation=REAL,
        devices={"dropout": {"mask": 0.1, "unmask": 0.1}},
        engine=_ONE,
    )

    summary = run(experiment, tmp_path / "run")

    assert run(experiment, tmp_path / "run", resume=True) == summary
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('key_life = "round"\n', ""))  # as before there was such a key
    assert run(experiment, tmp_path / "run", resume=True) == summary
    assert summary["failures"] == _failures(play(experiment, rounds=2))


@pytest.mark.parametrize(
    "aggregation",
    [{"threshold": 10}, {"threshold": 4}, {"colluders": 7}, {"neighbours": 4}],
    ids=["above the cohort", "not above half", "colluders", "neighbours"],
)
def test_terms_that_cannot_be_kept_leave_no_folder(tmp_path: Path, aggregation: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refusal:
        run(few(aggregation={**REAL, **aggregation}), tmp_path / "run")

    assert refusal.value.exit_code == 2
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


_ONE = {"workers": 1}


def _workers() -> list[int]:
    """Return the worker processes that this process started."""
    me = os.getpid()
    children = [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    return [
        pid for pid in children if b"sottovoce.federation.engines.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _charged(path: Path) -> list[int]:
    lines = map(json.loads, (path / "ledger.jsonl").read_text().splitlines())
    return [line["round"] for line in lines if line["kind"] == "charge"]


def _model(path: Path) -> Any:
    with np.load(path / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files])


def _failures(played: Played) -> int:
    return sum(len(total.failures) for total in played.totals)
