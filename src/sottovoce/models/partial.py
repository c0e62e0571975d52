"""A network of which some layers train; the others keep their first values and never travel."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.core.validate import nearest
from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.base import Exported, Flops, Model, Shape
from sottovoce.models.fronted import FrontTrainer
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.gabor import Gabor
from sottovoce.models.network import DropoutLayer, Linear, Network
from sottovoce.models.task import LearningTask
from sottovoce.models.trainer import LocalTraining, Shard, Trainer

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.models.torch_program import Program

_WIDEST: Final = 1024  # values that are kept of each record instead of the record: more than that is too much memory


def layers_to_train(network: Network, words: str) -> tuple[str, ...]:
    """Return the layers that `[scheme] train` names, in the order of the network.

    >>> from sottovoce.models.zoo import network
    >>> cnn = network("cnn", (28, 28, 1), 10)
    >>> layers_to_train(cnn, "head"), layers_to_train(cnn, "layers: fc2, conv1")
    (('fc2',), ('conv1', 'fc2'))
    """
    known = tuple(network.layer_names)
    if words == "all":
        return known
    if words == "head":
        return known[-1:]
    kind, colon, rest = words.partition(":")
    asked = [name.strip() for name in rest.split(",")]
    if kind.strip() != "layers" or not colon:
        guess = nearest(words, ("all", "head"))
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise InputError(f'[scheme] train must be "all", "head" or "layers: {known[-1]}, ...", got "{words}"{hint}')
    for name in asked:
        if name not in known:
            guess = nearest(name, known)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(known)}"
            raise InputError(f"[scheme] train: model {network.name!r} has no layer {name!r}; {hint}")
    return tuple(name for name in known if name in asked)


@dataclass(frozen=True, eq=False)
class Partial:
    """A network whose trained layers alone are the model that a federation sees.

    The flat vector holds the tensors of `layers`. All others stay as `whole` has them, which is w_0: drawn from the
    public seed, and filled by `filling` where a front says so. The set-up names the layers by one bit each.

    What lies below the lowest trained layer is the same function for ever, so it is evaluated once a record
    (`features`) where its outputs are few; the rest (`trained`) is a smaller network.
    """

    network: Network
    layers: tuple[str, ...]
    whole: Vector
    filling: Gabor | None = None

    @classmethod
    def start(cls, network: Network, layers: tuple[str, ...], filling: Gabor | None, rng: Generator) -> Partial:
        """Return the network at w_0."""
        whole = network.initialise(rng)
        if filling is not None:
            filling.fill(whole)
        return cls(network, layers, whole, filling)

    @property
    def name(self) -> str:
        """Return the name that reports show."""
        return self.network.name

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        return self.network.input_shape

    @property
    def input_scale(self) -> float:
        """Return what stored inputs are multiplied by."""
        return self.network.input_scale

    @property
    def classes(self) -> int:
        """Count the classes."""
        return self.network.classes

    @property
    def task(self) -> LearningTask:
        """Return what is learnt."""
        return self.network.task

    @property
    def binary(self) -> bool:
        """Tell whether there is one logit, for class 1 against class 0."""
        return self.network.binary

    @cached_property
    def layout(self) -> Layout:
        """Return the place of each trained tensor, under its name in the whole network."""
        numbers = {self.network.layer_names[name] for name in self.layers}
        return Layout(tuple(tensor for tensor in self.network.layout.tensors if _layer(tensor[0]) in numbers))

    @property
    def dim(self) -> int:
        """Count the parameters that train and travel."""
        return self.layout.dim

    @property
    def parameters(self) -> int:
        """Count all parameters of the network."""
        return self.network.dim

    @property
    def layered(self) -> Network:
        """Return the whole network."""
        return self.network

    @property
    def compiled(self) -> None:
        """Return none: it is made of layers."""
        return None

    @property
    def front(self) -> Gabor | None:
        """Return the front that filled w_0."""
        return self.filling

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Return where the trained parameters lie in the whole vector, ascending."""
        spans = (self.network.layout.span(name) for name, _ in self.layout.tensors)
        return np.concatenate([np.arange(span.start, span.stop) for span in spans])

    def joined(self, params: Vector) -> Vector:
        """Return the whole vector with these trained parameters."""
        whole = self.whole.copy()
        whole[self.places] = params
        return whole

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return all tensors of the whole network: a file holds all of it."""
        return self.network.layout.views(self.joined(params))

    def initialise(self, rng: Generator) -> Vector:
        """Return w_0 of what trains; `rng` was used when the whole was drawn."""
        return self.whole[self.places]

    # The set-up.

    def start_payload(self) -> bytes:
        """Return which layers train, a bit for each, and the numbers of the front that fills w_0."""
        return self._bits() + (b"" if self.filling is None else self.filling.payload())

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 of what trains and the rest of a set-up, or refuse one with other layers or another start."""
        mine = self.start_payload()
        if payload[: len(mine)] != mine:
            raise WireError(
                f"set-up trains other layers of {self.name} than {', '.join(self.layers)}, or starts from another w_0"
            )
        return self.initialise(rng), payload[len(mine) :]

    def told(self, payload: bytes, rng: Generator) -> Partial:
        """Return a client's copy, with layers and numbers from the set-up, and the rest of w_0 from its seed."""
        bits = self._bits()
        marks = wire.unpack(payload[: len(bits)], length=len(self.network.layer_names), bits=1)
        layers = tuple(name for name, mark in zip(self.network.layer_names, marks, strict=True) if mark)
        if not layers:
            raise WireError("set-up trains no layer at all")
        filling = None if self.filling is None else self.filling.told(payload[len(bits) :])[0]
        return Partial.start(self.network, layers, filling, rng)

    def _bits(self) -> bytes:
        marks = [name in self.layers for name in self.network.layer_names]
        return wire.pack(np.array(marks, np.uint32), bits=1)

    # What is computed once.

    @cached_property
    def cut(self) -> int:
        """Return the layer of the network from which on training happens; what lies below is evaluated once.

        0 if what comes out there is too wide to be kept, or would have to be drawn anew in every step.
        """
        layers = self.network.layers
        lowest = self.network.layer_names[self.layers[0]]
        (size, *more) = self.network.shapes[lowest]
        below = layers[:lowest]
        dense = bool(below) and isinstance(below[-1], Linear) and not any(isinstance(at, DropoutLayer) for at in below)
        return lowest if dense and not more and 2 <= size <= _WIDEST else 0

    @cached_property
    def trained(self) -> Model:
        """Return the part that reads `features` and trains: a network of its own, or this one where nothing is cut."""
        if not self.cut:
            return self.network if len(self.layers) == len(self.network.layer_names) else self
        upper = Network(
            name=self.name,
            layers=self.network.layers[self.cut :],
            input_shape=self.network.shapes[self.cut],
            classes=self.classes,
            loss=self.network.loss,
            goal=self.network.goal,
        )
        whole = self.whole[-upper.dim :]
        names = list(self.network.layer_names)[-len(upper.layer_names) :]
        inner = tuple(new for new, old in zip(upper.layer_names, names, strict=True) if old in self.layers)
        return upper if len(inner) == len(upper.layer_names) else Partial(upper, inner, whole)

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the trained part reads, for stored records."""
        if not self.cut:
            return x
        trainer, relu = self._lower
        scores = trainer.scores(self.below, x)
        return np.maximum(scores, 0) if relu else scores

    def map_features(self, x: NDArray[Any], threads: int) -> NDArray[Any]:
        """Return `features` of many records, some at a time."""
        return mapped(self.features, x, self.trained.input_shape, threads) if self.cut else x

    def probe_features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return `features`: w_0 has values also where a front has not filled it yet."""
        return self.features(x)

    @property
    def whitening(self) -> None:
        """Return none: the layers below read records as they are."""
        return None

    def with_numbers(self, numbers: Vector | None) -> Partial:
        """Refuse: features are not whitened."""
        raise InputError("features of this model are not whitened")

    def refined(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return features as they are: all numbers are in w_0."""
        return features

    @property
    def fingerprint(self) -> bytes:
        """Return a digest of the layers below the cut."""
        if not self.cut:
            return b""
        digest = hashlib.blake2b(f"{self.network} {self.cut}".encode())
        digest.update(self.below.data)
        return digest.digest()

    @property
    def below(self) -> Vector:
        """Return the parameters below the cut."""
        tensors = self.network.layout.tensors
        return self.whole[: sum(math.prod(shape) for name, shape in tensors if _layer(name) < self.cut)]

    @cached_property
    def _lower(self) -> tuple[Trainer, bool]:
        """Return who evaluates the layers below the cut, as logits of a network of their own, and if ReLU follows."""
        from sottovoce.models.choose import make_trainer

        *below, last = self.network.layers[: self.cut]
        if not isinstance(last, Linear):
            raise InputError(f"{self.name} cannot be cut before layer {self.cut}")
        layers = (*below, replace(last, relu=False))
        lower = Network(f"{self.name} below {self.layers[0]}", layers, self.input_shape, last.units, self.input_scale)
        return make_trainer(lower, LocalTraining()), last.relu

    # Training.

    def flops(self) -> Flops:
        """Count the work of one record; what is evaluated once is not counted."""
        if self.trained is not self:
            return self.trained.flops()
        return self.network.flops_of({self.network.layer_names[name] for name in self.layers})

    @property
    def runs(self) -> Model:
        """Return the part that trains; the whole network where nothing of it can be cut off."""
        return self.network if self.trained is self else self.trained

    def adapt(self, trainer: Trainer) -> Trainer:
        """Return a trainer of the trained layers, from one of the part or of the whole network."""
        return PartTrainer(self, trainer) if self.trained is self else FrontTrainer(self, trainer)

    def program(self, params: Tensor, gradient: Tensor) -> Program:
        """Refuse: torch runs the network."""
        raise InputError(f"torch runs the whole of {self.name}, not a part of it; use make_trainer")

    def exported(self, params: Vector) -> Exported:
        """Return the whole network."""
        return Exported(self.network, self.joined(params), None)

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to a worker: trainers do not."""
        return {name: getattr(self, name) for name in ("network", "layers", "whole", "filling")}


class PartOfNetwork(Protocol):
    """A model whose parameters are some of a network's, or all of them in another order."""

    @property
    def network(self) -> Network:
        """Return the network."""
        ...

    @property
    def places(self) -> NDArray[np.int64]:
        """Return where each parameter lies in the network's vector."""
        ...

    def joined(self, params: Vector) -> Vector:
        """Return the network's vector with these parameters."""
        ...


@dataclass(frozen=True)
class PartTrainer:
    """A trainer of a part: it trains the whole network and lets the other coordinates not move."""

    part: PartOfNetwork
    trainer: Trainer  # of the whole network

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard at the trained coordinates, in order."""
        places, dim = self.part.places, self.part.network.dim
        mask = None
        if trainable is not None or len(places) < dim:
            mask = np.zeros(dim, np.bool_)
            mask[places] = True if trainable is None else trainable
        for update in self.trainer.updates(self.part.joined(params), shards, rngs, mask):
            yield update[places]

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard, at the trained coordinates."""
        return self.trainer.gradient(self.part.joined(params), shard)[self.part.places]

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each record."""
        return self.trainer.scores(self.part.joined(params), x)


def _layer(tensor: str) -> int:
    return int(tensor.split(".")[0])
