from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from numpy.typing import NDArray
from torch import nn

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, batches, choose_trainer, make_trainer, network
from sottovoce.models.base import Model
from sottovoce.models.torch_trainer import TorchTrainer, proximal_gradient
from sottovoce.models.wrap import wrap_module

NET = network("mlp", (6,), 3, hidden=8)
MODULE = wrap_module(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (6,), 3)
SGD = LocalTraining(local_steps=6, batch_size=5, client_lr=0.2)
TRAININGS = [SGD, replace(SGD, momentum=0.9, client_lr=0.05), replace(SGD, optimizer="adam", client_lr=0.01)]
each_training = pytest.mark.parametrize("training", TRAININGS, ids=["sgd", "momentum", "adam"])
each_mask = pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])


def shard_of(net: Model, seed: int = 1) -> Shard:
    rng = default_rng(seed)
    return Shard(rng.standard_normal((14, *net.input_shape), dtype=np.float32), rng.integers(0, net.classes, 14))


def start_of(net: Model) -> NDArray[np.float32]:
    return net.initialise(default_rng(2))


def naive(training: LocalTraining, mask: NDArray[np.bool_], net: Model = NET) -> NDArray[np.float32]:
    """Train with torch's own optimisers on the gradient of the whole objective, loss + mu / 2 |w - w_t|^2."""
    start, shard = start_of(net), shard_of(net)
    slope = TorchTrainer(net, replace(training, prox=0.0))
    weights = torch.tensor(start, requires_grad=True)
    if training.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam([weights], lr=training.client_lr)
    else:
        optimizer = torch.optim.SGD([weights], lr=training.client_lr, momentum=training.momentum)
    for batch in batches(len(shard.y), training, default_rng(3)):
        optimizer.zero_grad()
        objective = training.prox / 2 * (weights - torch.tensor(start)).square().sum()
        objective.backward()  # type: ignore[no-untyped-call]
        loss = slope.gradient(weights.detach().numpy(), Shard(shard.x[batch], shard.y[batch]))
        weights.grad = (weights.grad + torch.from_numpy(loss)) * torch.from_numpy(mask)
        optimizer.step()
    result: NDArray[np.float32] = weights.detach().numpy() - start
    return result


def mask_of(masked: bool) -> NDArray[np.bool_]:
    return default_rng(4).random(NET.dim) < 0.4 if masked else np.ones(NET.dim, np.bool_)


def trained(training: LocalTraining, masked: bool = False, net: Model = NET) -> NDArray[np.float32]:
    mask = mask_of(True) if masked else None
    (update,) = TorchTrainer(net, training).updates(start_of(net), [shard_of(net)], [default_rng(3)], mask)
    return update.copy()


@each_training
@each_mask
@pytest.mark.parametrize("mu", [0.01, 1.0, 5.0])
def test_the_proximal_term_enters_every_optimiser_as_a_gradient(
    training: LocalTraining, masked: bool, mu: float
) -> None:
    training = replace(training, prox=mu)

    np.testing.assert_allclose(trained(training, masked), naive(training, mask_of(masked)), rtol=1e-3, atol=1e-5)


@each_training
def test_a_users_torch_module_is_pulled_in_the_same_way(training: LocalTraining) -> None:
    training = replace(training, prox=2.0)
    everything = np.ones(MODULE.dim, np.bool_)

    np.testing.assert_allclose(trained(training, net=MODULE), naive(training, everything, MODULE), rtol=1e-3, atol=1e-5)


@each_training
@each_mask
def test_without_prox_nothing_changes_by_a_single_bit(
    training: LocalTraining, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CalledError(Exception):
        pass

    def called(*_: object) -> None:
        raise CalledError

    plain = trained(training, masked)
    monkeypatch.setattr("sottovoce.models.torch_trainer.proximal_gradient", called)

    assert np.array_equal(trained(replace(training, prox=0.0), masked), plain)
    with pytest.raises(CalledError):
        trained(replace(training, prox=0.1), masked)


@pytest.mark.parametrize("training", TRAININGS[:2], ids=["sgd", "momentum"])
def test_the_stronger_the_pull_the_nearer_a_client_stays(training: LocalTraining) -> None:
    training = replace(training, local_steps=60, client_lr=0.05)
    distances = [float(np.linalg.norm(trained(replace(training, prox=mu)))) for mu in (0.0, 0.3, 3.0, 15.0)]

    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2 * distances[0]


def test_the_first_step_feels_no_pull() -> None:
    once = replace(SGD, local_steps=1)

    assert np.array_equal(trained(replace(once, prox=5.0)), trained(once))


def test_the_gradient_of_a_shard_is_that_of_its_loss_alone() -> None:
    with_prox, without = (TorchTrainer(NET, replace(SGD, prox=mu)) for mu in (5.0, 0.0))
    start, shard = start_of(NET), shard_of(NET)
    list(with_prox.updates(start, [shard], [default_rng(3)]))

    assert np.array_equal(with_prox.gradient(start, shard), without.gradient(start, shard))


def test_the_pull_is_mu_times_the_distance_and_touches_neither_vector() -> None:
    params, start = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0.0, 4.0])

    assert proximal_gradient(params, start, 0.5).tolist() == [0.5, -1.0]
    assert params.tolist() == [1.0, 2.0]
    assert start.tolist() == [0.0, 4.0]


def test_auto_takes_torch_for_prox_and_says_why() -> None:
    training = replace(SGD, prox=0.5)

    assert choose_trainer(NET, training) == ("torch", "the fast trainer knows plain SGD, not prox 0.5")
    assert isinstance(make_trainer(NET, training), TorchTrainer)
    with pytest.raises(InputError, match=r"not prox 0\.5; use trainer 'torch'"):
        make_trainer(NET, training, "fast")


@pytest.mark.parametrize("prox", [-0.1, float("nan"), float("inf")])
def test_a_pull_that_is_no_pull_is_refused(prox: float) -> None:
    with pytest.raises(InputError, match="prox must be finite and at least 0"):
        LocalTraining(prox=prox)


def test_a_pull_that_overshoots_is_refused_for_sgd() -> None:
    with pytest.raises(InputError, match=r"prox \* client_lr must be below 2, .* got 20 \* 0.1; lower one"):
        LocalTraining(prox=20.0, client_lr=0.1)
    LocalTraining(prox=20.0, client_lr=0.1, optimizer="adam")
