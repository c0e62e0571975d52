"""A user's torch module that is made of known layers trains in C, and computes what torch computes for it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, choose_trainer, make_trainer
from sottovoce.models.module import TorchNetwork
from sottovoce.models.task import ClassTask
from sottovoce.models.units import CentreGrid, Units, clipped_centres
from sottovoce.models.wrap import wrap_module
from tests.models.modules import Residual, Tied, Twice, Viewing

TRAINING = LocalTraining(local_steps=4, batch_size=5, client_lr=0.1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 3))


def without_bias() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.ReLU(), nn.Linear(16, 3))


def convolutions() -> nn.Module:
    """ReLU before the pool and behind it, both paddings, an image that is flattened channel by channel."""
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, bias=False), nn.MaxPool2d(2)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 3)),
    )


class Written(nn.Module):
    """A forward of functions, layers made in another order than they are used, one score that is squeezed."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 1)
        self.conv = nn.Conv2d(2, 4, 5, padding="same")
        self.middle = nn.Linear(4 * 7 * 6, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        x = torch.relu(self.middle(x.reshape(x.shape[0], -1)))
        out: Tensor = self.last(x).squeeze(-1)
        return out


CASES: list[tuple[Callable[[], nn.Module], tuple[int, ...], int]] = [
    (mlp, (6,), 3),
    (without_bias, (6,), 3),
    (lambda: nn.Linear(6, 1), (6,), 2),
    (lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 3)), (3, 4, 2), 3),
    (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (3, 4), 3),
    (convolutions, (14, 13, 2), 3),
    (Written, (14, 13, 2), 2),
    (Viewing, (7, 6, 2), 3),
]


def wrapped(make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> TorchNetwork:
    torch.manual_seed(3)
    return wrap_module(make(), shape, classes, input_scale=0.5)


def shards(shape: tuple[int, ...], classes: int, count: int = 7) -> list[Shard]:
    rng = default_rng(5)
    sizes = rng.integers(3, 12, count)
    return [Shard(rng.normal(size=(n, *shape)).astype(np.float32), rng.integers(0, classes, n)) for n in sizes]


@pytest.mark.parametrize(("make", "shape", "classes"), CASES)
def test_a_compiled_module_learns_what_torch_learns(make: Any, shape: tuple[int, ...], classes: int) -> None:
    net = wrapped(make, shape, classes)
    records, params = shards(shape, classes), net.initialise(default_rng(0))
    compiled, slow = (make_trainer(net, TRAINING, kind) for kind in ("auto", "torch"))
    assert choose_trainer(net, TRAINING).trainer == "compiled"
    mask = default_rng(1).random(net.dim) < 0.5

    for trainable in (None, mask):
        ours, theirs = (
            np.stack(list(trainer.updates(params, records, [default_rng(k) for k in range(7)], trainable)))
            for trainer in (compiled, slow)
        )
        assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)
    assert not ours[:, ~mask].any()
    x = np.concatenate([shard.x for shard in records])
    assert np.allclose(compiled.scores(params, x), slow.scores(params, x), rtol=1e-4, atol=1e-5)
    assert np.allclose(compiled.gradient(params, records[0]), slow.gradient(params, records[0]), rtol=1e-3, atol=1e-5)


def test_an_update_is_independent_of_the_other_clients() -> None:
    net = wrapped(convolutions, (14, 13, 2), 3)
    records, params = shards((14, 13, 2), 3), net.initialise(default_rng(0))
    trainer = make_trainer(net, TRAINING)

    together = list(trainer.updates(params, records, [default_rng(k) for k in range(7)]))

    for number in (0, 6):
        (alone,) = trainer.updates(params, [records[number]], [default_rng(number)])
        assert alone.tobytes() == together[number].tobytes()


def test_a_unit_of_a_compiled_module_is_clipped_in_c_as_it_is_by_torch() -> None:
    net = wrapped(convolutions, (14, 13, 2), 3)
    shard, params = shards((14, 13, 2), 3, 1)[0], net.initialise(default_rng(0))
    step = LocalTraining(local_steps=1, batch_size=None, client_lr=0.1)

    ours, theirs = (
        clipped_centres(
            *(make_trainer(net, step, kind), params, shard, Units.records(np.arange(len(shard.y)))),
            CentreGrid(0.01, 50.0, 6),
            rng_of=default_rng,
        )
        for kind in ("auto", "torch")
    )

    assert np.abs(ours - theirs).max() <= 1 and ours.any()


class Detached(nn.Module):
    """No graph of fx shows that the first layer learns nothing here."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = torch.relu(self.first(x))
        out: Tensor = self.last(x)
        return out


class TwoMinded(nn.Module):
    """Training and evaluation are not the same function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        out: Tensor = self.last(torch.relu(x) if self.training else x)
        return out


def hooked() -> nn.Module:
    module = nn.Linear(6, 3)
    module.register_forward_hook(lambda layer, given, out: 2 * out)
    return module


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("make", "shape", "classes"),
    [
        (Detached, (6,), 3),
        (TwoMinded, (6,), 3),
        (hooked, (6,), 3),
        (frozen, (6,), 3),
        (Twice, (5,), 3),
        (lambda: Residual(2, 4), (4, 4, 2), 64),
        (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,), 3),
        (lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)), (6,), 3),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.Flatten(), nn.Linear(3, 3)), (4, 4, 2), 3),
        (lambda: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(8, 3)), (4, 4, 2), 3),
        (
            lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(12, 3)),
            (5, 5, 2),
            3,
        ),
    ],
)
def test_whatever_is_not_known_is_trained_by_torch(make: Any, shape: tuple[int, ...], classes: int) -> None:
    torch.manual_seed(3)
    module = make()
    if isinstance(module, Residual):
        module = nn.Sequential(module, nn.Flatten())
    net = wrap_module(module, shape, classes)

    assert net.compiled is None
    assert choose_trainer(net, TRAINING).trainer == "torch"
    list(
        make_trainer(net, TRAINING).updates(
            net.initialise(default_rng(0)), shards(shape, classes), [default_rng(0)] * 7
        )
    )


def test_tokens_are_trained_by_torch() -> None:
    assert wrap_module(Tied(), (4,), 300).compiled is None


def test_options_that_the_kernels_do_not_know_are_left_to_torch() -> None:
    net = wrapped(mlp, (6,), 3)

    assert choose_trainer(net, replace(TRAINING, optimizer="adam")).trainer == "torch"
    assert choose_trainer(net, TRAINING, "auto", "cuda").trainer == "torch"
    with pytest.raises(InputError, match=r"cannot train the torch module Sequential: .*momentum 0.5; use 'torch'"):
        make_trainer(net, replace(TRAINING, momentum=0.5), "fast")


def test_a_worker_trains_a_compiled_module_without_torch() -> None:
    net = wrapped(convolutions, (14, 13, 2), 3)
    params, (shard,) = net.initialise(default_rng(0)), shards((14, 13, 2), 3, 1)
    (update,) = make_trainer(net, TRAINING).updates(params, [shard], [default_rng(0)])
    program = (
        "import pickle, sys, numpy\n"
        "from sottovoce.models import make_trainer\n"
        "net, training, params, shard = pickle.loads(sys.stdin.buffer.read())\n"
        "trainer = make_trainer(net, training)\n"
        "(update,) = trainer.updates(params, [shard], [numpy.random.default_rng(0)])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.stdout.buffer.write(update.tobytes())\n"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((net, TRAINING, params, shard)), capture_output=True
    )

    assert found.stderr == b"" and found.stdout == update.tobytes()


def test_the_task_of_a_compiled_module_is_that_of_the_module() -> None:
    net = wrapped(Written, (14, 13, 2), 2)

    assert net.compiled is not None and net.compiled.network.task == net.task == ClassTask(2, True)
