"""The two journals: what is on disk when anybody hears of a round, and a loop that does not know which one it has."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.runs.folder import read_rounds
from sottovoce.runs.loop import play_rounds, run
from sottovoce.schemes import State
from tests.runs.machines import federation, private
from tests.runs.small import small


class Looks:
    """Callback that looks into the folder when it hears of a round."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[tuple[int, int, int]] = []  # the round, the rounds on disk, the round of the checkpoint

    def on_round(self, record: dict[str, Any], _: State) -> None:
        checkpoint = self._path / "checkpoint" / "state.npz"
        saved = int(np.load(checkpoint)["round"]) if checkpoint.exists() else 0
        self.seen.append((record["round"], len(read_rounds(self._path)), saved))


def test_between_machines_a_round_and_its_checkpoint_are_on_disk_before_anybody_hears_of_it(tmp_path: Path) -> None:
    looks, experiment = Looks(tmp_path / "run"), private()
    run(experiment, tmp_path / "run", parties=federation(experiment)[0], callbacks=[looks])

    assert looks.seen == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_a_simulation_makes_its_checkpoints_after_everybody_has_heard(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "run")
    run(small(engine={"workers": 1}), tmp_path / "run", callbacks=[looks])

    assert looks.seen == [(1, 1, 0), (2, 2, 0), (3, 3, 2), (4, 4, 2), (5, 5, 4), (6, 6, 4)]


def test_the_loop_over_rounds_is_short_and_knows_no_mode() -> None:
    source = inspect.getsource(play_rounds)

    assert source.count("\n") <= 60
    assert not [word for word in ("machines", "parties", "deployed", "plan", "ledger") if word in source]
