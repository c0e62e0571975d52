"""Measure the model on records that only clients hold: three numbers of each, through the same secure sum.

It is a round like any other, with a scheme of its own, so it is clipped, noised, summed and charged by the code of
every round. Client k sends (2 a_k / A - 1, 2 l_k / L - 1, 1): a_k and l_k are two metrics of the model on the records
that it keeps out, cut off at public bounds A and L; of a classifier the share of right answers (A = 1) and the mean
loss (`LearningTask.measured`). Every client weighs the same. The third number counts them, so that the means do not
swing with the size of the cohort:

    accuracy = A (sum_1 / sum_3 + 1) / 2          loss = L (sum_2 / sum_3 + 1) / 2

A client without such records sends zeros. Each number is in [-1, 1], so the norm is at most sqrt(3), which is what
the plan of these rounds clips at.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.round import Account, Server, server_round
from sottovoce.federation.stages.unit_evaluation import MeasureUnits
from sottovoce.models import LearningTask, Shard, Trainer, evaluate
from sottovoce.schemes import Message, Scheme, State

EVALUATION: Final = 1 << 32  # the measurement after round r is round EVALUATION + r of its own session
LENGTH: Final = 3
NORM: Final = math.sqrt(LENGTH)
_FEWEST: Final = 0.5  # a noisy count below so much of a client has no mean


class Measured(NamedTuple):
    """The means that a measurement gave, None if too few answered; `cohort` and `total` are for the operator."""

    metrics: dict[str, Any]
    cohort: int
    total: Total


def charged_round(round_: int) -> int:
    """Return the number under which a ledger charges a round: measurements have numbers below 0.

    >>> charged_round(7), charged_round(EVALUATION + 7)
    (7, -7)
    """
    return round_ if round_ < EVALUATION else EVALUATION - round_


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Scheme):
    """The scheme of a measurement: clients score the model, and nobody trains.

    Guarantee: a message has norm at most sqrt(3), whatever the records.
    """

    name: ClassVar[str] = "measure"
    paper: ClassVar[str] = "ours"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    linear: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    task: LearningTask

    @property
    def length(self) -> int:
        """Return the number of values in a message."""
        return LENGTH

    @property
    def update_length(self) -> int:
        """Return the number of values that a client's measurer yields."""
        return LENGTH

    def measurer(self, trainer: Trainer) -> Trainer:
        """Return the trainer whose "updates" are measurements."""
        return _Measurer(trainer, self)

    def encode(self, update: Vector, seed: int, rng: np.random.Generator) -> Message:
        """Return the measurement."""
        return np.clip(update, -1, 1).astype(np.float32)

    def decode(self, mean: Vector, state: State, seed: int, rng: np.random.Generator) -> State:
        """Return the noisy sums, divided by the expected cohort; the model stays as it is."""
        return {"params": state["params"], "measured": np.asarray(mean, np.float32)}

    def of(self, scores: NDArray[np.float32], y: NDArray[Any]) -> Vector:
        """Return what a client with these scores sends; a loss or an error that is no number is the worst one."""
        if len(y) == 0:
            return np.zeros(LENGTH, np.float32)
        found = evaluate(scores, y, self.task)
        cut = (min(found[name], bound) if math.isfinite(found[name]) else bound for name, bound in self.task.measured)
        first, second = (2 * value / each.bound - 1 for value, each in zip(cut, self.task.measured, strict=True))
        return np.array([first, second, 1], np.float32)

    def metrics(self, measured: Vector, expected: float) -> dict[str, float | None]:
        """Return the means of the clients, from sums that were divided by the expected cohort."""
        *sums, count = (float(value) for value in measured)
        if count * expected < _FEWEST:
            return self.unmeasured
        share = [min(1.0, max(0.0, (value / count + 1) / 2)) for value in sums]
        return {each.name: part * each.bound for each, part in zip(self.task.measured, share, strict=True)}

    @property
    def unmeasured(self) -> dict[str, float | None]:
        """Return what is told where too few answered."""
        return {each.name: None for each in self.task.measured}


@dataclass(frozen=True)
class _Beside:
    """The account of measurements: charged under numbers below 0; draws are not bound, as every one is paid for."""

    account: Account

    def drawn(self, round_: int, commitment: str) -> None:
        """Do nothing: the plan counts every client in every measurement, so there is no cap to keep."""

    def charge(self, round_: int) -> None:
        """Charge a measurement."""
        self.account.charge(charged_round(round_))


def measure(
    server: Server, params: Vector, round_: int, account: Account | None
) -> Generator[Request, Reply, Measured]:
    """Play the server's side of the measurement after a round; `server` has a `Measure` and the plan it is charged by.

    Guarantee: in a private run the account is charged before the sum is opened.
    """
    if account is not None:
        server = server.with_account(_Beside(account))
    result = yield from server_round(server, server.init(params), EVALUATION + round_)
    scheme = server.scheme
    metrics: dict[str, Any] = scheme.unmeasured if isinstance(scheme, Measure) else {"accuracy": None, "loss": None}
    if isinstance(scheme, Measure) and "measured" in result.state:
        metrics = scheme.metrics(result.state["measured"], server.cohort.expected)
    if isinstance(scheme, MeasureUnits) and server.plan is not None and "measured" in result.state:
        metrics = scheme.metrics(result.state["measured"], server.expected(result.state), server.plan.stddev())
    return Measured(metrics, result.cohort, result.total)


@dataclass(frozen=True)
class _Measurer:
    """A trainer that scores the model on a client's records."""

    trainer: Trainer
    scheme: Measure

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[np.random.Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the measurement of each shard, in order."""
        return (self._measured(params, shard) for shard in shards)

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient on a shard."""
        return self.trainer.gradient(params, shard)

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the network's scores."""
        return self.trainer.scores(params, x)

    def _measured(self, params: Vector, shard: Shard) -> Vector:
        scores = self.trainer.scores(params, shard.x) if len(shard.y) else np.zeros(0, np.float32)
        return self.scheme.of(scores, shard.y)


def evaluations(rounds: int, every: int) -> int:
    """Count the measurements of a run: every so many rounds, and after the last one.

    >>> evaluations(10, 3), evaluations(9, 3)
    (4, 3)
    """
    return -(-rounds // every)
