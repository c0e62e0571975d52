"""Let the clients elect FL-TOP's coordinates before round 1, privately (thesis, 5.4.3).

The vote is a round like any other, with the number 0 and a scheme of its own: the "update" is how much each coordinate
mattered on a client's own records, and the message marks the K largest. So it is drawn, noised, summed and charged by
the code of every private round.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, WireError
from sottovoce.core.validate import all_finite
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.round import RoundResult, Server, server_round
from sottovoce.models import LocalTraining, Shard, Trainer, batches
from sottovoce.privacy.plan.vote import elected, marks
from sottovoce.schemes import Message, Scheme, State, Task, importance

VOTE = 0  # the round of the vote


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Vote(Scheme):
    """The scheme of the vote: each client marks its K most important coordinates, and the K with the highest sums stay.

    Symbols: K = `kept`, T_init = `training.local_steps`. Thesis, 5.4.3.

    Guarantee: a message has norm sqrt(K), which is the clip norm that `privacy.vote.vote_plan` is charged for; the
    election looks at the noisy sum alone.
    """

    name: ClassVar[str] = "vote"
    paper: ClassVar[str] = "thesis, 5.4.3"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    linear: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    kept: int
    training: LocalTraining

    def voter(self, trainer: Trainer) -> Trainer:
        """Return the trainer whose "updates" are importances."""
        return _Voter(trainer, self.training)

    def downlink(self, state: State, seed: int) -> bytes:
        """Return nothing: clients vote at w_0, which follows from the seed in the set-up."""
        return b""

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return w_0."""
        if payload or self.start is None:
            raise WireError(f"a vote starts at w_0 and expects an empty downlink, got {len(payload)} bytes")
        return Task(self.start, 0, memory)

    def encode(self, update: Vector, seed: int, rng: np.random.Generator) -> Message:
        """Return 1 at the K largest, 0 elsewhere."""
        all_finite("importance", update)
        return marks(update, self.kept)

    def decode(self, mean: Vector, state: State, seed: int, rng: np.random.Generator) -> State:
        """Return the election; the model stays w_0."""
        marks = np.zeros(self.dim, np.float32)
        marks[elected(mean, self.kept)] = 1
        return {"params": state["params"], "importance": marks}


def hold_vote(server: Server, start: Vector) -> Generator[Request, Reply, RoundResult]:
    """Play the server's side of a vote; `server` has a `Vote` and the plan that the vote is charged for.

    The state that it ends with has the `importance` of each coordinate, 1 or 0.
    """
    result = yield from server_round(server, server.init(start), VOTE)
    if "importance" not in result.state:
        raise RunError(
            "the vote for the coordinates failed: too few clients stayed to the end; let fewer drop out, or lower "
            "[aggregation] threshold"
        )
    return result


@dataclass(frozen=True)
class _Voter:
    """A trainer that works as the server does on its public batch (`schemes.importance`), on a client's own records."""

    trainer: Trainer
    training: LocalTraining

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[np.random.Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the importances of each shard, in order."""
        return (self._importance(params, shard, rng) for shard, rng in zip(shards, rngs, strict=True))

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient on a shard."""
        return self.trainer.gradient(params, shard)

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the network's scores."""
        return self.trainer.scores(params, x)

    def _importance(self, params: Vector, shard: Shard, rng: np.random.Generator) -> Vector:
        drawn = iter(batches(len(shard.y), self.training, rng))

        def gradient(at: Vector, step: int) -> Vector:
            records = next(drawn)
            return self.trainer.gradient(at, Shard(shard.x[records], shard.y[records]))

        return importance(gradient, params, self.training.local_steps, self.training.client_lr)
