"""Play the clients' side of a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sottovoce.core import wire
from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.models import Network, Shard, Trainer
from sottovoce.schemes.base import Message, Scheme, State, Task

__all__ = ["Answer", "Clients", "read_setup", "setup_message"]


def setup_message(scheme: Scheme, seed: int) -> bytes:
    """Return what every client is told once: the seed of w_0 and of all shared choices, and the scheme's own set-up."""
    return wire.pack(np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32), bits=32) + scheme.setup()


def read_setup(scheme: Scheme, network: Network, payload: bytes) -> Scheme:
    """Return the client's bound scheme: w_0 and the coordinate set come from the set-up message alone."""
    size = wire.frame_size(2, bits=32)
    low, high = wire.unpack(payload[:size], length=2, bits=32).tolist()
    seed = low | high << 32
    start = network.initialise(Streams(seed).get(Purpose.INIT))
    return scheme.enrol(payload[size:], dim=network.dim, seed=seed, start=start)


class Answer(NamedTuple):
    """Hold a client's payload, or the reason why there is none."""

    payload: bytes | None
    reason: str | None = None


@dataclass
class Clients:
    """Hold what all clients of a process share, and act for any of them.

    Only public things are kept from round to round: the bound scheme and the replica that some schemes' clients keep.
    """

    scheme: Scheme
    trainer: Trainer
    shard: Callable[[int], Shard]
    streams: Streams
    mean_size: float | None  # the public mean of |D_k|; None: every client counts the same
    memory: State = field(default_factory=dict)
    _heard: tuple[int, Task] | None = None

    def hear(self, round_: int, down: bytes) -> None:
        """Take in a downlink; every client hears it, also those who are not asked."""
        task = self.scheme.receive(down, self.memory)
        self.memory = task.memory
        self._heard = (round_, task)

    def train(self, round_: int, clients: Sequence[int]) -> list[Message | SottovoceError]:
        """Train each client and return its message, or the error that stopped it."""
        if self._heard is None or self._heard[0] != round_:
            raise RunError(f"clients were asked to train in round {round_} before they heard its downlink")
        task = self._heard[1]
        shards = [self.shard(client) for client in clients]
        rngs = [self.streams.get(Purpose.BATCH, round_, client) for client in clients]
        updates = self.trainer.updates(task.params, shards, rngs, self.scheme.trainable(task.seed))
        messages: list[Message | SottovoceError] = []
        for client, shard, update in zip(clients, shards, updates, strict=True):
            try:
                messages.append(self._encode(round_, client, len(shard.y), update, task.seed))
            except SottovoceError as error:
                messages.append(error)
        return messages

    def _encode(self, round_: int, client: int, records: int, update: Vector, seed: int) -> Message:
        if self.mean_size is not None and records != self.mean_size:
            update = update * np.float32(records / self.mean_size)
        return self.scheme.encode(update, seed, self.streams.get(Purpose.ENCODE, round_, client))

    def step(self, round_: int, clients: Sequence[int]) -> list[Answer]:
        """Train each client and seal its message in the clear."""
        return [_seal(message, self.scheme) for message in self.train(round_, clients)]


def _seal(message: Message | SottovoceError, scheme: Scheme) -> Answer:
    if isinstance(message, SottovoceError):
        return Answer(None, str(message))
    if scheme.form == "ballots":
        return Answer(wire.frame(message, length=scheme.length, bits=1))
    return Answer(wire.pack(message))
