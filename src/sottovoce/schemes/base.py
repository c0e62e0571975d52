"""What every scheme is: encode, sum, decode on flat float32 vectors.

A scheme is a final frozen dataclass. Its fields are its keys in `[scheme]`; its methods are pure. `bind` returns a copy
that knows the model's size, the shared seed and, where the scheme needs them, w_0 and the importance of coordinates.
The server and every client hold the same bound scheme: the server binds it, a client does so from the set-up message.

Randomness that server and clients share in a round (a fresh coordinate set) comes from one integer, the *round seed*.
It travels in the downlink of the schemes that need it and is 0 for the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Layout, Vector
from sottovoce.schemes.weights import pack_weights, unpack_weights

State = dict[str, NDArray[Any]]  # always has "params", the full model
Message = NDArray[Any]  # float32 of `length`, or packed signs (uint8)
Mask = NDArray[np.bool_]


class Task(NamedTuple):
    """What a client learns from a downlink: where to start, the round seed, what to keep for the next round."""

    params: Vector
    seed: int
    memory: State


@dataclass(frozen=True, eq=False, kw_only=True)
class Scheme(ABC):
    """Base of all schemes; `docs/add-a-scheme.md` explains every part of it."""

    name: ClassVar[str]
    paper: ClassVar[str]  # where it is defined
    saves: ClassVar[Literal["nothing", "up", "up and down"]]
    form: ClassVar[Literal["floats", "signs"]] = "floats"  # what `encode` returns
    linear: ClassVar[bool] = True  # encode(a) + encode(b) == encode(a + b)
    private: ClassVar[bool] = True  # has a private twin
    weighted: ClassVar[bool] = True  # clients count by |D_k| unless `[aggregation] weighting` says otherwise
    everyone: ClassVar[bool] = False  # every client must take part in every round
    single_step: ClassVar[bool] = False  # clients take one step, whatever `local_steps` says
    sends_weights: ClassVar[bool] = True  # the downlink holds weights, as `pack_weights` frames them
    once: ClassVar[bool] = False  # nobody trains: one round sums `statistics`, and `decode` solves for the model

    # Bound by `bind`, never by a config.
    dim: int = field(default=0, metadata={"bound": True})
    downlink_bits: int = field(default=32, metadata={"bound": True})  # of a weight that is sent down; 16: rounded
    shared_seed: int = field(default=0, metadata={"bound": True})
    start: Vector | None = field(default=None, repr=False, metadata={"bound": True})

    @classmethod
    def own_keys(cls) -> list[str]:
        """Name the scheme's own keys in `[scheme]`."""
        return [f.name for f in fields(cls) if not f.metadata.get("bound")]

    def bind(self, dim: int, *, seed: int = 0, start: Vector | None = None, importance: Vector | None = None) -> Self:
        """Return a copy for models of `dim` parameters; schemes that choose coordinates extend this."""
        if dim < 1:
            raise InputError(f"dim must be at least 1, got {dim}")
        return replace(self, dim=dim, shared_seed=seed, start=start)

    def fit(self, layout: Layout) -> Self:
        """Return a copy for a model with these tensors, or refuse it; most schemes see no more than its size."""
        return self

    def with_noise(self, stddev: float) -> Self:
        """Return the server's copy, which knows the standard deviation of the noise on each value of the mean.

        It is public, so whatever `decode` does with it is free. Most schemes have no use for it.
        """
        return self

    @property
    def needs_importance(self) -> bool:
        """Tell whether `bind` wants the importance of each coordinate, from public data."""
        return False

    # Set-up, once a run: what a client must be told besides the seed of w_0.

    def setup(self) -> bytes:
        """Return what the server tells every client once; empty where the shared seed is enough."""
        return b""

    def bind_setup(self, payload: bytes, *, dim: int, seed: int, start: Vector) -> Self:
        """Return the client's bound copy from a set-up message."""
        if payload:
            raise InputError(f"{self.name} expects an empty set-up, got {len(payload)} bytes")
        return self.bind(dim, seed=seed, start=start)

    # One round.

    @property
    def length(self) -> int:
        """Return the number of values in an uplink message."""
        return self.dim

    @property
    def update_length(self) -> int:
        """Return the number of values that a client's trainer yields: one a parameter, unless it sums statistics."""
        return self.length if self.once else self.dim

    @property
    def public_norm(self) -> float | None:
        """Return the clip norm that follows from public numbers alone; None: it must be given or measured."""
        return None

    @property
    def needs_start(self) -> bool:
        """Tell whether clients know some of the model from w_0 alone, so that training can start nowhere else."""
        return False

    def round_seed(self, round_: int) -> int:
        """Return the seed that server and clients share in this round."""
        return 0

    def init(self, params: Vector) -> State:
        """Return the server's state before round 1."""
        return {"params": params.copy()}

    def downlink(self, state: State, seed: int) -> bytes:
        """Return what every client of the cohort is sent."""
        return pack_weights(state["params"], self.downlink_bits)

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return the client's task; `memory` is what an earlier `receive` told it to keep (empty at first)."""
        return Task(unpack_weights(payload, self.dim, self.downlink_bits), 0, memory)

    def replica(self, state: State) -> State:
        """Return the memory of a client that has heard every downlink up to this state; a resumed run needs it."""
        return {}

    def trainable(self, seed: int) -> Mask | None:
        """Return the coordinates that local training may move; None is all of them."""
        return None

    def statistics(self, features: NDArray[np.float32], labels: NDArray[Any]) -> Vector:
        """Return what a client with these records sums up in place of an update; only where `once` says so."""
        raise InputError(f"{self.name} is trained and sums up no statistics")

    @abstractmethod
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the uplink message for a client's update w_k - w."""

    def encode_rows(self, updates: NDArray[np.float32], seed: int) -> NDArray[np.float32] | None:
        """Return the messages of some updates, a row each, as `encode` makes them without drawing; None: singly."""
        return None

    @abstractmethod
    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return the new state from the sum of messages over the expected cohort size."""

    def transpose(self, message: Vector, seed: int) -> Vector:
        """Return E^T times a message, where `encode` is E times an update; whoever attacks a scheme needs it.

        Schemes whose server adds E^T of the mean to the model have it from `decode`; linear ones that do more with it
        write their own.
        """
        if not self.linear:
            raise InputError(f"{self.name} is not linear, and has no transpose")
        zeros = self.init(np.zeros(self.dim, np.float32))
        return self.decode(message, zeros, seed, np.random.default_rng(0))["params"]

    # Costs and description.

    @property
    def paper_values(self) -> tuple[float, float]:
        """Return the 32-bit values per client and round that the papers count without privacy, (up, down)."""
        return (self.length, self.dim)

    def describe(self) -> dict[str, Any]:
        """Return what `sottovoce schemes` prints."""
        return {
            "name": self.name,
            "paper": self.paper,
            "saves": self.saves,
            "linear": self.linear,
            "private_twin": self.private,
            "keys": {key: getattr(self, key) for key in self.own_keys()},
        }
