"""Run experiment files, and read the folders of finished runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sottovoce.api.callbacks import adapted
from sottovoce.api.model import make
from sottovoce.api.result import Result
from sottovoce.experiment import config
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.run import Observer, default_folder
from sottovoce.experiment.run import run as play
from sottovoce.experiment.saved import read_inputs

__all__ = ["load", "result", "run"]


def load(path: Path | str, changes: Iterable[str] = ()) -> Experiment:
    """Read an experiment file, apply `table.key=value` changes, and check everything."""
    return config.load(Path(path), changes)


def run(
    experiment: Experiment | Path | str,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    observe: Observer = lambda record: None,
    callbacks: Any = (),
) -> Result:
    """Run an experiment, or the file of one, into a folder, and return its result.

    `callbacks` see each round as it may be published; `observe` sees it as the operator may. A run that was killed goes
    on with `resume=True` and ends with the same model, bit for bit.
    """
    if not isinstance(experiment, Experiment):
        experiment = load(experiment)
    folder = Path(out) if out is not None else default_folder(experiment)
    play(experiment, folder, resume=resume, observe=observe, callbacks=adapted(callbacks))
    return Result(folder)


def result(folder: Path | str, model: Any = None) -> Result:
    """Read the folder of a finished run.

    A run with a torch module knows its weights, not its code: give a module of the same class as `model` to have
    `.model` and `.predict`.
    """
    if model is None:
        return Result(folder)
    told = read_inputs(Path(folder))
    network = make(model, tuple(told["input_shape"]), told["classes"], input_scale=told["input_scale"])
    return Result(folder, network=network)
