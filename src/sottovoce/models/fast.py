"""Train the papers' CNN, MLPs and logistic regression several times faster than autograd, on one core.

`FastTrainer` computes what `TorchTrainer` computes, on the same batches, for networks of convolutions (stride 1),
max-pool 2, ReLU and dense layers under plain SGD. The work is done by `kernels_train.h`, whose first comment says where
the time is saved. `kernels.py` describes the network to them. This file checks and prepares, chooses how each layer
learns, and owns the memory.

How a layer learns is chosen from its own shape, the mask and the client's batch size, never from the other clients of
a call, so that a client's update has the same bits in any company:

    BY_RECORD   of a first dense layer and few records: remembers one row of gradients for each record;
    DIRECT      keeps the client's own weights and adds each step's gradient to them;
    LOW_RANK    leaves a big dense matrix as it was and remembers the factors of each step's gradient;
    SPARSE      computes only the gradients that the mask keeps.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Shape
from sottovoce.models.kernels import Job, Layer, kernels, layers_of, unavailable
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Shard, batches_of

__all__ = ["FastTrainer", "unavailable", "unsupported"]

_DIRECT, _LOW_RANK, _SPARSE, _BY_RECORD = range(4)
_UNITS: Final = 2  # as in kernels_shapes.h
_UNITS_AT_ONCE: Final = 96
_UNITS_WORKSPACE: Final = 4 * 2**20  # bytes: what fits the caches
_CLIENTS: Final = 10  # that share each product with the first weights; more gain nothing and cost memory
_SMALL_CLIENTS: Final = 64  # of a call, where all that they need fits the caches
_SMALL_WORKSPACE: Final = 2**20
_TOGETHER: Final = 2**22  # bytes of records, or of updates, that are put into one array
_WORKSPACE: Final = 128 * 2**20  # bytes; fewer clients share when they would need more
_RECORDS: Final = 96  # evaluated at once
_WIDE: Final = 1 << 16  # rows that are widened together, where they are held compact
_BIG: Final = 2**15  # weights from which a dense layer no longer fits the caches with its gradient
_SPARSE_FROM: Final = 2**12  # weights from which lists are worth it
_SPARSE_BELOW: Final = 0.1  # share of kept weights
_SPARSE_CONV_BELOW: Final = 0.03  # a convolution's own gradient already skips zeros

_KNOWN: Final = frozenset(("local_steps", "batch_size", "client_lr", "adam_epsilon", "ascend"))  # options

_Spare = TypeVar("_Spare", bytearray, NDArray[np.uint8])


def unsupported(network: Network, training: LocalTraining) -> str | None:
    """Return why the fast path cannot train this network this way, naming the layer or the option, or None."""
    if training.optimizer != "sgd":
        return f"the fast trainer knows plain SGD, not optimizer {training.optimizer!r}"
    if training.momentum:
        return f"the fast trainer knows plain SGD, not momentum {training.momentum:g}"
    if training.weighted_loss:
        return "the fast trainer counts every record the same, and the loss is weighted"
    if training.prox:
        return f"the fast trainer knows plain SGD, not prox {training.prox:g}"
    if (obstacle := training.unknown_to("fast", _KNOWN)) is not None:
        return obstacle
    if network.task.kernel is None:
        return f"the fast trainer does not know this loss of {network.task.name}"
    try:
        layers_of(network)
    except InputError as error:
        return str(error)
    reason = unavailable()
    if reason is None and network.task.kernel >= kernels().losses:
        return f"the kernels were built before they knew the loss of {network.task.name}; install sottovoce again"
    return reason


class FastTrainer:
    """The fast trainer: many clients at once from the same start, each independent of the others in the call."""

    def __init__(self, network: Network, training: LocalTraining) -> None:
        reason = unsupported(network, training)
        if reason is not None:
            raise InputError(f"{network.name}: {reason}; use trainer 'torch'")
        self.network = network
        self.training = training
        self._kernels = kernels()
        self._layers = layers_of(network)
        self._loss = network.task.kernel
        self._packed: tuple[Vector, NDArray[np.uint8]] | None = None
        self._spare_rows: list[bytearray] = []
        self._spare_rooms: list[NDArray[np.uint8]] = []

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield w_k - w of each shard, in order; coordinates outside `trainable` never move."""
        packed = self._pack(params, keep=len(shards) > 1)  # a device has one client, and little memory
        if trainable is not None:
            self._check_mask(trainable)
            if not trainable.any():
                yield from (np.zeros(self.network.dim, np.float32) for _ in shards)
                return
        if len(shards) != len(rngs):
            raise InputError(f"{len(shards)} shards need as many generators, got {len(rngs)}")
        kept = self._kept(trainable)
        steps, lr = self.training.local_steps, self.training.signed_lr
        counts = [_count(shard) for shard in shards]
        index, sizes = batches_of(counts, self.training, rngs)
        ends, batch = np.cumsum(steps * sizes).tolist(), sizes.tolist()
        drawn = map(index.__getitem__, map(slice, [0, *ends], ends))
        work = list(map(_ClientWork, shards, drawn, batch, [1 / size for size in batch], counts))

        @cache
        def modes_of(batch: int, records: int) -> tuple[int, ...]:
            return self._modes(steps * batch, records, kept)

        for modes, clients in groupby(work, lambda client: modes_of(client.batch, client.records)):
            yield from self._train(packed, list(clients), modes, steps, lr, trainable, kept)

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Return the gradient of the mean loss over all records of a shard."""
        packed = self._pack(params)
        records = _count(shard)
        total = np.zeros(self.network.dim, np.float32)
        for start in range(0, records, _RECORDS):
            piece = np.arange(start, min(start + _RECORDS, records))
            modes = self._modes(len(piece), records, self._kept(None))
            # One step at the rate -1 from the start is the gradient itself.
            work = [_ClientWork(shard, piece, len(piece), 1 / records, records)]
            for row in self._train(packed, work, modes, 1, -1.0, None, self._kept(None)):
                total += row
        return total

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of each record: (records, outputs), or (records,) where there is one."""
        if _is_compact(x):
            return np.concatenate([self.scores(params, x[at : at + _WIDE]) for at in range(0, len(x), _WIDE)])
        packed = self._pack(params)
        x = _stored(x, self.network.input_shape)
        logits = np.empty((len(x), self.network.task.outputs), np.float32)
        job = self._job(batch=_RECORDS, raw=x.dtype == np.uint8)
        workspace = self._workspace(job, None)
        self._kernels.scores(job, _place(packed), len(x), _place(x), _place(workspace), _place(logits))
        _give_back(self._spare_rooms, workspace)
        return logits[:, 0] if self.network.task.flat else logits

    def add_centres(
        self,
        total: NDArray[np.int64],
        params: Vector,
        shard: Shard,
        rows: NDArray[np.int64],
        sizes: NDArray[np.int64],
        *,
        ball: tuple[float, float, float],
        coordinates: NDArray[np.int64] | None,
        label_weights: Vector | None,
    ) -> bool:
        """Add the centres of units that take one step on all of their rows; False if the library cannot.

        `ball` is the clip norm, the same in steps, and the largest sum of squares of a centre, as in `units.py`.
        """
        if not self._kernels.sums_units:
            return False
        if len(sizes) == 0:
            return True
        x, y = shard.x, shard.y
        if x.dtype not in (np.uint8, np.float32) or not x.flags.c_contiguous:
            x, y, rows = x[rows], y[rows], np.arange(len(rows))
        x, y = _stored(x, self.network.input_shape), self.network.task.codes(y)
        packed, dim = self._pack(params), self.network.dim
        modes = [_DIRECT if layer.conv else _LOW_RANK for layer in self._layers]
        job = self._job(
            batch=int(sizes.max()),
            raw=x.dtype == np.uint8,
            modes=modes,
            lr=self.training.signed_lr,
            kept=[None] * len(modes),
        )
        job.training, job.chunk = _UNITS, min(_UNITS_AT_ONCE, len(sizes))
        while job.chunk > 1 and self._kernels.workspace_size(job, None) > _UNITS_WORKSPACE:
            job.chunk //= 2
        workspace = self._workspace(job, None)
        batch, share = sizes.astype(np.int32), (1 / sizes).astype(np.float32)
        rows = np.ascontiguousarray(rows, np.int64)
        weight = None if label_weights is None else np.ascontiguousarray(label_weights, np.float32)
        chosen = None if coordinates is None else np.ascontiguousarray(coordinates, np.int64)
        if weight is not None and self.network.task.name != "classification":
            raise InputError(f"label_weights are for classes, and {self.network.task.name} has none")
        if weight is not None and weight.shape != (self.network.classes,):
            raise InputError(f"label_weights must be {self.network.classes} numbers, got shape {weight.shape}")
        update, message = np.empty(dim, np.float32), np.empty(total.size, np.float32)
        self._kernels.centres(
            *(job, _place(packed), _place(x), _place(y), len(sizes)),
            *(_place(rows), _place(batch), _place(share), None if weight is None else _place(weight)),
            *(None if chosen is None else _place(chosen), total.size, *ball),
            *(_place(workspace), _place(update), _place(message), _place(total)),
        )
        _give_back(self._spare_rooms, workspace)
        return True

    def _train(
        self,
        packed: NDArray[np.uint8],
        clients: list[_ClientWork],
        modes: tuple[int, ...],
        steps: int,
        lr: float,
        trainable: NDArray[np.bool_] | None,
        kept: list[int | None],
    ) -> Iterator[Vector]:
        """Yield the update of each client; a chunk of them trains together, but few big updates are written at once."""
        mask = None if trainable is None else np.ascontiguousarray(trainable)
        mask_place = None if mask is None else _place(mask)
        largest = max(client.batch for client in clients)
        raw = all(client.shard.x.dtype == np.uint8 for client in clients)
        job = self._job(batch=largest, raw=raw, modes=modes, steps=steps, lr=lr, kept=kept)
        job.lowest = 0 if trainable is None else self._lowest(trainable)
        job.layer[0].records = max(client.records for client in clients) if modes[0] == _BY_RECORD else 0
        job.chunk = min(_SMALL_CLIENTS, len(clients))
        while job.chunk > _CLIENTS and self._kernels.workspace_size(job, mask_place) > _SMALL_WORKSPACE:
            job.chunk = max(_CLIENTS, job.chunk // 2)
        while job.chunk > 1 and self._kernels.workspace_size(job, mask_place) > _WORKSPACE:
            job.chunk //= 2
        workspace, size = self._workspace(job, mask_place), job.chunk
        dim = self.network.dim
        written = max(1, min(size, _TOGETHER // (4 * dim)))
        for first in range(0, len(clients), size):
            chunk = [_widened(client, whole=modes[0] == _BY_RECORD) for client in clients[first : first + size]]
            job.chunk = len(chunk)
            batch = np.array([client.batch for client in chunk], np.int32)
            records = np.array([client.records for client in chunk], np.int32)
            self._train_chunk(job, packed, chunk, mask_place, batch, records, workspace)
            for start in range(0, len(chunk), written):
                count = min(written, len(chunk) - start)
                rows = self._row()[None] if written == 1 else np.empty((count, dim), np.float32)
                self._kernels.updates(
                    *(job, _place(packed), mask_place, start, count, dim, _place(batch), _place(records)),
                    *(_place(workspace), _place(rows)),
                )
                if written == 1:
                    (row,) = rows
                    del rows
                    yield row
                    del row
                else:
                    yield from rows
        if len(clients) > 1:
            _give_back(self._spare_rooms, workspace)

    def _train_chunk(
        self,
        job: Job,
        packed: NDArray[np.uint8],
        clients: list[_ClientWork],
        mask: int | None,
        batch: NDArray[np.int32],
        records: NDArray[np.int32],
        workspace: NDArray[np.uint8],
    ) -> None:
        """Leave what these clients learn in the workspace."""
        codes, shape = self.network.task.codes, self.network.input_shape
        kind = np.uint8 if job.bytes else np.float32
        x, x_places = _together([client.shard.x for client in clients], lambda some: _stored(some, shape, kind))
        y, y_places = _together([client.shard.y for client in clients], codes)
        index = np.concatenate([client.batches for client in clients])
        share = np.array([client.share for client in clients], np.float32)
        self._kernels.train(
            *(job, _place(packed), mask, _place(x_places), _place(y_places), _place(index)),
            *(_place(batch), _place(records), _place(share), _place(workspace)),
        )
        del x, y  # their addresses were in use

    def _modes(self, rank: int, records: int, kept: list[int | None]) -> tuple[int, ...]:
        """Choose how each layer learns from a client's batches."""
        modes = [_mode(layer, rank, count) for layer, count in zip(self._layers, kept, strict=True)]
        first = self._layers[0]
        if not first.conv and kept[0] is None and _pays_by_record(first, rank, records):
            modes[0] = _BY_RECORD
        return tuple(modes)

    def _job(
        self,
        *,
        batch: int,
        raw: bool,
        modes: Sequence[int] = (),
        steps: int = 1,
        lr: float = 0.0,
        kept: Sequence[int | None] = (),
    ) -> Job:
        """Describe a piece of work; without modes it is an evaluation."""
        job = Job(layers=len(self._layers), steps=steps, chunk=1, batch=batch, bytes=raw, lr=lr)
        job.loss, job.training, job.scale = self._loss, bool(modes), self.network.input_scale
        for number, layer in enumerate(self._layers):
            job.layer[number] = layer
            if modes:
                job.layer[number].mode = modes[number]
                job.layer[number].kept = kept[number] or 0
        return job

    def _pack(self, params: Vector, *, keep: bool = True) -> NDArray[np.uint8]:
        """Return the parameters as the kernels read them; a round's clients share one copy, also over several calls."""
        if params.shape != (self.network.dim,):
            raise InputError(f"{self.network.name} has {self.network.dim} parameters, got shape {params.shape}")
        known = self._packed
        if known is not None and np.array_equal(known[0], params):
            return known[1]
        # Parameters off the wire cannot change; others are remembered as they are now.
        params = np.array(params, np.float32, copy=True if params.flags.writeable else None)
        job = self._job(batch=1, raw=False)
        packed = _room(self._kernels.packed_size(job))
        self._kernels.pack(job, _place(params), _place(packed))
        self._packed = (params, packed) if keep else None
        return packed

    def _row(self) -> Vector:
        """Return room for an update: that of an earlier one when nobody holds any part of it now.

        Clearing fresh pages was 14 % of all samples when a process that trains the papers' CNN was profiled.
        """
        size = 4 * self.network.dim
        memory = _take(self._spare_rows, size) or bytearray(size)
        row = np.frombuffer(memory, np.float32)
        # All views of the result keep `row` alive, so its end is the end of the last of them.
        weakref.finalize(row, _give_back, self._spare_rows, memory).atexit = False
        return row[:]

    def _workspace(self, job: Job, mask: int | None) -> NDArray[np.uint8]:
        size = self._kernels.workspace_size(job, mask)
        spare = _take(self._spare_rooms, size)
        return _room(size) if spare is None else spare

    def _check_mask(self, trainable: NDArray[np.bool_]) -> None:
        if trainable.shape != (self.network.dim,) or trainable.dtype != np.bool_:
            raise InputError(
                f"trainable must be {self.network.dim} booleans, got shape {trainable.shape} of {trainable.dtype}"
            )

    def _kept(self, trainable: NDArray[np.bool_] | None) -> list[int | None]:
        """Count the trainable weights of each layer; None without a mask."""
        if trainable is None:
            return [None] * len(self._layers)
        return [int(np.count_nonzero(trainable[layer.weight : layer.bias])) for layer in self._layers]

    def _lowest(self, trainable: NDArray[np.bool_]) -> int:
        """Return the first layer with a trainable coordinate: no gradient is needed below it."""
        return next(
            n for n, layer in enumerate(self._layers) if trainable[layer.weight : layer.bias + layer.outputs].any()
        )


class _ClientWork(NamedTuple):
    """What one client trains on."""

    shard: Shard
    batches: NDArray[np.int64]  # records of each batch, step by step
    batch: int
    share: float  # of one record in the loss of a batch
    records: int


def _mode(layer: Layer, rank: int, kept: int | None) -> int:
    """Choose how a layer learns; `rank` counts the records of all steps."""
    inputs = layer.inputs * layer.kernel**2
    size = inputs * layer.outputs
    if kept is not None:
        few = _SPARSE_CONV_BELOW if layer.conv else _SPARSE_BELOW
        return _SPARSE if size >= _SPARSE_FROM and kept <= few * size else _DIRECT
    if layer.conv or size < _BIG:
        return _DIRECT
    # Corrections for the steps so far grow with their number and at some point cost more than new weights do.
    return _LOW_RANK if rank * (inputs + layer.outputs) <= 2 * size else _DIRECT


def _pays_by_record(layer: Layer, rank: int, records: int) -> bool:
    """Tell whether products of all records with each other cost less than `rank` products with weights, and back."""
    outputs = -(-int(layer.outputs) // 16) * 16
    return records * (2 * outputs + records) <= rank * outputs


def _count(shard: Shard) -> int:
    if len(shard.x) == 0 or len(shard.x) != len(shard.y):
        raise DataError(f"a shard needs records and as many labels, got {len(shard.x)} and {len(shard.y)}")
    return len(shard.x)


def _is_compact(x: object) -> bool:
    """Tell whether features are widened only when they are asked for."""
    return not isinstance(x, np.ndarray)


def _widened(client: _ClientWork, *, whole: bool) -> _ClientWork:
    """Return the same work with features as an array: those of all records, or of the rows that batches read alone."""
    shard = client.shard
    if not _is_compact(shard.x):
        return client
    if whole:
        return client._replace(shard=shard._replace(x=np.asarray(shard.x)))
    used, places = np.unique(client.batches, return_inverse=True)
    some = Shard(shard.x[used], shard.y[used])
    return client._replace(shard=some, batches=places.astype(np.int64), records=len(used))


def _stored(x: NDArray[Any], shape: Shape, kind: type[np.generic] | None = None) -> NDArray[Any]:
    """Return records as rows the kernels can read: bytes as they are, anything else as float32."""
    x = x.reshape(len(x), math.prod(shape))
    return np.ascontiguousarray(x, kind or (np.uint8 if x.dtype == np.uint8 else np.float32))


def _together(
    arrays: list[NDArray[Any]], read: Callable[[NDArray[Any]], NDArray[Any]]
) -> tuple[list[NDArray[Any]], NDArray[np.uintp]]:
    """Return arrays as they are read, and the address of each; small ones of one kind are put behind each other."""
    alike = len({(array.dtype, array.shape[1:]) for array in arrays}) == 1
    if not alike or sum(array.nbytes for array in arrays) > _TOGETHER:
        found = [read(array) for array in arrays]
        return found, np.array([_place(array) for array in found], np.uintp)
    whole = read(np.concatenate(arrays) if len(arrays) > 1 else arrays[0])
    starts = np.cumsum([0, *map(len, arrays[:-1])])
    return [whole], (_place(whole) + starts * whole.strides[0]).astype(np.uintp)


def _room(size: int) -> NDArray[np.uint8]:
    """Return `size` uninitialised bytes that start on a cache line."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


def _take(spares: list[_Spare], size: int) -> _Spare | None:
    """Return a spare piece of memory that is large enough; a list's `pop` is safe between threads."""
    try:
        spare = spares.pop()
    except IndexError:
        return None
    return spare if len(spare) >= size else None


def _give_back(spares: list[_Spare], memory: _Spare) -> None:
    if not spares:
        spares.append(memory)


def _place(array: NDArray[Any]) -> int:
    """Return the address of an array; the caller keeps the array."""
    return array.ctypes.data
