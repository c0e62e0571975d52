"""Start what the `[engine]` table names, around any blueprint."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sottovoce.core.errors import InputError
from sottovoce.experiment.engine_table import EngineTable
from sottovoce.federation.inline import InlineEngine
from sottovoce.federation.local import LocalEngine, cores
from sottovoce.federation.shared import Arrays
from sottovoce.federation.worker import Blueprint
from sottovoce.federation.workers import Workers

if TYPE_CHECKING:
    from sottovoce.federation.ray_session import Session

__all__ = ["cluster", "start_workers"]

_WORTH_PROCESSES: Final = 3.0
"""Seconds on one core above which a run is divided among processes: starting one takes about half a second."""


@contextmanager
def start_workers(
    table: EngineTable, blueprint: Blueprint, arrays: Arrays, seconds: float = math.inf
) -> Iterator[Workers]:
    """Start the workers that hold clients and data, and stop them; also a federation is simulated on this machine.

    `seconds` is about what the whole run takes on one core: a short one is played in this process.
    """
    if table.name != "ray":
        with _local(table.workers, blueprint, arrays, seconds) as local:
            yield local
        return
    with cluster(table) as session:
        from sottovoce.federation.ray import RayEngine

        with RayEngine(session, blueprint, arrays, table.workers or None) as engine:
            yield engine


def _local(workers: int, blueprint: Blueprint, arrays: Arrays, seconds: float) -> Workers:
    """Return the engine for some workers on this machine; 0 leaves the choice to what the run costs."""
    alone = workers == 1 or (workers == 0 and (cores() == 1 or seconds < _WORTH_PROCESSES))
    return InlineEngine(blueprint, arrays) if alone else LocalEngine(blueprint, arrays, workers or None)


@contextmanager
def cluster(table: EngineTable) -> Iterator[Session]:
    """Start or join the Ray cluster that the table names."""
    try:
        from sottovoce.federation.ray_session import joined
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "ray":
            raise
        raise InputError(
            "[engine] name = \"ray\" needs the package ray; install it with: pip install 'sottovoce[ray]'"
        ) from None
    with joined(table.address, table.workers) as session:
        yield session
