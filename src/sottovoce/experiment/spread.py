"""Run several points of a sweep at the same time, each on its share of a cluster's workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final

from sottovoce.experiment.config import Experiment
from sottovoce.experiment.engine_table import EngineTable
from sottovoce.experiment.engines import cluster
from sottovoce.experiment.records import Record
from sottovoce.federation.local import cores

__all__ = ["shares", "spread"]

_RUNS_A_CORE: Final = 4  # that lead a run each: a server's side waits for its clients most of the time

Play = Callable[[Experiment], Record]


def spread(points: Sequence[Experiment], table: EngineTable, play: Play) -> list[Record]:
    """Play all points and return what each gives, in their order; the first error stops the others.

    The server's side of every run is a thread of this process, so that all folders are on this machine.
    """
    with cluster(table) as session:
        free: SimpleQueue[int] = SimpleQueue()
        parts = shares(table.workers or session.cpus, min(len(points), _RUNS_A_CORE * cores()))
        for share in parts:
            free.put(share)

        def played(point: Experiment) -> Record:
            session.check()
            workers = free.get()
            try:
                own = point.engine.model_copy(update={"workers": workers})
                return play(point.model_copy(update={"engine": own}))
            finally:
                free.put(workers)

        with ThreadPoolExecutor(len(parts)) as pool:
            runs = [pool.submit(copy_context().run, played, point) for point in points]
            try:
                wait(runs, return_when=FIRST_EXCEPTION)
                _raise_first(runs)
                return [run.result() for run in runs]
            except BaseException:  # Ctrl-C too: the threads end by themselves when they see it
                session.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def shares(workers: int, runs: int) -> list[int]:
    """Divide workers among runs at the same time, as evenly as it goes, at least one each.

    >>> shares(8, 3), shares(2, 5)
    ([3, 3, 2], [1, 1])
    """
    at_once = max(1, min(workers, runs))
    return [workers // at_once + (place < workers % at_once) for place in range(at_once)]


def _raise_first(runs: list[Future[Record]]) -> None:
    for run in runs:
        if run.done() and (error := run.exception()) is not None:
            raise error
