"""A model behind a front: the front turns records into features once, the model trains on these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import WireError
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Model
from sottovoce.models.fronts import Front
from sottovoce.models.network import Shape
from sottovoce.models.trainer import Shard, Trainer

__all__ = ["FrontTrainer", "Fronted"]


@dataclass(frozen=True, eq=False)
class Fronted:
    """A front and the model that reads its features; only the model has parameters that train and travel."""

    front: Front
    model: Model

    @property
    def name(self) -> str:
        """Return the name that reports show."""
        return self.model.name

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        return self.front.input_shape

    @property
    def input_scale(self) -> float:
        """Return what the front multiplies stored inputs by."""
        return self.front.input_scale

    @property
    def classes(self) -> int:
        """Count the classes."""
        return self.model.classes

    @property
    def binary(self) -> bool:
        """Tell whether there is one logit, for class 1 against class 0."""
        return self.model.binary

    @property
    def layout(self) -> Layout:
        """Return the place of each tensor that trains."""
        return self.model.layout

    @property
    def dim(self) -> int:
        """Count the parameters that are trained and travel."""
        return self.model.dim

    @property
    def trained(self) -> Model:
        """Return the part that reads `features` and trains."""
        return self.model.trained

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the trained part reads, for stored records."""
        return self.model.features(self.front.features(x))

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the tensors of the model that a file holds."""
        return self.model.tensors(params)

    def initialise(self, rng: Generator) -> Vector:
        """Return w_0 of what trains."""
        return self.model.initialise(rng)

    def start_payload(self) -> bytes:
        """Return the front's numbers, and what the model itself must carry."""
        return self.front.payload() + self.model.start_payload()

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 and the rest of a set-up, or refuse one with other numbers than this model's features have."""
        mine = self.front.payload()
        if payload[: len(mine)] != mine:
            raise WireError("set-up carries another front than the one that these records' features were made with")
        return self.model.read_start(payload[len(mine) :], rng)

    def told(self, payload: bytes, rng: Generator) -> Fronted:
        """Return a client's copy, with the front's numbers from the set-up."""
        front, rest = self.front.told(payload)
        return replace(self, front=front, model=self.model.told(rest, rng))


@dataclass(frozen=True)
class FrontTrainer:
    """A trainer of stored records that computes features at every call; workers have them already, and need it not."""

    model: Model
    trainer: Trainer  # of the model's trained part

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard, in order."""
        return self.trainer.updates(params, [self._read(shard) for shard in shards], rngs, trainable)

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard."""
        return self.trainer.gradient(params, self._read(shard))

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each record."""
        return self.trainer.scores(params, self.model.features(x))

    def _read(self, shard: Shard) -> Shard:
        return shard._replace(x=self.model.features(shard.x))
