"""Run experiment files, and read the folders of finished runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sottovoce.api.callbacks import adapted, watched
from sottovoce.api.model import make
from sottovoce.api.result import Result
from sottovoce.assembly.model import task_keys
from sottovoce.config import experiment as config
from sottovoce.config.experiment import Experiment
from sottovoce.config.model import ModelTable
from sottovoce.core.target import Target
from sottovoce.report.runs import read_run
from sottovoce.runs.loop import Observer, default_folder
from sottovoce.runs.loop import run as play
from sottovoce.runs.saved_model import read_inputs


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
    verbose: bool | None = None,
) -> Result:
    """Run an experiment, or the file of one, into a folder, and return its result.

    `callbacks` see each round as it may be published; `observe` sees it as the operator may. A run that was killed goes
    on with `resume=True` and ends with the same model, bit for bit. `verbose` shows a line of progress (None: on a
    terminal and in a notebook, if it takes longer than two seconds).
    """
    if not isinstance(experiment, Experiment):
        experiment = load(experiment)
    folder = Path(out) if out is not None else default_folder(experiment)
    play(experiment, folder, resume=resume, observe=observe, callbacks=watched(adapted(callbacks), verbose))
    return Result(folder)


def result(folder: Path | str, model: Any = None) -> Result:
    """Read the folder of a finished run.

    A run with a torch module knows its weights, not its code: give a module of the same class as `model` to have
    `.model` and `.predict`.
    """
    if model is None:
        return Result(folder)
    told = read_inputs(Path(folder))
    table = ModelTable.model_validate(read_run(Path(folder)).table("model"))
    network = make(
        model,
        tuple(told["input_shape"]),
        told["classes"],
        input_scale=told["input_scale"],
        task=task_keys(table),
        target=Target.of(told.get("target")),
    )
    return Result(folder, network=network)
