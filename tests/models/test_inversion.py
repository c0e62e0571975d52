from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, make_trainer, network
from sottovoce.models.inversion import Inversion, _Encoded

NET = network("mlp", (12, 12, 1), 4, hidden=32)
PARAMS = NET.initialise(np.random.default_rng(7))


def same(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values


def attack(steps: int = 1, **changes: Any) -> Inversion:
    keys: dict[str, Any] = {
        "network": NET,
        "training": LocalTraining(local_steps=steps, batch_size=None, client_lr=0.3),
        "encode": same,
        "transpose": same,
        "form": "floats",
        "trainable": None,
        "clients": 1,
        "records": 1,
        "iterations": 200,
        "smoothness": 0.001,
        "restarts": 1,
    }
    return Inversion(**keys | changes)


def images(count: int, seed: int = 1) -> Shard:
    """Return images of a bright square on black, each at a place of its own."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, 12, 12, 1), np.uint8)
    for image in x:
        top, left = rng.integers(0, 6, 2)
        image[top : top + 6, left : left + 6] = rng.integers(150, 255)
    return Shard(x, rng.permutation(4)[:count].astype(np.uint8))


def sent(shard: Shard, attacker: Inversion) -> NDArray[np.float32]:
    trainer = make_trainer(NET, attacker.training)
    rng = np.random.default_rng(0)
    return next(trainer.updates(PARAMS, [shard], [rng], attacker.trainable))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_update_that_is_matched_is_the_one_that_clients_send(steps: int, masked: bool, classes: int) -> None:
    net = network("mlp", (12, 12, 1), classes, hidden=9)
    mask = np.arange(net.dim) % 3 == 0 if masked else None
    attacker = attack(steps, network=net, trainable=mask)
    params, shard = net.initialise(np.random.default_rng(2)), images(4)
    shard = shard._replace(y=(shard.y % classes).astype(np.uint8))
    certain = torch.full((4, classes), -50.0)
    certain[torch.arange(4), torch.from_numpy(shard.y.astype(np.int64))] = 50.0

    made = attacker._update(torch.from_numpy(params), torch.from_numpy(shard.x / np.float32(255)), certain)

    (expected,) = make_trainer(net, attacker.training).updates(params, [shard], [np.random.default_rng(0)], mask)
    np.testing.assert_allclose(made.detach().numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_single_image_and_its_label_come_back(steps: int) -> None:
    attacker, shard = attack(steps), images(1)

    found = attacker.run(PARAMS, sent(shard, attacker), np.random.default_rng(3))

    assert np.abs(found.images - shard.x / 255).mean() < 0.05
    assert found.labels.tolist() == shard.y.tolist()


def test_signs_give_the_place_of_the_square_and_the_label() -> None:
    attacker, shard = attack(form="signs", smoothness=0.01), images(1)

    found = attacker.run(PARAMS, np.sign(sent(shard, attacker)), np.random.default_rng(3))

    true = shard.x[0].ravel() > 0
    assert found.images.ravel()[true].mean() > found.images.ravel()[~true].mean() + 0.2
    assert found.labels.tolist() == shard.y.tolist()


def test_of_a_sum_the_images_of_all_its_clients_come_back() -> None:
    attacker = attack(clients=2, iterations=300)
    one, two = images(1, seed=1), images(1, seed=5)
    total = sent(one, attacker) + sent(two, attacker)

    found = attacker.run(PARAMS, total, np.random.default_rng(3))

    true = np.concatenate([one.x, two.x]) / 255
    errors = [np.abs(found.images[list(order)] - true).mean() for order in ((0, 1), (1, 0))]
    assert min(errors) < 0.1


def test_a_message_of_another_image_gives_another_image() -> None:
    attacker = attack()

    one, two = (attacker.run(PARAMS, sent(images(1, seed), attacker), np.random.default_rng(3)) for seed in (1, 5))

    assert np.abs(one.images - two.images).mean() > 0.1


def test_the_best_of_several_starts_is_kept() -> None:
    attacker = attack(iterations=20, records=2, restarts=3)
    message = sent(images(2), attacker)

    best = attacker.run(PARAMS, message, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    alone = [replace(attacker, restarts=1).run(PARAMS, message, rng).distance for _ in range(3)]

    assert best.distance == pytest.approx(min(alone))
    assert max(alone) > min(alone)


def test_steps_are_told_over_all_starts() -> None:
    told: list[int] = []

    attack(iterations=3, restarts=2).run(PARAMS, sent(images(1), attack()), np.random.default_rng(3), told.append)

    assert told == [1, 2, 3, 4, 5, 6]


def test_the_gradient_of_an_encoding_is_its_transpose() -> None:
    matrix = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    update = torch.arange(5.0).requires_grad_()
    encoded = _Encoded.apply(update, lambda u: matrix @ u, lambda m: matrix.T @ m)

    (encoded**2).sum().backward()

    np.testing.assert_allclose(update.grad.numpy(), 2 * matrix.T @ (matrix @ np.arange(5.0)), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": LocalTraining(optimizer="adam")}, "retraces plain SGD"),
        ({"training": LocalTraining(momentum=0.5)}, "without momentum and prox"),
        ({"network": network("logistic", (12,), 2)}, "model 'logistic' cannot be inverted"),
    ],
)
def test_training_that_cannot_be_retraced_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attack(**changes)


def test_a_message_of_zeros_is_refused() -> None:
    with pytest.raises(InputError, match="zero in every value"):
        attack().run(PARAMS, np.zeros(NET.dim, np.float32), np.random.default_rng(0))
