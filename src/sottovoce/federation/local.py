"""Simulate on one machine: one worker a core, one thread each, records in shared memory, sums instead of updates."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.core.streams import Streams
from sottovoce.core.vectors import Vector
from sottovoce.devices import Dropout
from sottovoce.federation.coding import Coding
from sottovoce.federation.round import LEFT, Reply, Request
from sottovoce.federation.shared import Arrays, publish
from sottovoce.federation.worker import Blueprint
from sottovoce.schemes.base import Scheme, State

__all__ = ["LocalEngine", "cores"]

Result = TypeVar("Result")
Call = tuple[str, tuple[Any, ...]]

_CHUNK = 10  # clients a call: enough to share work between them, few enough to keep their updates in memory
_RECORDS = 500  # records a call, in evaluation


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Drive rounds with worker processes; use it in a `with` block."""

    def __init__(
        self, blueprint: Blueprint, arrays: Arrays, workers: int | None = None, dropout: Dropout | None = None
    ) -> None:
        self._streams = Streams(blueprint.seed)
        self._dropout = dropout or Dropout()
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

    def enrol(self, scheme: Scheme, setup: bytes, coding: Coding, *, private: bool, memory: State) -> None:
        """Send every client the set-up message."""
        self._everyone(("enrol", (scheme, setup, coding, private, memory)))

    def run(self, conversation: Generator[Request, Reply, Result]) -> Result:
        """Drive the server's side of a round to its end."""
        try:
            request = next(conversation)
            while True:
                request = conversation.send(self.send(request))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def send(self, request: Request) -> Reply:
        """Deliver a request to its clients and bring back what they answer."""
        if not request.payloads:
            return Reply({}, {}, {})
        first = request.phase in ("train", "advertise")
        if first:  # the downlink is the same for all: each worker hears it once
            down = next(iter(request.payloads.values()))
            self._everyone(("hear", (request.round, down, request.phase == "advertise")))
        failures = self._leavers(request)
        there = {client: b"" if first else data for client, data in request.payloads.items() if client not in failures}
        if request.phase == "train":
            outcomes = self._calls(self._step(request, chunk) for chunk in self._chunks(there))
        else:
            outcomes = self._sticky(request, there)
        sizes: dict[int, int] = {}
        payloads: dict[int, bytes] = {}
        for some_sizes, some_payloads, some_failures in outcomes:
            sizes.update(some_sizes)
            payloads.update(some_payloads)
            failures.update(some_failures)
        return Reply(payloads, failures, sizes, self._fold(request))

    def scores(self, params: Vector, split: str) -> NDArray[np.float32]:
        """Return the scores of all records of a split."""
        starts = range(0, self._records[split], _RECORDS)
        parts = self._calls(("scores", (params, split, start, start + _RECORDS)) for start in starts)
        return np.concatenate(parts)

    def public_norms(self, scheme: Scheme, params: Vector, shards: list[NDArray[np.int64]]) -> list[float]:
        """Return the norms of the messages that clients with these public records would send."""
        norms: list[float] = self._calls([("public_norms", (scheme, params, shards))])[0]
        return norms

    def gradient(self, params: Vector, split: str, records: NDArray[np.int64]) -> Vector:
        """Return the gradient on some records of a split."""
        gradient: Vector = self._calls([("gradient", (params, split, records))])[0]
        return gradient

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, descriptor: int) -> None:
        ours, theirs = Pipe()
        os.set_inheritable(theirs.fileno(), True)
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - "" means here
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "sottovoce.federation.process", str(theirs.fileno())],
                env={**os.environ, **one, "PYTHONPATH": search},
                pass_fds=(theirs.fileno(), descriptor),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; workers end with their pipe
            )
        )
        theirs.close()
        self._pipes.append(ours)

    def _leavers(self, request: Request) -> dict[int, str]:
        """Return the clients that are gone by this phase, and since when."""
        if not self._dropout.possible:
            return {}
        phases = {
            client: self._dropout.left(request.round, client, request.phase, self._streams)
            for client in request.payloads
        }
        return {client: LEFT + phase for client, phase in phases.items() if phase is not None}

    def _chunks(self, requests: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
        size = max(1, min(_CHUNK, math.ceil(len(requests) / (4 * len(self._pipes)))))
        items = iter(requests.items())
        while chunk := dict(itertools.islice(items, size)):
            yield chunk

    def _step(self, request: Request, chunk: dict[int, bytes]) -> Call:
        return ("step", (request.round, request.phase, chunk, request.fold))

    def _sticky(self, request: Request, requests: dict[int, bytes]) -> list[Any]:
        """Make a phase's calls on the worker that holds each client's secrets."""
        waiting = [
            deque(
                self._chunks({client: data for client, data in requests.items() if client % len(self._pipes) == index})
            )
            for index in range(len(self._pipes))
        ]
        answers: list[Any] = []
        while any(waiting):
            turn = [(pipe, queue.popleft()) for pipe, queue in zip(self._pipes, waiting, strict=True) if queue]
            for pipe, chunk in turn:
                self._send(pipe, self._step(request, chunk))
            answers.extend(self._receive(pipe) for pipe, _ in turn)
        return answers

    def _fold(self, request: Request) -> Any:
        if request.fold is None:
            return None
        folded = None
        for part in self._everyone(("collect", (request.round,))):
            if part is None:
                continue
            if folded is None:
                folded = part
            else:
                request.fold.merge(folded, part)
        return folded

    def _everyone(self, call: Call) -> list[Any]:
        """Make one call on every worker."""
        for pipe in self._pipes:
            self._send(pipe, call)
        return [self._receive(pipe) for pipe in self._pipes]

    def _calls(self, calls: Iterable[Call]) -> list[Any]:
        """Make each call on whichever worker is free; return the answers in the order of the calls."""
        waiting = deque(enumerate(calls))
        answers: dict[int, Any] = {}
        busy: dict[Connection, int] = {}
        idle = list(self._pipes)
        while waiting or busy:
            while waiting and idle:
                pipe = idle.pop()
                index, call = waiting.popleft()
                self._send(pipe, call)
                busy[pipe] = index
            ready = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                answers[busy.pop(pipe)] = self._receive(pipe)
                idle.append(pipe)
        return [answers[index] for index in sorted(answers)]

    def _send(self, pipe: Connection, call: Call) -> None:
        try:
            pipe.send(call)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(pipe) from None

    def _receive(self, pipe: Connection) -> Any:
        try:
            outcome, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death(pipe) from None
        if outcome == "refused":
            kind, message = value
            raise kind(message)
        if outcome == "broken":
            raise RunError(f"a worker failed:\n{value}")
        return value

    def _death(self, pipe: Connection) -> RunError:
        index = self._pipes.index(pipe)
        code = self._processes[index].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunError(f"worker {index} {how}; the run can be resumed (if memory ran out, use fewer workers)")
