"""Let clients sum up statistics of their records where a scheme asks for these in place of updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.federation.stages.evaluation import Measure
from sottovoce.federation.stages.unit_evaluation import MeasureUnits
from sottovoce.federation.stages.vote import Vote
from sottovoce.models import Model, Shard, Trainer
from sottovoce.schemes import Scheme


def trainer_for(scheme: Scheme, network: Model, trainer: Trainer) -> Trainer:
    """Return who makes the "updates" that a scheme encodes: the trainer itself, unless nobody trains.

    The scheme is bound, but for a vote or a measurement.
    """
    if isinstance(scheme, Vote):
        return scheme.voter(trainer)
    if isinstance(scheme, Measure | MeasureUnits):
        return scheme.measurer(trainer)
    return Statistician(scheme, network.input_scale, trainer) if scheme.once else trainer


@dataclass(frozen=True)
class Statistician:
    """A trainer whose "updates" are a scheme's statistics of each client's records; it draws nothing at random."""

    scheme: Scheme
    input_scale: float
    trainer: Trainer

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[np.random.Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the statistics of each shard, in order."""
        return (self._statistics(shard) for shard in shards)

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient on a shard."""
        return self.trainer.gradient(params, shard)

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the network's scores."""
        return self.trainer.scores(params, x)

    def _statistics(self, shard: Shard) -> Vector:
        features = np.asarray(shard.x, np.float32) * np.float32(self.input_scale)  # as the network reads them
        return self.scheme.statistics(features, shard.y)
