"""Simulate on one machine: one worker a core, one thread each, records in shared memory, sums instead of updates."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from sottovoce.core.errors import RunError
from sottovoce.federation.engines.process import Call, read_outcome
from sottovoce.federation.engines.shared_memory import Arrays, publish
from sottovoce.federation.engines.worker import Blueprint
from sottovoce.federation.engines.workers import Workers

# A worker has one thread; they share the cores by being several.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Not `-m`: the package imports that module itself, and python would warn of it on the terminal.
WORKER = "from sottovoce.federation.engines.process import main; main()"


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine(Workers):
    """An engine of worker processes on this machine, reached through pipes."""

    def __init__(self, blueprint: Blueprint, arrays: Arrays, workers: int | None = None) -> None:
        self._records = {split[2:]: len(array) for split, array in arrays.items() if split.startswith("x_")}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        descriptor, places = publish(arrays)
        try:
            for _ in range(workers or cores()):
                self._start(descriptor)
            self._everyone(("start", (blueprint, descriptor, places)))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    @property
    def count(self) -> int:
        """Count the workers."""
        return len(self._pipes)

    def close(self) -> None:
        """Stop the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            try:
                process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:  # it is in the middle of a long call
                process.kill()
                process.wait()
        self._pipes.clear()
        self._processes.clear()

    def _start(self, descriptor: int) -> None:
        ours, theirs = Pipe()
        os.set_inheritable(theirs.fileno(), True)
        search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - "" means here
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(theirs.fileno())],
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": search},
                pass_fds=(theirs.fileno(), descriptor),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; workers end with their pipe
            )
        )
        theirs.close()
        self._pipes.append(ours)

    def _begin(self, worker: int, call: Call) -> None:
        import cloudpickle  # a node, which imports this module too, never needs it

        pipe = self._pipes[worker]
        try:
            pipe.send_bytes(cloudpickle.dumps(call))  # a user's class may live in a notebook or a script
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(worker) from None

    def _ready(self, busy: list[int]) -> list[int]:
        ready = wait([self._pipes[worker] for worker in busy])
        return [worker for worker in busy if self._pipes[worker] in ready]

    def _receive(self, worker: int) -> tuple[bool, Any]:
        try:
            outcome = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            raise self._death(worker) from None
        return read_outcome(outcome)

    def _death(self, worker: int) -> RunError:
        code = self._processes[worker].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunError(f"worker {worker} {how}; the run can be resumed (if memory ran out, use fewer workers)")
