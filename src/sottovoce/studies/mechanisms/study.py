"""Play all cells of a mechanisms study, and keep what they came to in a folder.

config.toml       the settings, complete
environment.json  what it ran on
cells.jsonl       one object a cell, written as it is done
summary.json      written last: a folder with a summary is a finished study
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sottovoce.config.experiment import to_toml
from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file
from sottovoce.runs.folder import take_lock
from sottovoce.search.runner import Tell, play_each
from sottovoce.studies.mechanisms.play import Iteration, Player, make_player, play
from sottovoce.studies.mechanisms.records import Records, load_records
from sottovoce.studies.mechanisms.settings import NOISELESS, Cell, Settings, read_settings

Facts = dict[str, Any]


def study_cells(
    settings: Settings, cells: Sequence[Cell] | None = None, tell: Tell = lambda done, total, what: None
) -> list[Facts]:
    """Play cells (all of the settings' unless given) and return their facts, in plain JSON; nothing is written."""
    wanted = list(settings.cells()) if cells is None else list(cells)
    records = load_records(settings)
    player = make_player(settings, records)
    return play_each(wanted, lambda cell: cell_facts(settings, records, cell, player), _words, tell)


def run_study(
    settings: Settings, out: Path, *, resume: bool = False, tell: Tell = lambda done, total, what: None
) -> list[Facts]:
    """Play all cells of a study, keep them in a folder, and return their facts.

    With `resume` the cells that the folder has are not played again.
    """
    _open(settings, out, resume=resume)
    with take_lock(out, out):
        return _run(settings, out, tell)


def _run(settings: Settings, out: Path, tell: Tell) -> list[Facts]:
    found = _kept(out)
    have = {_key(facts) for facts in found}
    cells = [cell for cell in settings.cells() if _key_of(cell) not in have]
    if cells:
        began, records = time.perf_counter(), load_records(settings)
        player = make_player(settings, records)
        with (out / "cells.jsonl").open("a", encoding="utf-8") as lines:

            def kept(cell: Cell) -> Facts:
                facts = cell_facts(settings, records, cell, player)
                lines.write(json.dumps(facts) + "\n")
                lines.flush()
                return facts

            found += play_each(cells, kept, _words, tell)
        tell(len(cells), len(cells), f"all cells in {time.perf_counter() - began:.0f} s")
    order = {_key_of(cell): place for place, cell in enumerate(settings.cells())}
    found.sort(key=lambda facts: order[_key(facts)])
    summary = {"mode": settings.mode, "data": settings.data, "cells": found}
    replace_file(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    return found


def read_cells(folder: Path) -> list[Facts]:
    """Return the cells that a study's folder holds."""
    try:
        lines = (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
    except (OSError, ValueError):
        raise InputError(f"{folder} holds no cells of a study; give the folder of one") from None


def cell_facts(settings: Settings, records: Records, cell: Cell, player: Player) -> Facts:
    """Play one cell and return what it came to, in plain JSON."""
    began = time.perf_counter()
    iterations = list(play(settings, records, cell, player))
    federated = [_mean(iteration.federated) for iteration in iterations]
    right, noisy = settings.mode == "right", cell.mechanism not in NOISELESS
    holders, delta = records.holders(cell.clients, cell.samples), settings.delta * (cell.mechanism == "gaussian")
    return {
        "data": settings.data,
        "mode": settings.mode,
        "mechanism": cell.mechanism,
        "epsilon": cell.epsilon,
        "epsilons": list(cell.epsilons),
        "clients": cell.clients,
        "samples": cell.samples,
        "accuracy": _mean(federated),  # as the thesis' tables have it: the mean over the iterations
        "accuracy_last": federated[-1],
        "local_accuracy_last": _mean(iterations[-1].local),
        "iterations": [_iteration_facts(iteration) for iteration in iterations],
        # What is proven of all that is sent, for one record: each client that has it adds its own; None: nothing.
        "epsilon_proven": holders * max(cell.epsilons) if right and noisy else None,
        "delta": holders * delta if right and noisy else None,
        "sum_only": cell.mechanism == "gamma-shares",  # the guarantee is of the sum, and needs a secure sum
        "holders": holders,  # clients that have the same record
        "simulated": True,  # noise from a seed and in floating point: not private, whatever epsilon says
        "seconds": time.perf_counter() - began,
    }


def _iteration_facts(iteration: Iteration) -> Facts:
    return {
        "federated": _mean(iteration.federated),
        "federated_by_client": list(iteration.federated),
        "local_by_client": list(iteration.local),
        "noise_stddev": iteration.stddev,
        "sensitivity": iteration.sensitivity,
    }


def _kept(out: Path) -> list[Facts]:
    """Return the cells that a folder holds, and cut off a line that was not finished."""
    text = (out / "cells.jsonl").read_text(encoding="utf-8") if (out / "cells.jsonl").exists() else ""
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    replace_file(out / "cells.jsonl", "".join(whole))
    return [json.loads(line) for line in whole]


def _open(settings: Settings, out: Path, *, resume: bool) -> None:
    """Make the folder, or see that one that is to be gone on with was started with these settings."""
    tables = {"study": settings.model_dump(mode="json")}
    if (out / "config.toml").exists():
        if not resume:
            raise InputError(f"output folder {out} already holds a study; add --resume, or choose another --out")
        # Parsed, so that keys which did not exist when the study was started have their defaults.
        if read_settings(out / "config.toml") != settings:
            raise InputError(f"{out} was started with other settings; resume with the same, or choose another --out")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"output folder {out} is not empty and holds no study; choose another with --out")
    packages = ("sottovoce", "numpy", "scipy", "dp-accounting")
    environment = {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": {name: version(name) for name in packages},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "environment.json", json.dumps(environment, indent=2) + "\n")
        replace_file(out / "config.toml", to_toml(tables))
    except OSError as error:
        raise InputError(f"output folder {out} cannot be written: {error.strerror}; choose another --out") from None


def _key(facts: Facts) -> tuple[Any, ...]:
    return facts["mechanism"], tuple(facts["epsilons"]), facts["clients"], facts["samples"]


def _key_of(cell: Cell) -> tuple[Any, ...]:
    return cell.mechanism, cell.epsilons, cell.clients, cell.samples


def _words(cell: Cell) -> str:
    epsilon = "" if cell.epsilon is None else f", epsilon {cell.epsilon:g}"
    return f"{cell.mechanism}{epsilon}, {cell.clients} clients, {cell.samples} records"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
