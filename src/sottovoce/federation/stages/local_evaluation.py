"""Judge a model client by client, on records that each client kept out of its own training.

A mean over all records hides the clients that a model serves badly; here every client counts once. "Personal" is what a
client gets by training the final model on its own records a little longer, and keeping the result to itself.

None of this is private: the accuracy of a single client is a function of its records that no noise protects. A private
run may show these numbers to its operator, and may not publish them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.models import LearningTask, Shard, Trainer, answered

Places = NDArray[np.int64]
Accuracies = NDArray[np.float64]  # one a client; NaN for a client that kept no record out


class LocalSplit(NamedTuple):
    """One client's records: those it trains with, and those it kept out."""

    train: Shard
    held_out: Shard


class Personal(NamedTuple):
    """The accuracy of each client on its held-out records, before and after it trained the model further."""

    before: Accuracies
    after: Accuracies


def records_aside(records: int, held_out: float) -> int:
    """Count the records that a client sets aside: at least one, and never the only one."""
    in_range("held_out", held_out, low=0, high=1, open_low=True, open_high=True)
    return min(max(1, round(held_out * records)), records - 1) if records > 1 else 0


def split_places(records: int, held_out: float, rng: Generator) -> tuple[Places, Places]:
    """Return the places of the records that a client trains with, and of those that it sets aside at random."""
    aside = records_aside(records, held_out)
    order = rng.permutation(records)
    return np.sort(order[aside:]), np.sort(order[:aside])


def split_persons(persons: NDArray[np.int64], held_out: float, rng: Generator) -> tuple[Places, Places]:
    """Return the places of the records of persons that a site trains with, and of those that it sets aside at random.

    Guarantee: who is set aside depends on how many persons there are, and on nobody's values.
    """
    people, numbers = np.unique(persons, return_inverse=True)
    _, aside = split_places(len(people), held_out, rng)
    chosen = np.isin(numbers, aside)
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def split_shard(shard: Shard, held_out: float, rng: Generator) -> LocalSplit:
    """Set a random share of a client's records aside; whole persons, where these are known."""
    if shard.persons is None:
        places = split_places(len(shard.y), held_out, rng)
    else:
        places = split_persons(shard.persons, held_out, rng)
    train, test = (
        Shard(shard.x[own], shard.y[own], persons=None if shard.persons is None else shard.persons[own])
        for own in places
    )
    return LocalSplit(train, test)


def local_accuracies(trainer: Trainer, params: Vector, held_out: Sequence[Shard], *, task: LearningTask) -> Accuracies:
    """Return the accuracy of one model on the held-out records of each client."""
    return np.array([_accuracy(trainer, params, shard, task) for shard in held_out], np.float64)


def personal_accuracies(
    trainer: Trainer,
    params: Vector,
    clients: Sequence[LocalSplit],
    rngs: Sequence[Generator],
    *,
    task: LearningTask,
    trainable: NDArray[np.bool_] | None = None,
) -> Personal:
    """Return each client's accuracy before and after it trained `params` on its own records.

    How long and how it trains is the trainer's `LocalTraining`; `trainable` is what may move, as in a round. One
    personal model exists at a time, to bound memory.
    """
    before = local_accuracies(trainer, params, [client.held_out for client in clients], task=task)
    updates = trainer.updates(params, [client.train for client in clients], rngs, trainable)
    after = [
        _accuracy(trainer, params + update, client.held_out, task)
        for client, update in zip(clients, updates, strict=True)
    ]
    return Personal(before, np.array(after, np.float64))


def summarise_clients(accuracies: Accuracies, prefix: str = "client") -> dict[str, float | int | None]:
    """Return the fields of a summary: mean, worst tenth (the mean of the worst tenth of clients) and worst client.

    Clients that kept no record out are left out, and None stands for what nobody could measure.

    >>> summarise_clients(np.array([0.5, 1.0, np.nan]))["client_accuracy_worst"]
    0.5
    """
    if accuracies.ndim != 1:
        raise InputError(f"accuracies must be one number a client, got shape {accuracies.shape}")
    known = np.sort(accuracies[~np.isnan(accuracies)])
    if known.size and not 0 <= known[0] <= known[-1] <= 1:
        raise InputError(f"accuracies must be in [0, 1], got {known[0]:g} to {known[-1]:g}")
    tenth = known[: math.ceil(known.size / 10)]
    return {
        f"{prefix}_accuracy_mean": float(known.mean()) if known.size else None,
        f"{prefix}_accuracy_worst_tenth": float(tenth.mean()) if known.size else None,
        f"{prefix}_accuracy_worst": float(known[0]) if known.size else None,
        f"{prefix}_accuracy_clients": int(known.size),
    }


def _accuracy(trainer: Trainer, params: Vector, shard: Shard, task: LearningTask) -> float:
    if len(shard.y) == 0:
        return math.nan
    return float(answered(trainer.scores(params, shard.x), shard.y, task).mean())
