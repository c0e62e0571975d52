"""Measure what each scheme adds to a round of W, in CPU time beside FL-STD's training.

Counted are: what the server packs and each worker reads before the round, what is done to each client's update after
it was trained (encode, pack, check and add), and what the server makes of the sum. FL-STD itself adds something: six
megabytes a client to pack and add. Every scheme is charged against the training of FL-STD; where a mask makes training
cheaper, that is not set off.
"""

from __future__ import annotations

import statistics
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts
from sottovoce.federation.coding import Clear, Terms
from sottovoce.federation.sums import mean
from sottovoce.models import Shard, make_trainer
from sottovoce.schemes import Scheme, State, coordinates, known, make

__all__ = ["Overhead", "overheads"]

CHUNK = 10  # clients that a worker trains at once
WORKERS = 2


class Overhead(NamedTuple):
    """Hold seconds of CPU time: of one client, of everything else in a round, and the whole as a share of a round."""

    client: float
    round: float
    share: float


def overheads(parts: Parts, repeats: int, cohort: int = 100) -> tuple[float, dict[str, Overhead]]:
    """Return the seconds that FL-STD trains a client, and what each scheme adds."""
    trainer = make_trainer(parts.network, parts.training())
    rng = np.random.default_rng(0)
    shards = [
        Shard(parts.dataset.x_train[records], parts.dataset.y_train[records])
        for records in map(parts.partition.records, range(CHUNK))
    ]
    schemes = [_Running(name, parts, rng) for name in known() if name != "fl-cs"]
    trained: list[float] = []
    for turn in range(repeats + 1):
        began = process_time()
        updates = list(trainer.updates(parts.start, shards, [np.random.default_rng(k) for k in range(CHUNK)]))
        spent = process_time() - began
        for scheme in schemes:
            scheme.play(updates, cohort, keep=turn > 0)  # the first turn compiles
        if turn:
            trained.append(spent / CHUNK)
    training = statistics.median(trained)
    return training, {scheme.name: scheme.overhead(training, cohort) for scheme in schemes}


class _Running:
    """Play one scheme's rounds on given updates."""

    def __init__(self, name: str, parts: Parts, rng: Generator) -> None:
        self.name = name
        dim = parts.network.dim
        self._scheme: Scheme = make(name).bind(dim, start=parts.start, importance=rng.random(dim, np.float32))
        self._state: State = self._scheme.init(parts.start)
        self._memory: State = {}
        self._round = 0
        self._rng = rng
        self._client: list[float] = []
        self._rest: list[float] = []

    def play(self, updates: NDArray[np.float32], cohort: int, *, keep: bool) -> None:
        """Play a round, as server and as one worker."""
        scheme = self._scheme
        self._round += 1
        seed, coding = scheme.round_seed(self._round), Clear(scheme.form, scheme.length, cohort)
        fold = coding.fold
        total, times = fold.empty(), [process_time()]

        def lap() -> None:
            times.append(process_time())

        coordinates.drawn.cache_clear()
        down = scheme.downlink(self._state, seed)
        lap()
        coordinates.drawn.cache_clear()  # a worker is another process
        task = scheme.receive(down, self._memory)
        scheme.trainable(task.seed)
        lap()
        for update in updates:
            message = scheme.encode(update, task.seed, self._rng)
            fold.add(total, coding.pack(coding.words(message, Terms(cohort, 0.0), self._round, 0)))
            lap()
        average = mean(fold.total(total), len(updates))
        self._state = {**self._state, **scheme.decode(average, self._state, seed, self._rng)}
        lap()
        self._memory = task.memory
        server_before, worker, first, *clients, server_after = np.diff(times).tolist()
        if keep:
            self._client += clients
            # The first client of a worker pays for what the others find in a cache.
            extra = first - statistics.median(clients)
            self._rest.append(server_before + server_after + WORKERS * (worker + max(0.0, extra)))

    def overhead(self, training: float, cohort: int) -> Overhead:
        """Return the medians."""
        client, rest = statistics.median(self._client), statistics.median(self._rest)
        added = cohort * client + rest
        return Overhead(client, rest, added / (cohort * training + added))
