"""Sum what the units of privacy answer in a round: each is trained, clipped and rounded by itself.

A *unit* is what one person may change: a record, or all rows of one person at a site. A site plays one virtual client
for each unit and sends only their sum. Two functions do the work of a round:

    units = Units.records(drawn)                          # row numbers; or Units.groups([rows of each person, ...])
    grid = CentreGrid(clip_norm=S, radius=S / g, precision=p)
    total = clipped_centres(trainer, params, shard, units, grid, rng_of=rng_of)       # int64, steps of g 2^-p
    for rows in unit_updates(trainer, params, shard, units, rng_of=rng_of): ...       # float32 (some units, dim)

`clipped_centres` returns, in exact integers, the sum over all units of

    centre_i = clip(round(clip(encode(update_i), S), g 2^-p), S)         update_i = w_i - w of the unit's own rows

as `privacy.noise.path.unit_centres` makes it of the same updates, bit for bit. A linear scheme that keeps some
coordinates gives `coordinates`; any other gives `encode`, and every unit's update is then made and encoded in turn. A
unit whose update is not finite adds nothing; so does one whose update is zero.

The sum depends on the model and the units alone: not on their order, not on how they are divided among sites, calls or
chunks. Every unit's update has the same bits in any company, and integers add exactly. The C kernels give the same bits
with AVX2 and AVX-512; on 64-bit ARM they are written to, but that was not run, and without FMA training rounds
otherwise. Modules of torch are computed by torch, always so many units at a time, and have the bits that torch gives
them: equal in any order for the modules of the tests, which torch does not promise.

One step on all rows of a unit (`local_steps = 1`, the usual case) costs one pass in C for networks that the fast
trainer knows, with one row of updates in memory, and `torch.func.vmap` for a user's torch module. All else trains unit
by unit. Only that draws from `rng_of(i)`, the generator of the i-th unit of the call, and only where something is
random: the order of several rows, batches smaller than the unit, dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.models.fast import FastTrainer
from sottovoce.models.fronted import FrontTrainer
from sottovoce.models.kernels import kernels, unavailable
from sottovoce.models.partial import PartTrainer
from sottovoce.models.trainer import LocalTraining, Shard, Trainer

Rows = NDArray[np.int64]
Matrix = NDArray[np.float32]
Encode = Callable[[Vector], Vector]
RngOf = Callable[[int], Generator]

_COMPILED: Final = 2.0**25  # steps in the clip norm: the squares of a centre stay below 2^53, where doubles are exact
_FINEST: Final = 2.0**30  # ... and below 2^62, the range of integers
_CHUNK: Final = 64  # units at a time
_CHUNK_VALUES: Final = 2**22  # of all their updates together
_READ: Final = 1024  # units whose records a front reads at a time
_WIDE: Final = 1 << 14  # units whose records are widened at a time, where they are held compact


@runtime_checkable
class StepsOfUnits(Protocol):
    """A trainer that may compute one step of many units at once."""

    def unit_steps(
        self, params: Vector, shard: Shard, rows: Rows, sizes: Rows, weights: Vector | None, chunk: int
    ) -> Iterator[Matrix] | None:
        """Return the updates of units, `chunk` at a time and in order; None if it must be done singly."""
        ...


class Units(NamedTuple):
    """The units of a call: the row numbers of all of them, unit after unit, and how many rows each has."""

    rows: Rows
    sizes: Rows

    @classmethod
    def records(cls, rows: NDArray[Any]) -> Units:
        """Return units of one record each.

        >>> Units.records(np.array([4, 2])).sizes.tolist()
        [1, 1]
        """
        rows = np.ascontiguousarray(rows, np.int64)
        return cls(rows, np.ones(len(rows), np.int64))

    @classmethod
    def groups(cls, rows: Sequence[NDArray[Any]]) -> Units:
        """Return units of several rows each.

        >>> Units.groups([np.array([4, 2]), np.array([0])]).sizes.tolist()
        [2, 1]
        """
        together = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64)
        return cls(together, np.array([len(own) for own in rows], np.int64))

    @classmethod
    def of_persons(cls, persons: NDArray[np.int64]) -> Units:
        """Return one unit for each person: its rows in their order.

        >>> Units.of_persons(np.array([7, 3, 7])).rows.tolist()
        [1, 0, 2]
        """
        _, sizes = np.unique(persons, return_counts=True)
        return cls(np.argsort(persons, kind="stable").astype(np.int64), sizes.astype(np.int64))

    def some(self, places: NDArray[np.int64]) -> Units:
        """Return the units at some places."""
        starts = self.starts
        sizes = self.sizes[places]
        offsets = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Units(self.rows[np.repeat(starts[places], sizes) + offsets], sizes)

    @property
    def starts(self) -> Rows:
        """Return where the rows of each unit begin, and the end of the last."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])

    def part(self, first: int, last: int) -> Units:
        """Return the units from `first` to before `last`."""
        starts = self.starts
        return Units(self.rows[starts[first] : starts[min(last, len(self.sizes))]], self.sizes[first:last])


class RowsInOrder(Generator):
    """A generator that leaves the rows of a unit in their order.

    A unit's step sees all of its rows and draws nothing else, so an order of their own would only round otherwise, and
    differ with the place of the unit among others.
    """

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Return 0, 1, ... for a number of rows."""
        return np.arange(x)


class CentreGrid(NamedTuple):
    """Where the centre of a unit may lie: on steps of g 2^-precision, at most `clip_norm` = `radius` g from zero."""

    clip_norm: float
    radius: float
    precision: int

    @property
    def steps(self) -> float:
        """Return the clip norm in steps."""
        return 2.0**self.precision * self.radius

    @property
    def limit(self) -> int:
        """Return the largest sum of squares of a centre, in steps."""
        return int(Fraction(self.radius) ** 2 * 4**self.precision)

    @property
    def compiled(self) -> bool:
        """Tell whether the kernels, which add squares as doubles, are exact on this grid."""
        return self.steps <= _COMPILED

    def check(self) -> None:
        """Raise unless centres on this grid can be added exactly."""
        in_range("clip_norm", self.clip_norm, low=0, open_low=True, open_high=True)
        in_range("radius", self.radius, low=0, open_low=True, open_high=True)
        in_range("precision", self.precision, low=0)
        if self.steps > _FINEST:
            raise InputError(
                f"radius * 2^precision must be at most 2^30, got {self.radius:g} * 2^{self.precision}; lower precision"
            )


def clipped_centres(
    trainer: Trainer,
    params: Vector,
    shard: Shard,
    units: Units,
    grid: CentreGrid,
    *,
    coordinates: Rows | None = None,
    encode: Encode | None = None,
    length: int | None = None,
    trainable: NDArray[np.bool_] | None = None,
    label_weights: Vector | None = None,
    rng_of: RngOf,
) -> Rows:
    """Return the sum of the centres of all units, one integer for each value of a message.

    `length` is that of a message; not given, it is found with an update of zeros. `label_weights`: what a record of
    each class counts in the loss; it must be public. `trainable` is for several steps: coordinates outside of it
    never move.

    Guarantee: one unit more or less changes the sum by a vector of norm at most `grid.radius` 2^precision, as exact
    integers.
    """
    grid.check()
    _check(units, shard, label_weights)
    if coordinates is not None and encode is not None:
        raise InputError("a message is made by coordinates or by encode, got both; give one")
    if length is None:
        length = np.size(_message(np.zeros(len(params), np.float32), coordinates, encode))
    total = _Sum(grid, length)
    for part in _parts(trainer, shard, units):
        free = trainable is None or (coordinates is not None and bool(trainable[coordinates].all()))
        if encode is None and free and _one_pass(total, part, params, coordinates, label_weights):
            continue
        for piece in _of_one_size(part):
            for chunk in _updates(piece, params, trainable, label_weights, rng_of):
                # Not finite: nothing is sent, for what a scheme makes of it might be finite.
                for update in chunk[np.isfinite(chunk).all(axis=1)]:
                    total.add(_message(update, coordinates, encode))
    return total.values


def unit_updates(
    trainer: Trainer,
    params: Vector,
    shard: Shard,
    units: Units,
    *,
    trainable: NDArray[np.bool_] | None = None,
    label_weights: Vector | None = None,
    rng_of: RngOf,
) -> Iterator[Matrix]:
    """Yield w_i - w of each unit, in order, some units at a time: (units, dim)."""
    _check(units, shard, label_weights)
    for part in _parts(trainer, shard, units):
        yield from _updates(part, params, trainable, label_weights, rng_of)


def add_centre(total: Rows, message: Vector, grid: CentreGrid) -> None:
    """Add the centre of one message to a sum, in numpy alone; the same bits as in C."""
    wide = np.asarray(message, np.float64)
    length = math.sqrt(_squares(wide))
    if not math.isfinite(length):
        return
    scale = grid.steps / max(length, grid.clip_norm)
    for attempt in range(64):
        centre = np.rint(wide * scale).astype(np.int64)
        squares = int((centre * centre).sum())
        if squares <= grid.limit:
            total += centre
            return
        # Rounding lengthened it. Aim below the limit, and further below it each time.
        scale *= math.sqrt(grid.limit / squares) * (1 - min(0.5, 1e-6 * 2.0**attempt))


def _squares(wide: NDArray[np.float64]) -> float:
    """Return the sum of squares by four sums, always the same four, so that no machine adds in another order."""
    whole = wide.size - wide.size % 4
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(wide)
        sums = np.add.accumulate(squares[:whole].reshape(-1, 4))[-1] if whole else np.zeros(4)
        first = sums[0]
        for square in squares[whole:]:
            first += square
        return float((first + sums[1]) + (sums[2] + sums[3]))


class _Sum:
    """The exact sum of centres so far."""

    def __init__(self, grid: CentreGrid, length: int) -> None:
        self.values = np.zeros(length, np.int64)
        self.grid = grid
        found = kernels() if unavailable() is None else None
        self._kernels = found if found is not None and found.sums_units and grid.compiled else None

    def add(self, message: Vector) -> None:
        """Add the centre of a message; one that is not finite adds nothing."""
        if message.shape != self.values.shape:
            raise InputError(f"a message of {self.values.size} values was expected, got shape {message.shape}")
        if self._kernels is None:
            add_centre(self.values, message, self.grid)
            return
        message, grid = np.ascontiguousarray(message, np.float32), self.grid
        self._kernels.add_centre(
            message.ctypes.data, message.size, grid.clip_norm, grid.steps, grid.limit, self.values.ctypes.data
        )


class _Part(NamedTuple):
    """Some units of a call with the records that their trainer reads, and their places in the call."""

    trainer: Trainer
    shard: Shard
    units: Units
    places: Rows


def _parts(trainer: Trainer, shard: Shard, units: Units) -> Iterator[_Part]:
    """Yield all units at once; or some at a time, to bound memory, where features are made or widened first."""
    if not isinstance(trainer, FrontTrainer) and isinstance(shard.x, np.ndarray):
        yield _Part(trainer, shard, units, np.arange(len(units.sizes)))
        return
    front = trainer if isinstance(trainer, FrontTrainer) else None
    inner, size = (trainer, _WIDE) if front is None else (front.trainer, _READ)
    for first in range(0, len(units.sizes), size):
        some = units.part(first, first + size)
        x = shard.x[some.rows]
        read = Shard(x if front is None else front.model.features(x), shard.y[some.rows])
        yield _Part(inner, read, Units(np.arange(len(some.rows)), some.sizes), first + np.arange(len(some.sizes)))


def _of_one_size(part: _Part) -> Iterator[_Part]:
    """Yield the part in pieces whose units have equally many rows, which torch can compute together."""
    if not isinstance(part.trainer, StepsOfUnits):
        yield part
        return
    for size in np.unique(part.units.sizes):
        own = np.flatnonzero(part.units.sizes == size)
        yield part._replace(units=part.units.some(own), places=part.places[own])


def _message(update: Vector, coordinates: Rows | None, encode: Encode | None) -> Vector:
    if encode is not None:
        return encode(update)
    return update if coordinates is None else update[coordinates]


def _one_pass(total: _Sum, part: _Part, params: Vector, coordinates: Rows | None, label_weights: Vector | None) -> bool:
    """Add the centres of a part by the kernels, without an update of each unit; False if they cannot."""
    trainer = part.trainer
    if isinstance(trainer, PartTrainer):
        whole, places = trainer.part, np.asarray(trainer.part.places, np.int64)
        coordinates = places if coordinates is None else places[coordinates]
        trainer, params = trainer.trainer, whole.joined(params)
    grid = total.grid
    if not isinstance(trainer, FastTrainer) or not grid.compiled or not _single_step(trainer.training, part.units):
        return False
    return trainer.add_centres(
        total.values,
        params,
        part.shard,
        part.units.rows,
        part.units.sizes,
        ball=(grid.clip_norm, grid.steps, grid.limit),
        coordinates=coordinates,
        label_weights=label_weights,
    )


def _updates(
    part: _Part,
    params: Vector,
    trainable: NDArray[np.bool_] | None,
    label_weights: Vector | None,
    rng_of: RngOf,
) -> Iterator[Matrix]:
    """Yield the updates of a part: by `vmap` where torch can, else one unit after the other by the trainer."""
    trainer, shard, units, places = part
    weights = None if label_weights is None else np.asarray(label_weights, np.float32)[shard.y[units.rows]]
    if trainable is None and isinstance(trainer, StepsOfUnits):
        matrices = trainer.unit_steps(params, shard, units.rows, units.sizes, weights, _chunk(len(params)))
        if matrices is not None:
            yield from matrices
            return
    inner = trainer.trainer if isinstance(trainer, PartTrainer) else trainer
    if weights is not None and isinstance(inner, FastTrainer):
        raise InputError("the fast trainer weighs labels in one step on all rows of a unit only; use trainer 'torch'")
    # One record has one order, and the fast trainer draws nothing else: a generator for each unit would cost more.
    quiet = np.random.default_rng(0) if isinstance(inner, FastTrainer) and bool((units.sizes == 1).all()) else None
    starts, count, size = units.starts, len(units.sizes), _chunk(len(params))
    for first in range(0, count, size):
        shards, rngs = [], []
        for unit in range(first, min(first + size, count)):
            own = slice(starts[unit], starts[unit + 1])
            rows = units.rows[own]
            shards.append(Shard(shard.x[rows], shard.y[rows], None if weights is None else weights[own]))
            rngs.append(rng_of(int(places[unit])) if quiet is None else quiet)
        matrix = np.empty((0, 0), np.float32)
        for place, update in enumerate(trainer.updates(params, shards, rngs, trainable)):
            if place == 0:  # statistics have another length than a model
                matrix = np.empty((len(shards), update.size), np.float32)
            matrix[place] = update
        yield matrix


def _single_step(training: LocalTraining, units: Units) -> bool:
    """Tell whether every unit takes one step of plain SGD on all of its rows."""
    most = int(units.sizes.max(initial=0))
    return training.local_steps == 1 and (training.batch_size is None or most <= training.batch_size)


def _chunk(dim: int) -> int:
    return max(1, min(_CHUNK, _CHUNK_VALUES // dim))


def _check(units: Units, shard: Shard, label_weights: Vector | None) -> None:
    if len(shard.x) != len(shard.y):
        raise DataError(f"a shard needs as many labels as records, got {len(shard.y)} and {len(shard.x)}")
    if int(units.sizes.sum()) != len(units.rows) or (units.sizes < 1).any():
        raise InputError("every unit must have at least one row, and all rows must belong to one")
    if len(units.rows) and not 0 <= units.rows.min() <= units.rows.max() < len(shard.y):
        raise InputError(f"rows of units must be in [0, {len(shard.y)}), got {units.rows.min()} to {units.rows.max()}")
    if label_weights is not None and not (np.isfinite(label_weights).all() and np.min(label_weights) >= 0):
        raise InputError("label_weights must be finite and not negative")
