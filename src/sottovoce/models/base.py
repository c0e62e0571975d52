"""Say what a model is for the rest of the house: sizes, the place of every parameter, w_0, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Layout, Vector

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.models.compiled import Compiled
    from sottovoce.models.fronts.front import Front, PublicNumbers
    from sottovoce.models.module import TorchNetwork
    from sottovoce.models.network import Network
    from sottovoce.models.task import LearningTask
    from sottovoce.models.torch_program import Program
    from sottovoce.models.trainer import Trainer
    from sottovoce.models.whitening import Whitening

Shape = tuple[int, ...]


class Flops(NamedTuple):
    """Floating-point operations of one record, and the weights that a device holds for them.

    A product of an (a, b) and a (b, c) matrix is 2abc operations; convolutions, dense and recurrent layers are made of
    such. A step goes forward once, and backward twice as much: for the gradients of the weights, and for those of the
    layer's inputs, which nobody needs at the lowest layer that trains or below. Element-wise work is not counted
    (activations, pooling, the optimiser, a scheme's own coding), nor what a public front or frozen layers make of a
    record once, before the first round.
    """

    forward: float
    training: float
    weights: int


class Exported(NamedTuple):
    """A model as files of other programs hold it: a network or a torch module, its parameters, the front before it."""

    network: Network | TorchNetwork
    params: Vector
    front: Front | None
    whitening: Whitening | None = None


class Model(Protocol):
    """A description of a model that federation and experiment can read without torch.

    `Network` (layers as data) and `TorchNetwork` (a user's torch module) are the two kinds; `Partial` is a network of
    which some layers train, `Fronted` one behind a front. `make_trainer` returns who trains them. Every model can be
    pickled, so that worker processes get it. What differs between the four is answered here: nobody asks for the class.
    """

    @property
    def name(self) -> str:
        """Return the name that reports show."""
        ...

    @property
    def input_shape(self) -> Shape:
        """Return the shape of one stored record."""
        ...

    @property
    def input_scale(self) -> float:
        """Return what stored inputs are multiplied by; token ids are left alone."""
        ...

    @property
    def classes(self) -> int:
        """Count the classes."""
        ...

    @property
    def task(self) -> LearningTask:
        """Return what is learnt: how labels become losses, and scores become answers."""
        ...

    @property
    def binary(self) -> bool:
        """Tell whether there is one logit, for class 1 against class 0."""
        ...

    @property
    def layout(self) -> Layout:
        """Return the place of each tensor in the flat vector."""
        ...

    @property
    def dim(self) -> int:
        """Count the parameters that are trained and travel."""
        ...

    @property
    def parameters(self) -> int:
        """Count all parameters, with those that keep their first values."""
        ...

    @property
    def layered(self) -> Network | None:
        """Return the whole network of layers that is run; None for a torch module, whose layers only torch knows."""
        ...

    @property
    def compiled(self) -> Compiled | None:
        """Return a torch module as layers that the C kernels know; None where they do not, or it is made of layers."""
        ...

    # How it starts, and what the set-up carries of it.

    def initialise(self, rng: Generator) -> Vector:
        """Return w_0: drawn from the public stream, or the weights that the user's module came with."""
        ...

    def start_payload(self) -> bytes:
        """Return what the set-up must carry, beside the public seed, so that a client knows w_0; empty if nothing."""
        ...

    def read_start(self, payload: bytes, rng: Generator) -> tuple[Vector, bytes]:
        """Return w_0 and the rest of a set-up that begins with `start_payload`; the inverse, on the client's side."""
        ...

    def told(self, payload: bytes, rng: Generator) -> Model:
        """Return a client's copy from such a set-up, with the public numbers that it carries."""
        ...

    # A public, frozen part that reads records before anything trains; most models have none.

    @property
    def front(self) -> PublicNumbers | None:
        """Return the front: before the model, or in its first layers; None without one."""
        ...

    @property
    def trained(self) -> Model:
        """Return the part that trains, and reads `features`; it has the same parameters. Most models are all of it."""
        ...

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the trained part reads, for stored records; most models read the records themselves."""
        ...

    def map_features(self, x: NDArray[Any], threads: int) -> NDArray[Any]:
        """Return `features` of many records, some at a time."""
        ...

    def probe_features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return something of the shape of `features` also while the numbers of the front are not known yet."""
        ...

    @property
    def whitening(self) -> Whitening | None:
        """Return how features are whitened; None if they are not."""
        ...

    def with_numbers(self, numbers: Vector | None) -> Model:
        """Return the model whose whitening has these numbers, or has none yet; only where there is a whitening."""
        ...

    def refined(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return features as a set-up's numbers make them, from those made before it came; most models change none."""
        ...

    @property
    def fingerprint(self) -> bytes:
        """Return a digest of all that decides `features`; empty where they are the records themselves."""
        ...

    # How it is trained, and what that costs.

    def flops(self) -> Flops:
        """Count the work of one record, and the weights that a device holds."""
        ...

    @property
    def runs(self) -> Model:
        """Return the model that a trainer must know to train this one: most often this one."""
        ...

    def adapt(self, trainer: Trainer) -> Trainer:
        """Return a trainer of this model's stored records and parameters, from one of `runs`."""
        ...

    def program(self, params: Tensor, gradient: Tensor) -> Program:
        """Return this model in torch, over flat buffers of its parameters and their gradient."""
        ...

    # Files.

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the tensors that a file holds of the model with these parameters, by name."""
        ...

    def exported(self, params: Vector) -> Exported:
        """Return what other programs can load of the model with these parameters, or say why there is nothing."""
        ...


class Whole:
    """What models share of which every part trains: no front, and a set-up that tells nothing."""

    def told(self, payload: bytes, rng: Generator) -> Self:
        """Return the model itself: a set-up tells nothing about it but w_0."""
        return self

    @property
    def compiled(self) -> Compiled | None:
        """Return none."""
        return None

    @property
    def front(self) -> None:
        """Return none."""
        return None

    @property
    def trained(self) -> Self:
        """Return the model itself: all of it trains."""
        return self

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return stored records as they are."""
        return x

    def map_features(self, x: NDArray[Any], threads: int) -> NDArray[Any]:
        """Return stored records as they are."""
        return x

    def probe_features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return stored records as they are."""
        return x

    @property
    def whitening(self) -> None:
        """Return none."""
        return None

    def with_numbers(self, numbers: Vector | None) -> Self:
        """Refuse: features are not whitened."""
        raise InputError("features of this model are not whitened")

    def refined(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return features as they are."""
        return features

    @property
    def fingerprint(self) -> bytes:
        """Return nothing: features are the records."""
        return b""

    @property
    def runs(self) -> Self:
        """Return the model itself."""
        return self

    def adapt(self, trainer: Trainer) -> Trainer:
        """Return the trainer itself."""
        return trainer
