"""Start what the `[engine]` table names, around any blueprint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sottovoce.core.errors import InputError
from sottovoce.experiment.engine_table import EngineTable
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.shared import Arrays
from sottovoce.federation.worker import Blueprint
from sottovoce.federation.workers import Workers

if TYPE_CHECKING:
    from sottovoce.federation.ray_session import Session

__all__ = ["cluster", "start_workers"]


@contextmanager
def start_workers(table: EngineTable, blueprint: Blueprint, arrays: Arrays) -> Iterator[Workers]:
    """Start the workers that hold clients and data, and stop them; also a federation is simulated on this machine."""
    if table.name != "ray":
        with LocalEngine(blueprint, arrays, table.workers or None) as local:
            yield local
        return
    with cluster(table) as session:
        from sottovoce.federation.ray import RayEngine

        with RayEngine(session, blueprint, arrays, table.workers or None) as engine:
            yield engine


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
