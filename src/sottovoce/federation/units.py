"""The units of a site, records or persons: each plays one virtual client, and the site sends their sum.

In a round a unit does what a client does where clients are protected: it trains from the round's model on its own rows,
encodes and is clipped. The site adds the centres of its units as integers and has them noised once, so that nothing
above the site differs from a run of clients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError
from sottovoce.core.vectors import Vector
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models import Shard, Trainer
from sottovoce.models.units import CentreGrid, RowsInOrder, Units, clipped_centres, unit_updates
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.base import Scheme, Task
from sottovoce.schemes.packed_signs import expand
from sottovoce.schemes.standard import Standard

_DRIFT: Final = 0.4  # standard deviation of what noise alone adds to a weight over a run
_LINEAR: Final = 50.0  # longest step, in clip norms, of a model without hidden layers, and of others
_DEEP: Final = 2.0


def unit_lr(plan: PrivacyPlan, *, momentum: float, deep: bool) -> float:
    """Return the server's lr that suits a plan: the noise of all rounds together moves each weight by 0.4.

    lr S / (1 - momentum) = min(50, 0.4 N / (z sqrt(T))), where N units are expected in a round, z is the noise
    multiplier, T the rounds and S the clip norm. 0.4 and 50 were chosen with logistic regression (docs/records.md);
    networks with hidden layers take at most 2. All of it is public.
    """
    noise = plan.noise_multiplier * math.sqrt(plan.rounds) / plan.request.batch
    step = min(_DEEP if deep else _LINEAR, _DRIFT / noise)
    return float((1 - momentum) * step / plan.request.clip_norm)


_HEAD: Final = 16 / 1000  # longest step of a head, in clip norms and for each client of a round
_LENGTH: Final = 0.3  # one over the length of a front's features


def head_lr(plan: PrivacyPlan) -> float:
    """Return the server's lr of a model on features of length 1 / 0.3, where clients are protected.

    lr S = 0.3 * 16 N / 1,000, where N clients are expected in a round and S is the clip norm: the noise of a round then
    moves a weight alike whatever N is, up to the noise multiplier. Chosen on MNIST, Fashion-MNIST and CIFAR-10
    (docs/whitening.md). All of it is public.
    """
    return _LENGTH * _HEAD * plan.request.batch / plan.request.clip_norm


@runtime_checkable
class UnitMessages(Protocol):
    """A trainer that makes the messages of many units at once, where nobody trains."""

    def unit_messages(self, params: Vector, shard: Shard, units: Units) -> Iterator[NDArray[np.float32]]:
        """Yield the messages of some units at a time, a row each; one depends on its own rows alone."""
        ...


def drawn_units(units: int, rate: float, coins: Generator) -> NDArray[np.int64]:
    """Return which units take part in a round: all, or each by its own coin.

    Guarantee: a coin depends on nothing that leaves the site, and no other coin depends on it.
    """
    return np.arange(units) if rate == 1 else np.flatnonzero(coins.random(units) < rate)


_TAIL: Final = 40 * math.log(2)  # more units than work is padded to are drawn with a chance of 2^-40


def most_drawn(units: int, rate: float) -> int:
    """Return how many units are drawn at most but for a chance of 2^-40 (Bernstein's inequality).

    >>> most_drawn(20_000, 0.1), most_drawn(50, 0.5)
    (2335, 50)
    """
    mean = units * rate
    return min(units, math.ceil(mean + math.sqrt(2 * mean * (1 - rate) * _TAIL) + 2 * _TAIL / 3))


def padding(units: Units, taking: NDArray[np.int64], rate: float) -> Units:
    """Return units that a site computes beside those that it drew, and throws away.

    Guarantee: drawn and added units together are always as many, with as many rows, but for a chance of 2^-40. So how
    long a site works does not tell how many it drew, nor how many rows these have.
    """
    most = most_drawn(len(units.sizes), rate)
    spare = most - len(taking)
    if rate == 1 or spare <= 0:
        return Units(np.empty(0, np.int64), np.empty(0, np.int64))
    rows = int(np.sort(units.sizes)[::-1][:most].sum()) - int(units.sizes[taking].sum())
    sizes = np.full(spare, rows // spare, np.int64)
    sizes[: rows % spare] += 1
    return Units(np.resize(units.rows, rows), sizes)


def units_of(shard: Shard) -> Units:
    """Return the units that a site holds: its persons if it knows whose a row is, else its records."""
    return Units.records(np.arange(len(shard.y))) if shard.persons is None else Units.of_persons(shard.persons)


def count_units(shard: Shard) -> int:
    """Count the units that a site holds, which is public."""
    return len(units_of(shard).sizes)


def sum_of_units(
    plan: PrivacyPlan,
    scheme: Scheme,
    trainer: Trainer,
    task: Task,
    shard: Shard,
    *,
    coins: Generator,
    choices: Generator,
) -> NDArray[np.int64]:
    """Return the exact sum of the centres of the units that take part; zeros if none does.

    Guarantee: what a unit adds depends on the round's public model and on its own rows. A unit whose training diverged
    adds zero, and whether the site answers depends on none of them. With coins the work is that of the most units that
    may be drawn (`padding`).
    """
    if (plan.request.unit == "person") != (shard.persons is not None):
        raise PrivacyError(f"the plan protects each {plan.request.unit}, and the records were not put together so")
    if isinstance(scheme, SurveyTally):
        return scheme.total(shard, CentreGrid(*plan.unit_grid))
    units, rate = units_of(shard), plan.request.unit_rate
    taking = drawn_units(len(units.sizes), rate, coins)
    total = _summed(plan, scheme, trainer, task, shard, units.some(taking), choices)
    if rate < 1:
        _summed(plan, scheme, trainer, task, shard, padding(units, taking, rate), np.random.default_rng(0))
    return total


def _summed(
    plan: PrivacyPlan,
    scheme: Scheme,
    trainer: Trainer,
    task: Task,
    shard: Shard,
    units: Units,
    choices: Generator,
) -> NDArray[np.int64]:
    """Return the sum of the centres of some units."""
    length, in_order, trainable = plan.request.length, RowsInOrder(), scheme.trainable(task.seed)
    if plan.request.form == "floats" and not isinstance(trainer, UnitMessages):
        plain = type(scheme).encode is Standard.encode
        return clipped_centres(
            trainer,
            task.params,
            shard,
            units,
            CentreGrid(*plan.unit_grid),
            encode=None if plain else lambda update: scheme.encode(update, task.seed, choices),
            length=length,
            trainable=trainable,
            rng_of=lambda unit: in_order,
        )
    total = np.zeros(length, np.int64)
    if isinstance(trainer, UnitMessages):
        for messages in trainer.unit_messages(task.params, shard, units):
            total += plan.centres(messages)
        return total
    for updates in unit_updates(trainer, task.params, shard, units, trainable=trainable, rng_of=lambda unit: in_order):
        total += plan.centres(np.stack([_signs(scheme, update, task.seed, length, choices) for update in updates]))
    return total


def _signs(scheme: Scheme, update: Vector, seed: int, length: int, choices: Generator) -> NDArray[np.int8]:
    """Return the signs of a unit; those of one that diverged are random."""
    finite = update if bool(np.isfinite(update).all()) else np.zeros_like(update)
    return expand(scheme.encode(finite, seed, choices), length)
