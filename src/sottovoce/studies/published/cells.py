"""Run the cells of published tables: one run folder for each experiment, whichever tables ask for it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.folder import Record
from sottovoce.experiment.run import run

__all__ = ["CELLS", "Cells", "Outcome", "Play"]

CELLS: Final = "cells"  # the folder of the run folders
_TIMES: Final = "times.jsonl"

Play = Callable[[Experiment, Record], None]  # is told each round


class Outcome(NamedTuple):
    """What came of a cell: its summary, or why there is none."""

    experiment: Experiment
    folder: Path
    summary: Record | None = None
    reason: str | None = None
    problem: InputError | PrivacyError | None = None


@dataclass(frozen=True)
class Cells:
    """The run folders of all cells, below one folder.

    `times.jsonl` beside them keeps how long each took here. It is the operator's, like `operator.jsonl` of a private
    run: the time of a run depends on who was drawn.
    """

    out: Path

    def folder(self, experiment: Experiment) -> Path:
        """Return the run folder of a cell."""
        return self.out / CELLS / experiment.experiment.name

    def play(self, experiment: Experiment, observe: Play = lambda experiment, record: None) -> Outcome:
        """Run a cell, go on with it or read it; what refuses it (the accountant, missing data) is its reason."""
        folder = self.folder(experiment)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out} cannot be written: {error.strerror}; choose another --out") from None
        done = (folder / "summary.json").exists()
        began = time.perf_counter()
        try:
            summary = run(experiment, folder, resume=True, observe=lambda record: observe(experiment, record))
        except (InputError, PrivacyError) as error:
            return Outcome(experiment, folder, reason=str(error), problem=error)
        finally:
            if not done:
                self._took(experiment, time.perf_counter() - began)
        _forget(folder)
        return Outcome(experiment, folder, summary)

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each cell took here, by its name; parts of a run that was interrupted add up."""
        try:
            lines = (self.out / _TIMES).read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        total: dict[str, float] = {}
        for line in lines:
            try:
                entry: dict[str, Any] = json.loads(line)
                total[entry["cell"]] = total.get(entry["cell"], 0.0) + float(entry["seconds"])
            except (ValueError, KeyError, TypeError):  # a torn line costs its own time only
                continue
        return total

    def _took(self, experiment: Experiment, seconds: float) -> None:
        if not self.folder(experiment).exists():
            return  # nothing was begun
        with (self.out / _TIMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"cell": experiment.experiment.name, "seconds": round(seconds, 3)}) + "\n")


def _forget(folder: Path) -> None:
    """Remove what a finished cell needs no more: thirty checkpoints fill a disk. The best round's model stays."""
    (folder / "model.npz").unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
