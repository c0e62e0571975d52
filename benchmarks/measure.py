"""Read the CPU time and memory of this process and its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Cost", "children", "cost_of", "memory", "quiet_threads"]

_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Hold what a piece of work took."""

    wall: float
    cpu: float


def quiet_threads() -> None:
    """Keep numpy and torch to one thread; call it before importing either."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"


def children() -> list[int]:
    """Return the process ids of living children."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def cost_of(work: Callable[[], object], processes: Iterable[int] = ()) -> Cost:
    """Run `work` and return wall and CPU seconds, of this process and of the given ones."""
    pids = list(processes)
    wall, cpu = time.perf_counter(), time.process_time() + sum(map(_cpu, pids))
    work()
    return Cost(time.perf_counter() - wall, time.process_time() + sum(map(_cpu, pids)) - cpu)


def memory(processes: Iterable[int]) -> float:
    """Return the megabytes that processes hold together; pages they share count once."""
    total = 0
    for pid in processes:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
