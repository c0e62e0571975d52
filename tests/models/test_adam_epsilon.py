"""Adam's epsilon: torch's own by default, Keras's where the papers' runs are repeated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from sottovoce.core.errors import InputError
from sottovoce.models.network import Linear, Network
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.trainer import LocalTraining, Shard, batches

NET = Network("dense", (Linear(6), Linear(3, relu=False)), (5,), 3)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-7, 1e-2])
def test_adam_takes_the_epsilon_it_is_given(epsilon: float) -> None:
    training = LocalTraining(local_steps=4, batch_size=6, client_lr=0.01, optimizer="adam", adam_epsilon=epsilon)
    rng = default_rng(1)
    shard = Shard(rng.standard_normal((15, 5)).astype(np.float32), rng.integers(0, 3, 15))
    params = NET.initialise(default_rng(2))
    trainer = TorchTrainer(NET, training)

    (update,) = trainer.updates(params, [shard], [default_rng(3)])

    weights = torch.tensor(params, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.01, eps=epsilon)
    for batch in batches(15, training, default_rng(3)):
        part = Shard(shard.x[batch], shard.y[batch])
        weights.grad = torch.from_numpy(trainer.gradient(weights.detach().numpy(), part))
        optimizer.step()
    np.testing.assert_allclose(update, weights.detach().numpy() - params, rtol=1e-3, atol=1e-6)


def test_it_is_refused_where_it_does_nothing() -> None:
    with pytest.raises(InputError, match="adam_epsilon is for optimizer 'adam', got 1e-07; remove it"):
        LocalTraining(adam_epsilon=1e-7)
    with pytest.raises(InputError, match="adam_epsilon must be"):
        LocalTraining(optimizer="adam", adam_epsilon=0.0)
