"""Where malicious clients leave the protocol: the update that they send, and the words that it becomes.

An engine hands the behaviour to its workers, so it must be plain data that can be pickled. Which clients of a round
are malicious stands in the request (`Request.malicious`); honest clients never come here. What travels when, and how
large it is, is seen by whoever wraps the engine itself, as `leaving` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Coding, Terms
from sottovoce.models import Shard, Trainer
from sottovoce.schemes.base import Message, Task


@dataclass(frozen=True, eq=False)
class Scene:
    """What the malicious clients of a round know and can compute: the task, each other, and each other's records.

    What they compute together is computed once for all clients that a process acts for.
    """

    round: int
    malicious: tuple[int, ...]  # all of this round, ascending
    pool: tuple[int, ...]  # whose records they put together, ascending: theirs, or those of all rounds' attackers
    task: Task
    trainable: NDArray[np.bool_] | None
    trainer: Trainer
    climber: Callable[[], Trainer]  # the same training, up the loss
    records: Callable[[int], Shard]  # those of a malicious client, as it labels them
    batches: Callable[[int], Generator]  # a client's own choice of batches
    adversary: Streams

    @property
    def dim(self) -> int:
        """Return the length of an update."""
        return self.task.params.size

    def noise(self, client: int) -> Generator:
        """Return a malicious client's own randomness in this round."""
        return self.adversary.get(Purpose.ATTACK, self.round, client)

    def alone(self, clients: Sequence[int], *, ascend: bool = False) -> Iterator[Vector]:
        """Yield the update of each client from its own records."""
        return self._train([self.records(client) for client in clients], list(map(self.batches, clients)), ascend)

    def together(self, *, ascend: bool = False) -> Vector:
        """Return the update from the union of the records of the pool."""
        return self._up if ascend else self._down

    @cached_property
    def everyone(self) -> list[Vector]:
        """Return the updates that all malicious clients would make alone; a single one trains twice, to see a spread.

        They take memory for as many models as there are malicious clients.
        """
        if len(self.malicious) > 1:
            return list(self.alone(self.malicious))
        (only,) = self.malicious
        return list(self._train([self.records(only)] * 2, [self.batches(only), self.noise(only)], ascend=False))

    @cached_property
    def _down(self) -> Vector:
        return self._union(ascend=False)

    @cached_property
    def _up(self) -> Vector:
        return self._union(ascend=True)

    def _union(self, *, ascend: bool) -> Vector:
        if len(self.pool) == 1:
            return next(self.alone(self.pool, ascend=ascend))
        owned = [self.records(client) for client in self.pool]
        union = Shard(np.concatenate([shard.x for shard in owned]), np.concatenate([shard.y for shard in owned]))
        return next(self._train([union], [self.adversary.get(Purpose.BATCH, self.round)], ascend))

    def _train(self, shards: list[Shard], rngs: list[Generator], ascend: bool) -> Iterator[Vector]:
        trainer = self.climber() if ascend else self.trainer
        return trainer.updates(self.task.params, shards, rngs, self.trainable)


class Behaviour(Protocol):
    """What malicious clients do in place of the protocol."""

    def updates(self, scene: Scene, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the update of each of these malicious clients, in place of what honest training gives."""
        ...

    def words(self, scene: Scene, client: int, message: Message, coding: Coding, terms: Terms) -> NDArray[Any]:
        """Return what is packed or masked, in place of `coding.words(message, terms, scene.round, client)`."""
        ...
