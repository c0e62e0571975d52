"""C2: "delete it to start again from round 1" destroyed a run between machines: w_0 at round 21, all rounds charged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.checks.twin import few
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.privacy.ledger import verify
from sottovoce.runs.folder import STATES, read_operator, read_rounds
from sottovoce.runs.loop import run
from tests.runs.machines import ONE, federation, private
from tests.runs.played import model
from tests.runs.small import small
from tests.runs.test_deployed import interrupt

ROUNDS, LAST = 6, 4
DEPLOYED = private(experiment={"rounds": ROUNDS, "evaluate_every": 1})
OPEN = few(clients=6, experiment={"rounds": ROUNDS, "evaluate_every": 1}, **ONE)


class StopError(Exception):
    """An interruption."""


def stop_after(round_: int) -> Callable[[dict[str, Any]], None]:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == round_:
            raise StopError

    return stop


def deploy(path: Path, experiment: Experiment = DEPLOYED, **more: Any) -> dict[str, Any]:
    return run(experiment, path, parties=federation(experiment)[0], **more)


def stopped(path: Path, experiment: Experiment = DEPLOYED) -> Path:
    """Return the folder of a run between machines that was stopped after round 4."""
    with pytest.raises(StopError):
        deploy(path, experiment, observe=stop_after(LAST))
    return path


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [spoil, cut, empty, Path.unlink]


def state_of(path: Path, name: str = STATES[0]) -> dict[str, Any]:
    with np.load(path / "checkpoint" / name) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_between_machines_goes_on_from_the_checkpoint_before(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = stopped(tmp_path / "run")
    before = state_of(path, STATES[1])
    damage(path / "checkpoint" / STATES[0])

    seen: list[np.ndarray[Any, Any]] = []
    summary = deploy(path, resume=True, callbacks=[Watch(seen)])
    rounds = read_rounds(path)

    assert int(before["round"]) == LAST - 1
    assert [record["round"] for record in rounds] == list(range(1, ROUNDS + 1))
    assert [record["round"] for record in rounds if "void" in record] == [LAST]
    assert [record["round"] for record in read_operator(path)] == list(range(1, ROUNDS + 1))
    assert summary["void_rounds"] == 1 and summary["epsilon"] is None
    assert verify(path / "ledger.jsonl").charged == list(range(1, ROUNDS + 1))
    moved = np.linalg.norm(seen[0] - before["params"])
    assert 0 < moved < np.linalg.norm(before["params"]), "round 5 began at the model of round 3"


class Watch:
    """Keeps the model after each round."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def on_round(self, record: dict[str, Any], state: dict[str, Any]) -> None:
        self.seen.append(np.array(state["params"]))


def test_a_round_that_was_open_and_one_whose_state_is_lost_are_both_void(tmp_path: Path) -> None:
    path = tmp_path / "run"
    deployed, _ = federation(DEPLOYED, lost=interrupt(LAST, "mask"))
    with pytest.raises(KeyboardInterrupt):
        run(DEPLOYED, path, parties=deployed)
    spoil(path / "checkpoint" / STATES[0])

    deploy(path, resume=True)

    assert [record["round"] for record in read_rounds(path) if "void" in record] == [LAST - 1, LAST]
    assert [record["round"] for record in read_operator(path)] == list(range(1, ROUNDS + 1))


def test_a_damaged_checkpoint_is_put_aside_and_never_takes_the_place_of_a_good_one(tmp_path: Path) -> None:
    path = stopped(tmp_path / "run")
    spoil(path / "checkpoint" / STATES[0])
    with pytest.raises(StopError):
        deploy(path, resume=True, observe=stop_after(LAST))

    assert (path / "checkpoint" / "damaged.npz").exists()
    assert int(state_of(path)["round"]) == LAST and int(state_of(path, STATES[1])["round"]) == LAST - 1


@pytest.mark.parametrize("experiment", [DEPLOYED, OPEN], ids=["private", "open"])
def test_two_damaged_checkpoints_end_the_run_and_nobody_is_told_to_delete_them(
    experiment: Experiment, tmp_path: Path
) -> None:
    path = stopped(tmp_path / "run", experiment)
    for name in STATES:
        spoil(path / "checkpoint" / name)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}

    with pytest.raises(RunError, match="restore the folder, or choose another --out") as refused:
        deploy(path, experiment, resume=True)

    assert "delete" not in str(refused.value)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("experiment", "kind"), [(DEPLOYED, PrivacyError), (OPEN, RunError)], ids=["private", "open"])
def test_a_run_between_machines_whose_states_are_gone_does_not_begin_anew(
    experiment: Experiment, kind: type[Exception], tmp_path: Path
) -> None:
    path = stopped(tmp_path / "run", experiment)
    for name in STATES:
        (path / "checkpoint" / name).unlink()

    with pytest.raises(kind, match=f"round {LAST} was begun"):
        deploy(path, experiment, resume=True)


def test_states_that_are_gone_with_the_open_round_are_noticed_by_the_ledger(tmp_path: Path) -> None:
    path = stopped(tmp_path / "run")
    shutil.rmtree(path / "checkpoint")

    with pytest.raises(PrivacyError):
        deploy(path, resume=True)


@pytest.mark.parametrize("experiment", [DEPLOYED, OPEN], ids=["private", "open"])
def test_an_open_round_that_was_forgotten_is_not_played_twice(experiment: Experiment, tmp_path: Path) -> None:
    path = stopped(tmp_path / "run", experiment)
    (path / "checkpoint" / "opened.npz").unlink()

    with pytest.raises(RunError, match="no round may be played twice"):
        deploy(path, experiment, resume=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_simulation_goes_on_from_the_checkpoint_before_and_ends_with_the_same_bits(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    often = small(
        experiment={"rounds": 8, "checkpoint_every": 2},
        privacy={"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5},
    )
    run(often, tmp_path / "whole")
    path = tmp_path / "cut"
    with pytest.raises(StopError):
        run(often, path, observe=stop_after(7))
    damage(path / "checkpoint" / STATES[0])

    run(often, path, resume=True)

    assert np.array_equal(model(tmp_path / "whole"), model(path))
    assert verify(path / "ledger.jsonl").charged == list(range(1, 9))


def test_no_advice_of_ours_is_to_delete_a_checkpoint() -> None:
    source = Path(run.__code__.co_filename).parents[1]
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]

    assert not any("delete it to start again" in text or "delete checkpoint" in text for text in texts)
