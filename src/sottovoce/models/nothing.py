"""The place of a model in a run that trains none: a vector of sums, without layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Exported, Flops, Shape, Whole
from sottovoce.models.network import Network
from sottovoce.models.task import ClassTask, LearningTask
from sottovoce.models.trainer import Shard, Trainer
from sottovoce.models.zoo import network


def _refuse() -> NoReturn:
    raise InputError("a run of statistics trains no model; there is nothing to predict with or to export")


@final
@dataclass(frozen=True)
class NoModel(Whole):
    """A model of no layers, whose parameters are the sums that a run of statistics asks for."""

    dim: int
    columns: int  # of a stored record
    digest: bytes = b""  # of what is asked: who asks otherwise has other scores
    name: str = "none"
    classes: int = 2
    input_scale: float = 1.0
    binary: bool = True

    @property
    def task(self) -> LearningTask:
        """Return a task that nobody learns."""
        return ClassTask(self.classes, self.binary)

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        return (self.columns,)

    @property
    def layout(self) -> Layout:
        """Return one tensor."""
        return Layout((("sums", (self.dim,)),))

    @property
    def parameters(self) -> int:
        """Count the sums."""
        return self.dim

    @property
    def layered(self) -> Network:
        """Return the smallest network, which nobody runs."""
        return network("logistic", (1,), 2)

    @property
    @override
    def runs(self) -> Any:
        return self.layered

    @override
    def adapt(self, trainer: Trainer) -> Trainer:
        return _Idle(self.digest)

    def initialise(self, rng: Generator) -> Vector:
        """Return zeros."""
        return np.zeros(self.dim, np.float32)

    def start_payload(self) -> bytes:
        """Return nothing."""
        return b""

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return zeros and all of the set-up."""
        return self.initialise(rng), payload

    def flops(self) -> Flops:
        """Count no work."""
        return Flops(0, 0, 0)

    def program(self, params: Any, gradient: Any) -> NoReturn:
        """Refuse: there is nothing to run."""
        _refuse()

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the sums."""
        return {"sums": params}

    def exported(self, params: Vector) -> Exported:
        """Refuse: there is no model."""
        _refuse()


@dataclass(frozen=True)
class _Idle:
    """A trainer that trains nothing; its scores tell what is asked."""

    digest: bytes

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        _refuse()

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        _refuse()

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        told = np.frombuffer(self.digest or bytes(1), np.uint8).astype(np.float32)
        return np.resize(told, len(x))
