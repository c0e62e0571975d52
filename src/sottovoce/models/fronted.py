"""A model behind a front: the front turns records into features once, the model trains on these."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Exported, Flops, Model, Shape
from sottovoce.models.compiled import Compiled
from sottovoce.models.fronts import Front
from sottovoce.models.fronts.front import mapped
from sottovoce.models.network import Network
from sottovoce.models.task import LearningTask
from sottovoce.models.trainer import Shard, Trainer
from sottovoce.models.whitening import Whitening

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.models.torch_program import Program


@dataclass(frozen=True, eq=False)
class Fronted:
    """A front and the model that reads its features; only the model has parameters that train and travel."""

    front: Front
    model: Model
    whitening: Whitening | None = None  # of the front's features; None: they are read as they are

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
    def task(self) -> LearningTask:
        """Return what is learnt."""
        return self.model.task

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
    def parameters(self) -> int:
        """Count all parameters of the model; the front has none."""
        return self.model.parameters

    @property
    def layered(self) -> Network | None:
        """Return the network behind the front."""
        return self.model.layered

    @property
    def compiled(self) -> Compiled | None:
        """Return the layers of a module behind the front, where they are known."""
        return self.model.compiled

    @property
    def trained(self) -> Model:
        """Return the part that reads `features` and trains."""
        return self.model.trained

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the trained part reads, for stored records."""
        return self.model.features(self._whitened(self.front.features(x)))

    def refined(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return features as they are with the whitening's numbers, from those made before these were known."""
        return features if self.whitening is None else self.whitening.refined(features)

    def _whitened(self, features: NDArray[Any]) -> NDArray[Any]:
        return features if self.whitening is None else self.whitening.refined(self.whitening.prepared(features))

    def with_numbers(self, numbers: Vector | None) -> Fronted:
        """Return the model whose whitening has these numbers, or has none yet."""
        if self.whitening is None:
            raise InputError(f"{self.name} behind front {self.front.name!r} is not whitened")
        return replace(self, whitening=self.whitening.known(numbers))

    def map_features(self, x: NDArray[Any], threads: int) -> NDArray[Any]:
        """Return `features` of many records, some at a time."""
        threads = threads if self.front.parallel else 1
        return mapped(self.features, x, self.trained.input_shape, threads, self.front.memory)

    def probe_features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return something of the shape of `features` also while the numbers of the front are not known yet."""
        return self.model.probe_features(self._whitened(self.front.probe_features(x)))

    @property
    def fingerprint(self) -> bytes:
        """Return a digest of the front, and that of the layers that do not train."""
        front: Any = self.front
        settings = [getattr(front, part.name) for part in fields(front) if part.name != "projection"]
        digest = hashlib.blake2b(f"{front.name} {settings}".encode())
        digest.update(self._public_payload())
        return digest.digest() + self.model.fingerprint

    def flops(self) -> Flops:
        """Count the work of one record behind the front, which is computed once."""
        return self.model.flops()

    @property
    def runs(self) -> Model:
        """Return the part that trains."""
        return self.trained

    def adapt(self, trainer: Trainer) -> Trainer:
        """Return a trainer of stored records."""
        return FrontTrainer(self, trainer)

    def program(self, params: Tensor, gradient: Tensor) -> Program:
        """Refuse: torch runs what stands behind the front."""
        raise InputError(f"torch runs what stands behind front {self.front.name!r}, not the front; use make_trainer")

    def exported(self, params: Vector) -> Exported:
        """Return the front and the network behind it."""
        return self.model.exported(params)._replace(front=self.front, whitening=self.whitening)

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the tensors of the model that a file holds."""
        return self.model.tensors(params)

    def initialise(self, rng: Generator) -> Vector:
        """Return w_0 of what trains."""
        return self.model.initialise(rng)

    def start_payload(self) -> bytes:
        """Return the front's numbers, and what the model itself must carry."""
        return self._public_payload() + self.model.start_payload()

    def _public_payload(self) -> bytes:
        return self.front.payload() + (b"" if self.whitening is None else self.whitening.payload())

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 and the rest of a set-up, or refuse one with other numbers than this model's features have."""
        mine = self._public_payload()
        if payload[: len(mine)] != mine:
            raise WireError("set-up carries another front than the one that these records' features were made with")
        return self.model.read_start(payload[len(mine) :], rng)

    def told(self, payload: bytes, rng: Generator) -> Fronted:
        """Return a client's copy, with the front's numbers from the set-up."""
        front, rest = self.front.told(payload)
        whitening = self.whitening
        if whitening is not None:
            whitening, rest = whitening.told(rest)
        return replace(self, front=front, model=self.model.told(rest, rng), whitening=whitening)


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
