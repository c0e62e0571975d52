"""Say what a model is for the rest of the house: sizes, the place of every parameter, and w_0."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.vectors import Layout, Vector
from sottovoce.models.network import Shape

__all__ = ["Model"]


class Model(Protocol):
    """A description of a model that federation and experiment can read without torch.

    `Network` (layers as data) and `TorchNetwork` (a user's torch module) are the two kinds; `Partial` is a network of
    which some layers train, `Fronted` one behind a front. `make_trainer` returns who trains them. Every model can be
    pickled, so that worker processes get it.
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
    def trained(self) -> Model:
        """Return the part that trains, and reads `features`; it has the same parameters. Most models are all of it."""
        ...

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the trained part reads, for stored records; most models read the records themselves."""
        ...

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the tensors that a file holds of the model with these parameters, by name."""
        ...
