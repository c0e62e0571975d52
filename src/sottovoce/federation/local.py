"""Simulate on one machine: one worker a core, one thread each, records in shared memory, sums instead of updates."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Self

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Enrolment, Reply, Request
from sottovoce.federation.shared import Arrays, publish
from sottovoce.federation.worker import Blueprint
from sottovoce.schemes.base import Scheme

__all__ = ["LocalEngine", "cores"]

Call = tuple[str, tuple[Any, ...]]
Queue = deque[tuple[int, Call]]

_CHUNK = 10  # clients a call: enough to share work between them, few enough to keep their updates in memory
_RECORDS = 500  # records a call at least, in evaluation


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """An engine of worker processes on this machine; an evaluator too, as the workers hold the data."""

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

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every client the set-up message."""
        self._everyone(("enrol", (enrolment,)))

    def send(self, request: Request) -> Reply:
        """Deliver a request to its clients and bring back what they answer."""
        if not request.payloads:
            return Reply({}, {})
        if request.opening:
            self._tell(request)
        there = {
            client: b"" if request.opening else payload
            for client, payload in request.payloads.items()
            if client not in request.silent
        }
        sizes: dict[int, int] = {}
        failures: dict[int, str] = {}
        for taken, payloads, some_failures in self._answers(request, there):
            failures.update(some_failures)
            for client, payload in payloads.items():
                try:
                    request.take(client, payload)
                except SottovoceError as error:
                    failures[client] = str(error)
                    del taken[client]
            sizes.update(taken)
        if request.sum is not None:
            for pipe in self._pipes:  # one after the other: each partial sum is as large as the model
                self._send(pipe, ("collect", (request.round,)))
                if (partial := self._receive(pipe)[1]) is not None:
                    request.sum.merge(partial)
        return Reply(sizes, failures)

    def scores(self, params: Vector, split: str) -> NDArray[np.float32]:
        """Return the scores of all records of a split."""
        records = self._records[split]
        size = max(_RECORDS, math.ceil(records / (2 * len(self._pipes))))  # few calls: each carries the model
        parts = self._calls(("scores", (params, split, start, start + size)) for start in range(0, records, size))
        return np.concatenate(parts)

    def public_norms(
        self, scheme: Scheme, params: Vector, shards: list[NDArray[np.int64]], seeds: list[int]
    ) -> list[float]:
        """Return the norms of the messages that clients with these public records would send.

        Every shard and every round seed is used: number i pairs shard and seed i, and the shorter list starts again.
        """
        return self._norms("public_norms", scheme, params, shards, seeds)

    def client_norms(self, scheme: Scheme, params: Vector, clients: list[int], seeds: list[int]) -> list[float]:
        """Return the norms of the messages that these clients would send; not private. Pairs as in `public_norms`."""
        return self._norms("client_norms", scheme, params, clients, seeds)

    def public_message(
        self, scheme: Scheme, params: Vector, seed: int, records: NDArray[np.int64], round_: int
    ) -> Vector:
        """Return the message that a client with these public records would send in a round."""
        message: Vector = self._calls([("public_message", (scheme, params, seed, records, round_))])[0]
        return message

    def client_accuracies(self, params: Vector, clients: list[int], personal_steps: int = 0) -> list[float]:
        """Return each client's accuracy on what it kept out, of the model or of its personal one; not private."""
        parts = self._calls(
            ("client_accuracies", (params, clients[start : start + _CHUNK], personal_steps))
            for start in range(0, len(clients), _CHUNK)
        )
        return [accuracy for part in parts for accuracy in part]

    def _norms(self, call: str, scheme: Scheme, params: Vector, owners: Sequence[Any], seeds: list[int]) -> list[float]:
        numbers = range(max(len(owners), len(seeds)))
        size = _CHUNK if len(seeds) == 1 else 1  # a set of its own for each: nothing to share
        parts = self._calls(
            (call, (scheme, params, seeds[start % len(seeds)], {n: owners[n % len(owners)] for n in some}))
            for start in numbers[::size]
            for some in [numbers[start : start + size]]
        )
        return [norm for part in parts for norm in part]

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

    def _tell(self, request: Request) -> None:
        """Let each worker hear an opening once, on behalf of the asked clients that it may act for."""
        opening = next(iter(request.payloads.values()))
        told = list(zip(self._pipes, self._owned(request, request.payloads), strict=True))
        told = [(pipe, part) for pipe, part in told if part]
        for pipe, part in told:
            self._send(pipe, ("hear", (request.round, request.phase, list(part), opening)))
        for pipe, _ in told:
            self._receive(pipe)

    def _owned(self, request: Request, payloads: dict[int, bytes]) -> list[dict[int, bytes]]:
        """Return whom each worker may act for: anyone, or the pinned clients whose secrets it keeps."""
        if not request.pinned:
            return [payloads] * len(self._pipes)
        owned: list[dict[int, bytes]] = [{} for _ in self._pipes]
        for client, payload in payloads.items():
            owned[client % len(owned)][client] = payload
        return owned

    def _chunks(self, requests: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
        size = max(1, min(_CHUNK, math.ceil(len(requests) / (4 * len(self._pipes)))))
        items = iter(requests.items())
        while chunk := dict(itertools.islice(items, size)):
            yield chunk

    def _answers(self, request: Request, requests: dict[int, bytes]) -> Iterator[Any]:
        """Ask the clients; pinned ones live on one worker, from round to round."""
        if not request.pinned:
            queue = self._queue(request, requests)
            queues = [queue] * len(self._pipes)
        else:
            queues = [self._queue(request, part) for part in self._owned(request, requests)]
        for _, answer in self._work(queues):
            yield answer

    def _queue(self, request: Request, requests: dict[int, bytes]) -> Queue:
        fold = None if request.sum is None else request.sum.fold
        chunks = self._chunks(requests)
        told = (request.round, request.phase)
        return deque(enumerate(("step", (*told, chunk, fold, request.malicious)) for chunk in chunks))

    def _everyone(self, call: Call) -> list[Any]:
        """Make one call on every worker."""
        for pipe in self._pipes:
            self._send(pipe, call)
        return [self._receive(pipe)[1] for pipe in self._pipes]

    def _calls(self, calls: Iterable[Call]) -> list[Any]:
        """Make each call on whichever worker is free; return the answers in the order of the calls."""
        queue: Queue = deque(enumerate(calls))
        answers = dict(self._work([queue] * len(self._pipes)))
        return [answers[index] for index in sorted(answers)]

    def _work(self, queues: list[Queue]) -> Iterator[tuple[int, Any]]:
        """Make each worker's calls, one at a time, and yield answers as they come, some in parts.

        Workers may share a queue.
        """
        busy: dict[Connection, tuple[int, Queue]] = {}

        def next_call(pipe: Connection, queue: Queue) -> None:
            if queue:
                index, call = queue.popleft()
                self._send(pipe, call)
                busy[pipe] = (index, queue)

        for pipe, queue in zip(self._pipes, queues, strict=True):
            next_call(pipe, queue)
        while busy:
            ready = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                index, queue = busy[pipe]
                last, answer = self._receive(pipe)
                if last:
                    del busy[pipe]
                    next_call(pipe, queue)  # before the answer is looked at: nobody waits for us
                yield index, answer

    def _send(self, pipe: Connection, call: Call) -> None:
        try:
            pipe.send_bytes(cloudpickle.dumps(call))  # a user's class may live in a notebook or a script
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(pipe) from None

    def _receive(self, pipe: Connection) -> tuple[bool, Any]:
        """Return an answer or a part of one, and whether it is the last."""
        try:
            outcome, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death(pipe) from None
        if outcome == "refused":
            kind, message = value
            raise kind(message)
        if outcome == "broken":
            raise RunError(f"a worker failed:\n{value}")
        return outcome == "done", value

    def _death(self, pipe: Connection) -> RunError:
        index = self._pipes.index(pipe)
        code = self._processes[index].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunError(f"worker {index} {how}; the run can be resumed (if memory ran out, use fewer workers)")
