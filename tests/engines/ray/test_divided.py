"""Records that lie on the machines: each reads its own part, nothing of them travels, and the bits stay the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.division import divide
from sottovoce.assembly.parts import Parts, gather
from sottovoce.checks.twin import few, play, same
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import RunError
from sottovoce.federation.engines.ray import RayEngine
from sottovoce.federation.engines.ray_session import RaySession, joined
from sottovoce.runs.loop import run
from tests.engines.ray.conftest import PARTS, Machines
from tests.engines.ray.crew import Crew

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}
TOP = few("fl-top", aggregation={"secure": "real"}, privacy={**PRIVATE, "unsafe_public": True})


@pytest.fixture(scope="module")
def session(machines: Machines) -> Iterator[RaySession]:
    with joined(machines.address) as session:
        yield session


@pytest.fixture(scope="module")
def crew(session: RaySession) -> Iterator[Crew]:
    crew = Crew(session)
    yield crew
    crew.leave()


@pytest.fixture
def lead(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the machine that leads: another one than those of the two that compute."""
    (tmp_path / "lead").mkdir()
    monkeypatch.setenv(PARTS, str(tmp_path / "lead"))
    yield tmp_path / "lead"
    for folder in machines.folders:
        for part in folder.iterdir():
            shutil.rmtree(part)


@pytest.mark.parametrize("experiment", [few(), TOP], ids=["fl-std", "fl-top private real"])
def test_each_machine_computes_with_its_own_part(
    machines: Machines, crew: Crew, session: RaySession, lead: Path, experiment: Experiment
) -> None:
    _place(experiment, lead, machines, {0: 0, 1: 1})
    stored: list[int] = []

    def on_both(parts: Parts) -> RayEngine:
        engine = crew.engine(parts.blueprint(), parts.arrays())
        stored.append(len(session._kept))
        assert sorted(engine._held.workers) == [(0,), (1,)]  # type: ignore[union-attr]
        assert len(set(engine.machines)) == 2
        return engine

    there = play(_on(experiment, machines), rounds=2, engine=on_both)
    here = play(experiment, rounds=2)

    assert same(there, here)
    assert there.story == here.story
    assert np.any(there.models[0] != there.models[2])
    public = 2 if experiment is TOP else 0
    assert stored == [2 + public], "test and public records and their labels are all that was given to the machines"


def test_a_whole_run_ends_with_the_model_of_undivided_records(
    machines: Machines, crew: Crew, session: RaySession, lead: Path, tmp_path: Path
) -> None:
    experiment = few(experiment={"rounds": 2}, client={"held_out": 0.2})
    _place(experiment, lead, machines, {0: 1, 1: 0})
    crew.leave()  # a run starts workers of its own

    summary = run(_on(experiment, machines), tmp_path / "run")

    expected = play(experiment, rounds=2).models[-1]
    with np.load(tmp_path / "run" / "model.npz") as arrays:
        assert np.array_equal(np.concatenate([arrays[name].ravel() for name in arrays.files]), expected)
    assert summary["client_accuracy_clients"] == 9


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            "missing",
            r"^part-1 of 2 is on no machine of the cluster that has CPUs; copy it into \$SOTTOVOCE_TEST_PARTS ",
        ),
        ("mixed", r"^machine 127.0.0.1 \(\w+\): part-1 in \$SOTTOVOCE_TEST_PARTS is of another split than common on"),
        (
            "truncated",
            r"^machine 127.0.0.1 \(\w+\): .*/part-1/x_train.npy is not as it was written; copy part-1 again$",
        ),
        ("twice", r"^machine 127.0.0.1 \(\w+\): .*/part-1 holds part-0, which is not its name; copy part-1 there$"),
    ],
)
def test_parts_that_are_not_those_of_the_split_are_refused_before_anything_starts(
    machines: Machines, session: RaySession, lead: Path, spoil: str, words: str
) -> None:
    _place(few(), lead, machines, {0: 0, 1: 1})
    part = machines.folders[1] / "part-1"
    if spoil == "truncated":
        (part / "x_train.npy").write_bytes((part / "x_train.npy").read_bytes()[:-1])
    else:
        shutil.rmtree(part)
    if spoil == "mixed":
        divide(few(experiment={"seed": 2}), 2, lead / "other")
        shutil.copytree(lead / "other" / "part-1", part)
    if spoil == "twice":
        shutil.copytree(machines.folders[0] / "part-0", part)
    parts = gather(_on(few(), machines))

    with pytest.raises(RunError, match=words) as refusal:
        RayEngine(session, parts.blueprint(), parts.arrays())

    assert "\n" not in str(refusal.value)
    assert not session._kept


def _place(experiment: Experiment, lead: Path, machines: Machines, where: dict[int, int]) -> None:
    """Divide the records, and bring each part to a machine; who leads keeps what is in common."""
    divide(experiment, 2, lead / "split")
    (lead / "split" / "common").rename(lead / "common")
    for part, machine in where.items():
        shutil.move(lead / "split" / f"part-{part}", machines.folders[machine] / f"part-{part}")


def _on(experiment: Experiment, machines: Machines) -> Experiment:
    keys: dict[str, Any] = {"name": "ray", "address": machines.address, "data": f"${PARTS}"}
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update=keys)})
