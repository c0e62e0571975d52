"""Read the CPU time and memory of this process and its workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Cost",
    "Peak",
    "children",
    "cost_of",
    "cpu_of",
    "family",
    "family_cpu",
    "load",
    "memory",
    "quiet_threads",
    "watch",
]

_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Hold what a piece of work took."""

    wall: float
    cpu: float


class Peak:
    """Hold the most megabytes seen so far: of a process, of its descendants, and of both at one moment."""

    parent = workers = together = 0.0

    def see(self, pid: int) -> None:
        """Look once."""
        parent, workers = memory([pid]), memory(family(pid)[1:])
        self.parent, self.workers = max(self.parent, parent), max(self.workers, workers)
        self.together = max(self.together, parent + workers)


def quiet_threads() -> None:
    """Keep numpy and torch to one thread; call it before importing either."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def children() -> list[int]:
    """Return the process ids of living children."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def family(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    found = [pid]
    for parent in found:
        with suppress(OSError):  # it ended meanwhile
            for task in Path(f"/proc/{parent}/task").iterdir():
                found.extend(map(int, (task / "children").read_text().split()))
    return found


def family_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, those that ended and were waited for included."""
    return sum(_cpu(member, ended=True) for member in family(pid))


@contextmanager
def watch(pid: int, every: float = 0.03) -> Iterator[Peak]:
    """Watch the memory of a process and its descendants."""
    peak, over = Peak(), threading.Event()

    def look() -> None:
        while not over.wait(every):
            peak.see(pid)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def load() -> str:
    """Say how busy the machine is: ratios of interleaved work stand under load, absolute times do not."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def cost_of(work: Callable[[], object], processes: Iterable[int] = ()) -> Cost:
    """Run `work` and return wall and CPU seconds, of this process and of the given ones."""
    pids = list(processes)
    wall, cpu = time.perf_counter(), time.process_time() + sum(map(_cpu, pids))
    work()
    return Cost(time.perf_counter() - wall, time.process_time() + sum(map(_cpu, pids)) - cpu)


def cpu_of(processes: Iterable[int]) -> float:
    """Return the CPU seconds that processes have taken."""
    return sum(map(_cpu, processes))


def memory(processes: Iterable[int]) -> float:
    """Return the megabytes that processes hold together; pages they share count once."""
    total = 0
    for pid in processes:
        with suppress(OSError):  # it ended meanwhile
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def _cpu(pid: int, *, ended: bool = False) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return 0.0
    return sum(map(int, fields[11 : 15 if ended else 13])) / _TICKS
