from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Network, Shard, make_trainer, network
from sottovoce.models.multitask import MultiTask

RNG = np.random.default_rng(4)
TRAINING = LocalTraining(local_steps=2, batch_size=None, client_lr=0.2)


def records(count: int = 40) -> tuple[Shard, np.ndarray]:
    x = RNG.standard_normal((count, 6)).astype(np.float32)
    return Shard(x, (x[:, 0] > 0).astype(np.uint8)), x[:, 1] > 0


@pytest.mark.parametrize("classes", [2, 3])
def test_without_weight_on_the_property_it_trains_like_everybody(classes: int) -> None:
    net = network("mlp", (6,), classes, hidden=5)
    params, (shard, has) = net.initialise(RNG), records()

    found = MultiTask(net, TRAINING, 0.0).update(params, shard, has)

    (expected,) = make_trainer(net, TRAINING).updates(params, [shard], [RNG])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_images_are_scaled_as_the_network_says() -> None:
    net = network("lfw-cnn", (8, 8, 1), 2)
    params = net.initialise(RNG)
    shard = Shard(RNG.integers(0, 255, (5, 8, 8, 1), np.uint8), np.array([0, 1, 0, 1, 1], np.uint8))

    found = MultiTask(net, TRAINING, 0.0).update(params, shard, np.ones(5, bool))

    (expected,) = make_trainer(net, TRAINING).updates(params, [shard], [RNG])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_classifier_of_the_property_learns_and_the_model_with_it() -> None:
    net = network("mlp", (6,), 2, hidden=8)
    params, (shard, has) = net.initialise(RNG), records(200)
    active = MultiTask(net, TRAINING, 0.9)

    for _ in range(100):
        params = params + active.update(params, shard, has)

    assert ((active.guess(params, shard.x) > 0) == has).mean() > 0.9


def test_the_loss_is_the_weighted_mean_of_both_tasks() -> None:
    net = network("mlp", (6,), 2, hidden=5)
    params, (shard, has) = net.initialise(RNG), records()
    head = torch.from_numpy(RNG.standard_normal((6, 1)).astype(np.float32))
    updates = {}
    for weight in (0.0, 0.3, 1.0):
        active = MultiTask(net, replace(TRAINING, local_steps=1), weight)
        active.head = head.clone()
        updates[weight] = active.update(params, shard, has)

    np.testing.assert_allclose(updates[0.3], 0.7 * updates[0.0] + 0.3 * updates[1.0], atol=1e-6)
    assert np.abs(updates[1.0]).max() > 1e-3


def test_with_all_weight_on_the_property_the_labels_move_nothing() -> None:
    net = network("mlp", (6,), 2, hidden=5)
    params, (shard, has) = net.initialise(RNG), records()
    head = torch.from_numpy(RNG.standard_normal((6, 1)).astype(np.float32))
    updates = []
    for labels in (shard.y, 1 - shard.y):
        active = MultiTask(net, replace(TRAINING, local_steps=1), 1.0)
        active.head = head.clone()
        updates.append(active.update(params, Shard(shard.x, labels), has))

    np.testing.assert_array_equal(*updates)


def test_what_may_not_move_stays() -> None:
    net = network("mlp", (6,), 2, hidden=5)
    shard, has = records()
    trainable = np.arange(net.dim) % 3 == 0

    update = MultiTask(net, TRAINING, 0.5).update(net.initialise(RNG), shard, has, trainable)

    assert (update[~trainable] == 0).all()
    assert (update[trainable] != 0).any()


def test_a_network_without_a_dense_end_is_refused() -> None:
    net = network("all-cnn-c", (8, 8, 1), 3)
    assert isinstance(net, Network)

    with pytest.raises(InputError, match="all-cnn-c does not end with a dense layer"):
        MultiTask(net, TRAINING, 0.5)
