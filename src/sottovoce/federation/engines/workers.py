"""An engine of workers: who does what, and in which order; how calls reach a worker is a matter of each such engine.

A worker makes one call at a time. An answer may come in parts, so that nobody need hold a cohort's vectors.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SottovoceError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Enrolment, Reply, Request
from sottovoce.federation.engines.placement import Holding
from sottovoce.federation.engines.process import Call
from sottovoce.schemes.base import Scheme

Queue = deque[tuple[int, Call]]

_CHUNK = 10  # clients a call: enough to share work between them, few enough to keep their updates in memory
_MOST = 64  # in rounds of so many that each worker has its share of calls also then
_CALLS = 16  # such calls for each worker
_RECORDS = 500  # records a call at least, in evaluation


class Workers(ABC):
    """An engine of workers that hold clients and data, and so an evaluator too; a subclass carries the calls."""

    _records: dict[str, int]  # how many each split has
    _held: Holding | None = None  # which workers have whose records; None: all have everyone's

    @property
    @abstractmethod
    def count(self) -> int:
        """Count the workers; they are numbered from 0."""

    @abstractmethod
    def close(self) -> None:
        """Stop the workers."""

    @abstractmethod
    def _begin(self, worker: int, call: Call) -> None:
        """Let a worker that is free begin a call."""

    @abstractmethod
    def _ready(self, busy: list[int]) -> Collection[int]:
        """Wait until at least one of the busy workers has something to receive; return those that have."""

    @abstractmethod
    def _receive(self, worker: int) -> tuple[bool, Any]:
        """Return a worker's answer or the next part of it, and whether it is the last."""

    def _shared(self, value: Any) -> Any:
        """Return what stands for a value that several calls carry as an argument of its own."""
        return value

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every client the set-up message."""
        self._everyone(("enrol", (self._shared(enrolment),)))

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
            for worker in range(self.count):  # one after the other: each partial sum is as large as the model
                self._begin(worker, ("collect", (request.round,)))
                if (partial := self._receive(worker)[1]) is not None:
                    request.sum.merge(partial)
        return Reply(sizes, failures)

    def scores(self, params: Vector, split: str) -> NDArray[np.float32]:
        """Return the scores of all records of a split."""
        records, model = self._records[split], self._shared(params)
        size = max(_RECORDS, math.ceil(records / (2 * self.count)))  # few calls: each carries the model
        parts = self._calls(("scores", (model, split, start, start + size)) for start in range(0, records, size))
        return np.concatenate(parts)

    def public_norms(
        self, scheme: Scheme, params: Vector, shards: list[NDArray[np.int64]], seeds: list[int]
    ) -> list[float]:
        """Return the norms of the messages that clients with these public records would send.

        Every shard and every round seed is used: number i pairs shard and seed i, and the shorter list starts again.
        """
        return self._norms("public_norms", scheme, params, shards, seeds, Holding.of_all(self.count))

    def client_norms(self, scheme: Scheme, params: Vector, clients: list[int], seeds: list[int]) -> list[float]:
        """Return the norms of the messages that these clients would send; not private. Pairs as in `public_norms`."""
        return self._norms("client_norms", scheme, params, clients, seeds, self._holding)

    def public_message(
        self, scheme: Scheme, params: Vector, seed: int, records: NDArray[np.int64], round_: int
    ) -> Vector:
        """Return the message that a client with these public records would send in a round."""
        return self._vector(("public_message", (scheme, params, seed, records, round_)))

    def client_accuracies(self, params: Vector, clients: list[int], personal_steps: int = 0) -> list[float]:
        """Return each client's accuracy on what it kept out, of the model or of its personal one; not private."""
        model = self._shared(params)

        def call(places: list[int]) -> Call:
            return "client_accuracies", (model, [clients[place] for place in places], personal_steps)

        return self._each(call, _CHUNK, clients, self._holding)

    def gradient(self, params: Vector, split: str, records: NDArray[np.int64]) -> Vector:
        """Return the gradient on some records of a split."""
        return self._vector(("gradient", (params, split, records)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _holding(self) -> Holding:
        """Return which workers may act for whom."""
        return self._held or Holding.of_all(self.count)

    def _norms(
        self, name: str, scheme: Scheme, params: Vector, owners: Sequence[Any], seeds: list[int], held: Holding
    ) -> list[float]:
        count = max(len(owners), len(seeds))
        paired = [owners[place % len(owners)] for place in range(count)]
        size = _CHUNK if len(seeds) == 1 else 1  # a set of its own for each: nothing to share
        told = (self._shared(scheme), self._shared(params))

        def call(places: list[int]) -> Call:
            return name, (*told, seeds[places[0] % len(seeds)], {place: paired[place] for place in places})

        return self._each(call, size, paired if held.parts > 1 else [0] * count, held)

    def _each(self, call: Callable[[list[int]], Call], size: int, clients: Sequence[int], held: Holding) -> list[float]:
        """Return a number for each place in a list of clients, by calls for `size` places where their records are."""
        asked: list[list[int]] = []
        queues: list[Queue] = [deque() for _ in range(held.parts)]
        for part, queue in enumerate(queues):
            places = [place for place, client in enumerate(clients) if client % held.parts == part]
            for start in range(0, len(places), size):
                some = places[start : start + size]
                queue.append((len(asked), call(some)))
                asked.append(some)
        found: dict[int, float] = {}
        for index, numbers in self._work(_of_workers(queues, held, self.count)):
            found.update(zip(asked[index], numbers, strict=True))
        return [found[place] for place in range(len(clients))]

    def _tell(self, request: Request) -> None:
        """Let each worker hear an opening once, on behalf of the asked clients that it may act for."""
        opening = self._shared(next(iter(request.payloads.values())))
        told = [(worker, part) for worker, part in enumerate(self._owned(request, request.payloads)) if part]
        for worker, part in told:
            self._begin(worker, ("hear", (request.round, request.phase, list(part), opening)))
        for worker, _ in told:
            self._receive(worker)

    def _owned(self, request: Request, payloads: dict[int, bytes]) -> list[dict[int, bytes]]:
        """Return whom each worker may act for: whose records it has, or the pinned clients whose secrets it keeps."""
        held = self._holding
        if not request.pinned and held.parts == 1:
            return [payloads] * self.count
        owned: list[dict[int, bytes]] = [{} for _ in range(self.count)]
        for client, payload in payloads.items():
            keepers = (held.keeper(client),) if request.pinned else held.workers[client % held.parts]
            for worker in keepers:
                owned[worker][client] = payload
        return owned

    def _chunks(self, requests: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
        size = max(1, min(_CHUNK, math.ceil(len(requests) / (4 * self.count))))
        size = max(size, min(_MOST, len(requests) // (_CALLS * self.count)))
        items = iter(requests.items())
        while chunk := dict(itertools.islice(items, size)):
            yield chunk

    def _answers(self, request: Request, requests: dict[int, bytes]) -> Iterator[Any]:
        """Ask the clients; pinned ones live on one worker, from round to round."""
        held = self._holding
        if not request.pinned:
            parts = [{client: requests[client] for client in some} for some in held.by_part(requests)]
            queues = _of_workers([self._queue(request, part) for part in parts], held, self.count)
        else:
            queues = [[self._queue(request, part)] for part in self._owned(request, requests)]
        for _, answer in self._work(queues):
            yield answer

    def _queue(self, request: Request, requests: dict[int, bytes]) -> Queue:
        fold = None if request.sum is None else request.sum.fold
        chunks = self._chunks(requests)
        told = (request.round, request.phase)
        return deque(enumerate(("step", (*told, chunk, fold, request.malicious)) for chunk in chunks))

    def _everyone(self, call: Call) -> list[Any]:
        """Make one call on every worker."""
        for worker in range(self.count):
            self._begin(worker, call)
        return [self._receive(worker)[1] for worker in range(self.count)]

    def _calls(self, calls: Iterable[Call]) -> list[Any]:
        """Make each call on whichever worker is free; return the answers in the order of the calls."""
        queue: Queue = deque(enumerate(calls))
        answers = dict(self._work([[queue]] * self.count))
        return [answers[index] for index in sorted(answers)]

    def _vector(self, call: Call) -> Vector:
        """Make a call that gives a vector, and return it as the caller's own: what travelled may be read-only."""
        return np.array(self._calls([call])[0], np.float32)

    def _work(self, queues: list[list[Queue]]) -> Iterator[tuple[int, Any]]:
        """Make the calls of each worker's queues, one at a time, and yield answers as they come, some in parts.

        Workers may share queues; who has several takes from the longest.
        """
        busy: dict[int, int] = {}

        def next_call(worker: int) -> None:
            queue = max(queues[worker], key=len, default=None)
            if queue:
                index, call = queue.popleft()
                self._begin(worker, call)
                busy[worker] = index

        for worker in range(len(queues)):
            next_call(worker)
        while busy:
            ready = self._ready(list(busy))
            for worker in [worker for worker in busy if worker in ready]:
                index = busy[worker]
                last, answer = self._receive(worker)
                if last:
                    del busy[worker]
                    next_call(worker)  # before the answer is looked at: nobody waits for us
                yield index, answer


def _of_workers(queues: list[Queue], held: Holding, count: int) -> list[list[Queue]]:
    """Return for each worker the queues of the parts that it holds."""
    return [
        [queue for queue, there in zip(queues, held.workers, strict=True) if worker in there] for worker in range(count)
    ]
