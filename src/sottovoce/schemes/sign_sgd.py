"""signSGD: one bit for each coordinate, up and down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import numpy as np
from numpy.random import Generator

from sottovoce.core import wire
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector
from sottovoce.schemes import packed_signs
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.schemes.keys import VOTE_STEP, positive


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SignSGD(Scheme):
    """Majority vote of all clients in every round, by the signs of one mini-batch gradient; only the vote is sent back.

    Symbols: gamma = `server_lr`, n = `dim`.
    Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018; thesis, section 4.1.1.
    A client keeps a replica of the model and moves it by each vote, so it must hear them all: the downlink carries the
    number of votes so far, and a client that missed one refuses to train on a stale model.
    """

    name: ClassVar[str] = "sign-sgd"
    paper: ClassVar[str] = "Bernstein et al. 2018; thesis, section 4.1.1"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    form: ClassVar[Literal["floats", "signs"]] = "signs"
    linear: ClassVar[bool] = False
    private: ClassVar[bool] = False
    weighted: ClassVar[bool] = False
    everyone: ClassVar[bool] = True
    single_step: ClassVar[bool] = True
    sends_weights: ClassVar[bool] = False

    server_lr: float = field(default=0.001, metadata=VOTE_STEP)

    def __post_init__(self) -> None:
        positive("server_lr", self.server_lr)

    @property
    def needs_start(self) -> bool:
        """Return true: only votes are sent, and the replicas start at w_0."""
        return True

    def init(self, params: Vector) -> State:
        """Return w_0, before any vote."""
        return {"params": params.copy(), "votes": np.array(0, np.int64), "vote": np.zeros(0, np.uint8)}

    def downlink(self, state: State, seed: int) -> bytes:
        """Return the number of votes so far and the last of them; a vote on nothing before the first."""
        votes = wire.pack(np.array([state["votes"]], np.uint32), bits=32)
        length = self.dim if state["votes"] else 0
        return wire.join([votes, wire.frame(state["vote"], length=length, bits=1)])

    def receive(self, payload: bytes, memory: State) -> Task:
        """Move the replica in `memory` by the vote; before the first vote, the replica is w_0."""
        first = len(payload) == wire.frame_size(1, 32) + wire.frame_size(0, 1)
        length = 0 if first else self.dim
        head, body = wire.split(payload, [wire.frame_size(1, 32), wire.frame_size(length, 1)])
        votes = int(wire.unpack(head, length=1, bits=32)[0])
        vote = np.frombuffer(wire.open_frame(body, length=length, bits=1), np.uint8)
        return self._task(votes, vote, memory)

    def _task(self, votes: int, vote: packed_signs.Signs, memory: State) -> Task:
        if votes == 0:
            if self.start is None:
                raise InputError("sign-sgd needs w_0 on the client; bind it with `start`")
            params = self.start
        elif memory and int(memory["votes"]) == votes:
            params = memory["params"]  # the same downlink again, or a replica made from the server's state
        elif memory and int(memory["votes"]) == votes - 1:
            params = packed_signs.step(memory["params"], vote, self.server_lr)
        else:
            heard = int(memory["votes"]) if memory else 0
            raise RunError(f"sign-sgd: this client heard {heard} votes and is sent vote {votes}; it must hear them all")
        return Task(params, 0, {"params": params, "votes": np.array(votes, np.int64)})

    def replica(self, state: State) -> State:
        """Return the model after the last vote, as `receive` leaves it."""
        return {"params": state["params"].copy(), "votes": state["votes"].copy()}

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the sign of the step, which is that of minus the gradient, packed."""
        return packed_signs.pack_signs(update, rng)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return w + gamma * vote, with the vote kept for the next downlink."""
        vote = packed_signs.pack_signs(mean, rng)
        return {
            "params": packed_signs.step(state["params"], vote, self.server_lr),
            "votes": np.array(int(state["votes"]) + 1, np.int64),
            "vote": vote,
        }

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count one bit a coordinate in each direction."""
        return (self.dim / 32, self.dim / 32)
