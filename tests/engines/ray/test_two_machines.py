"""A cluster of two machines: the bits of the local engine, what is lost with a worker or a machine, sweeps."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import Parts
from sottovoce.checks.twin import few, play, same
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engines.ray import RayEngine
from sottovoce.federation.engines.ray_session import joined
from sottovoce.runs.loop import run
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.search.sweep import sweep
from tests.engines.ray.conftest import Machines
from tests.engines.ray.crew import Crew
from tests.engines.ray.processes import actors

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}


def test_two_machines_make_the_bits_of_one(machines: Machines) -> None:
    with joined(machines.address) as session, Crew(session) as crew:

        def on_both(parts: Parts) -> RayEngine:
            engine = crew.engine(parts.blueprint(), parts.arrays())
            assert len(set(engine.machines)) == 2
            return engine

        for scheme, own in (("fl-std", {}), ("fl-sign", {"clip_norm": None}), ("fl-top", {"unsafe_public": True})):
            privacy = {key: value for key, value in {**PRIVATE, **own}.items() if value is not None}
            for secure in ("ideal", "real"):
                experiment = few(scheme, aggregation={"secure": secure}, privacy=privacy)
                there, here = play(experiment, rounds=2, engine=on_both), play(experiment, rounds=2)
                assert same(there, here), (scheme, secure)
                assert there.story == here.story, (scheme, secure)
                assert np.any(there.models[0] != there.models[2]), (scheme, secure)

        with pytest.raises(InputError, match=r'already, and \[engine\] address = "local" never joins one'):
            joined("local").__enter__()


def test_the_points_of_a_sweep_run_at_the_same_time_and_end_as_they_do_here(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"experiment": {"seed": [1, 2]}}
    there = few(experiment={"rounds": 4}, engine=_both(machines)).model_copy(update={"sweep": table})
    order: list[str] = []
    both, close = threading.Barrier(2), RayEngine.close

    def close_together(engine: RayEngine) -> None:
        both.wait(timeout=60)  # a point that runs alone waits in vain
        close(engine)

    monkeypatch.setattr(RayEngine, "close", close_together)
    summaries = sweep(there, tmp_path / "there", observe=lambda name, record: order.append(name))

    names = ["few-seed-1", "few-seed-2"]
    assert [summary["name"] for summary in summaries] == names
    assert all(order.count(name) == 4 for name in names)
    for seed, name in enumerate(names, 1):
        here = play(few(experiment={"seed": seed}), rounds=4).models[-1]
        assert np.array_equal(_model(tmp_path / "there" / name), here)


def test_auto_finds_the_cluster_and_a_class_of_the_users_own_plays_there(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True, eq=False, kw_only=True)
    class Halved(Scheme):
        """A scheme that no machine can import: it travels as code."""

        name: ClassVar[str] = "halved"

        def encode(self, update: Vector, seed: int, rng: np.random.Generator) -> Message:
            return update * np.float32(0.5)

        def decode(self, mean: Vector, state: State, seed: int, rng: np.random.Generator) -> State:
            return {"params": state["params"] + mean}

    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # otherwise a token of this machine would be shown
    given = Given(scheme=Halved())
    run(few(experiment={"rounds": 2}, engine={"name": "ray", "address": "auto"}), tmp_path / "there", given=given)
    run(few(experiment={"rounds": 2}, engine={"workers": 1}), tmp_path / "here", given=given)

    assert np.array_equal(_model(tmp_path / "there"), _model(tmp_path / "here"))
    assert np.any(_model(tmp_path / "here") != play(few(), rounds=2).models[-1])


def test_a_point_that_cannot_be_run_stops_a_sweep(machines: Machines, tmp_path: Path) -> None:
    table = {"data": {"clients": [9, 100_000]}}
    experiment = few(experiment={"rounds": 100_000}, engine=_both(machines)).model_copy(update={"sweep": table})

    with pytest.raises(InputError, match=r"^clients must be at most the \d+ train records, got 100000"):
        sweep(experiment, tmp_path / "sweep")


def test_a_machine_with_another_version_is_refused_before_round_1(machines: Machines, tmp_path: Path) -> None:
    other = tmp_path / "sottovoce-0.0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: sottovoce\nVersion: 0.0.1\n")
    node = machines.cluster.add_node(
        num_cpus=1, node_ip_address="127.0.0.1", env_vars={"PYTHONPATH": str(tmp_path)}, resources={"old": 1}
    )
    try:
        with pytest.raises(RunError) as refusal:
            run(few(engine=_both(machines)), tmp_path / "run")
    finally:
        machines.cluster.remove_node(node)

    assert str(refusal.value).startswith("every machine must compute the same bits: machine 127.0.0.1 (")
    assert "has sottovoce 0.0.1 and this one" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_killed_worker_ends_the_run_in_one_sentence_and_the_run_can_be_resumed(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = _experiment(machines)

    with joined(machines.address):
        with monkeypatch.context() as patched:
            _in_round_3(patched, lambda: os.kill(actors(machines.mark)[0], signal.SIGKILL))
            _run_and_lose(experiment, tmp_path / "run")
        assert not _left(machines.mark), "no worker outlives its engine"

        run(experiment, tmp_path / "run", resume=True)

    assert np.array_equal(_model(tmp_path / "run"), play(experiment, rounds=4).models[-1])


def test_a_machine_that_is_lost_ends_the_run_in_one_sentence_and_the_run_can_be_resumed(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = _experiment(machines)
    second = next(iter(machines.cluster.worker_nodes))

    with monkeypatch.context() as patched:
        _in_round_3(patched, lambda: machines.cluster.remove_node(second, allow_graceful=False))
        _run_and_lose(experiment, tmp_path / "run")
    assert not _left(machines.mark)

    run(experiment, tmp_path / "run", resume=True)  # on the machine that is left

    assert np.array_equal(_model(tmp_path / "run"), play(experiment, rounds=4).models[-1])


def _both(machines: Machines) -> dict[str, Any]:
    return {"name": "ray", "address": machines.address}


def _experiment(machines: Machines) -> Experiment:
    return few(experiment={"rounds": 4, "checkpoint_every": 2}, aggregation={"secure": "real"}, engine=_both(machines))


def _in_round_3(patched: pytest.MonkeyPatch, strike: Any) -> None:
    """Strike once, when clients of round 3 have begun to mask."""
    begin, struck = RayEngine._begin, []

    def begin_and_strike(engine: RayEngine, worker: int, call: Any) -> None:
        begin(engine, worker, call)
        if call[0] == "step" and call[1][:2] == (3, "mask") and not struck:
            struck.append(worker)
            strike()

    patched.setattr(RayEngine, "_begin", begin_and_strike)


def _run_and_lose(experiment: Experiment, folder: Path) -> None:
    with pytest.raises(RunError) as refusal:
        run(experiment, folder)
    words = str(refusal.value)
    assert words.startswith("worker ")
    assert " was lost, with its process or its machine 127.0.0.1 (" in words
    assert "--resume" in words
    assert "\n" not in words


def _left(mark: str) -> list[int]:
    end = time.monotonic() + 10
    while actors(mark) and time.monotonic() < end:
        time.sleep(0.1)
    return actors(mark)


def _model(path: Path) -> Any:
    with np.load(path / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files])
