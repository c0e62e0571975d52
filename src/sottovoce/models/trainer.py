"""Say what a trainer is: flat parameters in, one update a client out; and what local training costs a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range, one_of
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Model

ADAM_EPSILON: Final = 1e-8  # Kingma and Ba's, and torch's; it is no privacy budget

_USUAL_LR: Final = 0.1  # [client] client_lr of classes

_GFLOP_A_SECOND: Final = 30.0  # of our kernels on one core of a usual processor
_PER_UPDATE: Final = 1e-4  # seconds beside the products: batches, clipping, coding
_PER_TORCH_STEP: Final = 4e-4  # seconds that a step of torch takes however small it is


class Shard(NamedTuple):
    """One client's records: `x` as stored (uint8 images, token ids or float32 features), `y` as class numbers."""

    x: NDArray[Any]
    y: NDArray[Any]
    weights: NDArray[np.float32] | None = None  # of the records in the loss; None: all count the same
    persons: NDArray[np.int64] | None = None  # whom each record is about, where persons are protected


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains; the keys of `[client]`."""

    local_steps: int = 5
    batch_size: int | None = 10  # None: all of the client's records
    client_lr: float = 0.215
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.0
    adam_epsilon: float = ADAM_EPSILON
    prox: float = 0.0  # mu of FedProx; 0: off
    weighted_loss: bool = False  # a record counts n / (classes n_y), so that all classes of a client count the same
    ascend: bool = False  # climb the loss instead: what an attacker may do

    def __post_init__(self) -> None:
        in_range("local_steps", self.local_steps, low=1)
        if self.batch_size is not None:
            in_range("batch_size", self.batch_size, low=1)
        in_range("client_lr", self.client_lr, low=0, open_low=True)
        one_of("optimizer", self.optimizer, ("sgd", "adam"))
        in_range("momentum", self.momentum, low=0, high=1, open_high=True)
        if self.momentum and self.optimizer != "sgd":
            raise InputError(f"momentum is for optimizer 'sgd', got {self.momentum:g} with {self.optimizer!r}; use 0")
        in_range("adam_epsilon", self.adam_epsilon, low=0, open_low=True)
        if self.adam_epsilon != ADAM_EPSILON and self.optimizer != "adam":
            raise InputError(f"adam_epsilon is for optimizer 'adam', got {self.adam_epsilon:g}; remove it")
        in_range("prox", self.prox, low=0, open_high=True)
        if self.optimizer == "sgd" and self.prox * self.client_lr >= 2:
            raise InputError(
                f"prox * client_lr must be below 2, or each step throws a client further past the round's model, got "
                f"{self.prox:g} * {self.client_lr:g}; lower one of them"
            )
        if self.ascend and self.prox:
            raise InputError(f"whoever climbs the loss is not held back by prox, got {self.prox:g}; use 0")

    def unknown_to(self, trainer: str, known: frozenset[str]) -> str | None:
        """Say which option a trainer does not know, if it is not at its default: a new one is refused, not ignored."""
        for option in fields(self):
            if option.name not in known and (value := getattr(self, option.name)) != option.default:
                return f"the {trainer} trainer does not know {option.name} {value!r}"
        return None

    @property
    def signed_lr(self) -> float:
        """Return what a step takes from the weights, times the gradient; negative for who climbs."""
        return -self.client_lr if self.ascend else self.client_lr


def class_weights(y: NDArray[Any]) -> NDArray[np.float32]:
    """Return n / (classes n_y) for each record, of the classes that there are: the mean weight is 1.

    >>> class_weights(np.array([0, 0, 0, 1])).tolist() == [np.float32(2 / 3)] * 3 + [2.0]
    True
    """
    _, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray(len(y) / (len(counts) * counts[places]), np.float32)


def safe_lr(model: Model) -> float:
    """Return a rate at which steps on a squared loss do not diverge: 1 / (1 + values of a record), at most 0.1.

    The curvature is at most the mean of |x|^2 + 1, which is no more where the values have a mean square of 1. It holds
    for linear models and depends on nobody's records; networks with hidden layers kept to it in all that was tried.

    >>> from sottovoce.models.zoo import network
    >>> safe_lr(network("logistic", (4,), 2)), safe_lr(network("logistic", (99,), 2))
    (0.1, 0.01)
    """
    return min(_USUAL_LR, 1 / (1 + math.prod(model.trained.input_shape)))


class Trainer(Protocol):
    """Something that trains and evaluates one network; independent of the other clients in the call."""

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard, in order; coordinates outside `trainable` never move.

        Whoever looks at one at a time never holds more than one.
        """
        ...

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard, dropout off."""
        ...

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each record: (records, classes), or (records,) for a binary network."""
        ...


def batches(records: int, training: LocalTraining, rng: Generator) -> NDArray[np.int64]:
    """Return `local_steps` random batches, drawn without replacement (the papers' "select batch B from D randomly").

    A batch of all records has them in their order, and nothing is drawn.

    >>> batches(3, LocalTraining(local_steps=2, batch_size=10), np.random.default_rng(1)).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    return batches_of([records], training, [rng])[0].reshape(training.local_steps, -1)


def batches_of(
    records: Sequence[int], training: LocalTraining, rngs: Sequence[Generator]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the batches of several clients, one client after the other, and the size of each client's."""
    counts = np.array(records, np.int64)
    sizes = counts if training.batch_size is None else np.minimum(counts, training.batch_size)
    steps = training.local_steps
    drawn = [rngs[place].random(steps * int(sizes[place])) for place in np.flatnonzero(sizes < counts).tolist()]
    uniform = np.concatenate(drawn) if drawn else np.empty(0)
    index = np.empty(steps * int(sizes.sum()), np.int64)
    if (library := native.library()) is None:
        _plain_batches(uniform, counts, steps, sizes, index)
    else:
        order = np.empty(counts.max(initial=0), np.int64)
        places = [native.place(array) for array in (uniform, counts, sizes, index, order)]
        library.draw_batches(places[0], len(counts), places[1], steps, *places[2:])
    return index, sizes


def _plain_batches(
    uniform: NDArray[np.float64],
    counts: NDArray[np.int64],
    steps: int,
    sizes: NDArray[np.int64],
    index: NDArray[np.int64],
) -> None:
    """Shuffle each client's records as far as a batch goes, for each step on."""
    numbers, done = iter(uniform.tolist()), 0
    for count, size in zip(counts.tolist(), sizes.tolist(), strict=True):
        order = list(range(count))
        for _ in range(steps):
            for place in range(size if size < count else 0):
                other = place + int(next(numbers) * (count - place))
                order[place], order[other] = order[other], order[place]
            index[done : done + size] = order[:size]
            done += size


def training_gflop(model: Model, training: LocalTraining, records: float) -> float:
    """Return the GFLOP of one client's local training, if it has so many records.

    What a public front or frozen layers make of the records is computed once, before the first round, and not counted.

    >>> from sottovoce.models.zoo import network
    >>> cnn = network("cnn", (28, 28, 1), 10)
    >>> round(training_gflop(cnn, LocalTraining(local_steps=5, batch_size=10), records=10), 2)
    3.62
    """
    batch = records if training.batch_size is None else min(training.batch_size, records)
    return model.flops().training * batch * training.local_steps * 1e-9


def training_seconds(model: Model, training: LocalTraining, records: float) -> float:
    """Return about how long one core needs for one client's local training: a guess that costs nothing to make."""
    if model.compiled is not None:
        model = model.compiled.network
    if model.layered is None:  # its products are counted by torch, which need not be loaded for this
        return _PER_UPDATE + training.local_steps * _PER_TORCH_STEP
    return _PER_UPDATE + training_gflop(model, training, records) / _GFLOP_A_SECOND


def training_memory_mb(model: Model) -> float:
    """Return the least memory that training needs: weights, and a gradient of those that train; no activations."""
    return 4 * (model.flops().weights + model.dim) * 1e-6
