"""Compute one step of many units at once for a user's torch module: `vmap` over the gradient of each unit's loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from sottovoce.core.vectors import Vector
from sottovoce.models.module import TorchNetwork
from sottovoce.models.torch_module import ModuleProgram
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.trainer import Shard

Matrix = NDArray[np.float32]
_Piece = tuple[NDArray[np.int64], Matrix]


def mixing_layer(network: TorchNetwork) -> str | None:
    """Name a layer by which the update of a unit would depend on others or on chance; None if there is none known."""
    for path, layer in network.module().named_modules():
        if isinstance(layer, _BatchNorm | _DropoutNd):
            return f"{path or 'the module'} ({type(layer).__name__})"
    return None


def vmapped(
    trainer: TorchTrainer,
    params: Vector,
    shard: Shard,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    chunk: int,
) -> Iterator[Matrix] | None:
    """Return the updates of units of one size each, `chunk` at a time and in order; None if it must be done singly.

    That is so for networks of layers, several steps, optimisers with a memory, dropout, and whatever `vmap` refuses.
    """
    if not isinstance(trainer.program, ModuleProgram) or trainer.network.loss not in ("ce", "bce"):  # type: ignore[attr-defined]
        return None
    training, size = trainer.training, int(sizes.max(initial=0))
    whole = training.batch_size is None or size <= training.batch_size
    if training.local_steps > 1 or training.optimizer != "sgd" or not whole or training.weighted_loss:
        return None
    if size == 0 or (sizes != size).any():
        return None
    step = _Step(trainer, trainer.program, params)
    wanted = rows.reshape(-1, size)
    own = np.ones(rows.shape, np.float32) if weights is None else weights
    pieces = [(wanted[at : at + chunk], own.reshape(-1, size)[at : at + chunk]) for at in range(0, len(wanted), chunk)]
    try:
        first = step(shard, pieces[0][0], pieces[0][1], chunk)
    except (RuntimeError, NotImplementedError, ValueError):  # torch's words for what it cannot vectorise
        return None
    return _chained(first, step, shard, pieces[1:], chunk)


def _chained(first: Matrix, step: _Step, shard: Shard, pieces: list[_Piece], chunk: int) -> Iterator[Matrix]:
    yield first
    for rows, weights in pieces:
        yield step(shard, rows, weights, chunk)


class _Step:
    """One step of plain SGD from the same start, for a fixed number of units."""

    def __init__(self, trainer: TorchTrainer, program: ModuleProgram, params: Vector) -> None:
        self._network = trainer.network
        self._program = program
        self._lr = float(trainer.training.signed_lr)
        # A copy whose large layers are plain ones: the program's own keep their gradients out of autograd.
        self._module = trainer.network.module().to(trainer.device).train()  # type: ignore[attr-defined]
        flat = torch.tensor(params, dtype=torch.float32, device=trainer.device)
        layout = trainer.network.layout
        self._start = {name: flat[layout.span(name)].view(shape) for name, shape in layout.tensors}
        self._gradients = vmap(grad(self._loss), in_dims=(None, 0, 0, 0), randomness="error")

    def __call__(self, shard: Shard, rows: NDArray[np.int64], weights: NDArray[np.float32], chunk: int) -> Matrix:
        """Return the updates of some units, a row each.

        Products of another number of rows may be added in another order, so a chunk is always full.
        """
        units, size = rows.shape
        filler = np.minimum(np.arange(chunk), units - 1)
        places, own = rows[filler], weights[filler]
        x = self._program.inputs(shard.x[places.reshape(-1)])
        x = x.reshape(chunk, size, *x.shape[1:])
        labels = self._network.task.targets(shard.y[places.reshape(-1)])
        y = torch.from_numpy(labels).reshape(chunk, size, *labels.shape[1:])
        found = self._gradients(self._start, x, y.to(x.device), torch.from_numpy(own).to(x.device))
        matrix = torch.cat([found[name].reshape(chunk, -1) for name in self._start], dim=1)
        return np.asarray(matrix[:units].mul_(-self._lr).cpu().numpy())

    def _loss(self, start: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self._module, start, (x,))
        task = self._network.task
        scores = outputs.reshape(-1) if task.flat else outputs.reshape(-1, task.outputs)
        return task.torch_loss(scores, y, None if task.torch_only else weights)
