from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sottovoce.core.errors import DataError, InputError, WireError
from sottovoce.models import LocalTraining, Shard, batches, evaluate, make_model, make_trainer, network
from sottovoce.models.module import TorchNetwork
from sottovoce.models.task import ClassTask
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.wrap import wrap_module
from tests.models.modules import Tied, Twice, Viewing, cnn, resnet
from tests.models.rows import updates_of

PLAIN = LocalTraining(local_steps=4, batch_size=6, client_lr=0.1)
TRAININGS = [PLAIN, replace(PLAIN, momentum=0.9), replace(PLAIN, optimizer="adam", client_lr=0.01)]
each_training = pytest.mark.parametrize("training", TRAININGS, ids=["sgd", "momentum", "adam"])
IMAGES = (7, 6, 2)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def records(net: TorchNetwork, count: int, rng: Generator) -> Shard:
    shape, y = (count, *net.input_shape), rng.integers(0, net.classes, count)
    if net.tokens:
        return Shard(rng.integers(0, 300, shape).astype(np.uint16), y)
    if len(net.input_shape) == 3:
        return Shard(rng.integers(0, 256, shape, dtype=np.uint8), y)
    return Shard(rng.standard_normal(shape, dtype=np.float32), y)


def inputs(net: TorchNetwork, x: NDArray[Any]) -> Tensor:
    """Give the records as the module gets them, by definition."""
    if net.tokens:
        return torch.tensor(x.astype(np.int64))
    scaled = torch.tensor(x.astype(np.float32) * np.float32(net.input_scale))
    if net.images == "stored":
        return scaled
    turned = scaled.permute(0, 3, 1, 2)
    return turned.contiguous() if net.images == "copied" else turned


def naive_loss(net: TorchNetwork, module: nn.Module, shard: Shard) -> Tensor:
    outputs = module(inputs(net, shard.x))
    if net.binary:
        return nn.functional.binary_cross_entropy_with_logits(outputs.flatten(), torch.tensor(shard.y).float())
    return nn.functional.cross_entropy(outputs, torch.tensor(shard.y))


def trained(net: TorchNetwork, module: nn.Module) -> NDArray[np.float32]:
    moving = [p.detach().numpy().ravel() for p in module.parameters() if p.requires_grad]
    return np.concatenate(moving)


def naive_update(net: TorchNetwork, training: LocalTraining, shard: Shard, rng: Generator) -> NDArray[np.float32]:
    """Train as anyone would: a plain loop with torch's own optimisers."""
    module = net.module().train()
    if training.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=training.client_lr)
    else:
        optimizer = torch.optim.SGD(module.parameters(), lr=training.client_lr, momentum=training.momentum)
    start = trained(net, module).copy()
    for batch in batches(len(shard.y), training, rng):
        optimizer.zero_grad()
        naive_loss(net, module, Shard(shard.x[batch], shard.y[batch])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return trained(net, module) - start


def wrapped(module: nn.Module) -> TorchNetwork:
    torch.manual_seed(0)
    for parameter in module.parameters():  # the same weights in every test
        nn.init.normal_(parameter.data, std=0.2)
    if isinstance(module, Tied):
        return wrap_module(module, (6,), 300)
    if isinstance(module, Twice):
        return wrap_module(module, (5,), 3)
    return wrap_module(module, IMAGES, 3, input_scale=1 / 255)


def start(net: TorchNetwork) -> NDArray[np.float32]:
    return net.initialise(default_rng(0))


@each_training
@pytest.mark.parametrize("make", [cnn, Viewing], ids=["turned", "viewing"])
def test_training_is_a_plain_torch_loop_bit_by_bit_and_adam_nearly(make: Any, training: LocalTraining) -> None:
    net = wrapped(make())
    shard = records(net, 15, default_rng(1))

    (update,) = TorchTrainer(net, training).updates(start(net), [shard], [default_rng(2)])
    wanted = naive_update(net, training, shard, default_rng(2))

    assert update.any()
    if training.optimizer == "sgd":
        assert np.array_equal(update, wanted)
    np.testing.assert_allclose(update, wanted, rtol=1e-3, atol=2e-5)


@each_training
@pytest.mark.parametrize("make", [Twice, Tied])
def test_large_dense_layers_train_as_in_a_plain_torch_loop(make: Any, training: LocalTraining) -> None:
    net = wrapped(make())
    shard = records(net, 15, default_rng(1))

    (update,) = TorchTrainer(net, training).updates(start(net), [shard], [default_rng(2)])

    assert net.deferred
    # Adam divides by the size of a gradient, so where that is nothing but rounding its direction is too.
    loose = 2e-2 if training.optimizer == "adam" else 1e-5
    np.testing.assert_allclose(update, naive_update(net, training, shard, default_rng(2)), rtol=1e-3, atol=loose)


@pytest.mark.parametrize("make", [cnn, Viewing, Twice, Tied])
@pytest.mark.parametrize("deferred", [True, False])
def test_the_gradient_is_that_of_autograd(make: Any, deferred: bool) -> None:
    net = replace(wrapped(make()), deferred=deferred)
    shard = records(net, 9, default_rng(3))
    module = net.module().eval()
    naive_loss(net, module, shard).backward()  # type: ignore[no-untyped-call]
    wanted = [np.zeros(p.shape) if p.grad is None else p.grad.numpy() for p in module.parameters()]

    gradient = TorchTrainer(net, PLAIN).gradient(start(net), shard)

    np.testing.assert_allclose(gradient, np.concatenate([g.ravel() for g in wanted]), rtol=1e-4, atol=1e-6)


def test_an_old_gradient_is_not_left_where_a_parameter_is_of_no_use() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(1, 2), nn.Linear(1, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.left(x) if x.sum() > 0 else self.right(x)
            return out

    net = wrap_module(Sometimes(), (1,), 2)
    trainer, y = TorchTrainer(net, PLAIN), np.array([0])

    first = net.layout.views(trainer.gradient(start(net), Shard(np.ones((1, 1), np.float32), y)))
    second = net.layout.views(trainer.gradient(start(net), Shard(-np.ones((1, 1), np.float32), y)))

    assert first["left.weight"].any() and not first["right.weight"].any()
    assert second["right.weight"].any() and not second["left.weight"].any()


def test_scores_are_those_of_the_module_in_evaluation_mode() -> None:
    module = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    net = wrap_module(module, (5,), 3)
    shard = records(net, 600, default_rng(4))
    trainer = TorchTrainer(net, PLAIN)
    updates_of(trainer, start(net), [shard], [default_rng(5)])  # training mode must not stay on

    scores = trainer.scores(start(net), shard.x)

    with torch.no_grad():
        wanted = module.eval()(torch.tensor(shard.x)).numpy()
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-6)


@each_training
def test_dropout_comes_from_the_clients_own_rng(training: LocalTraining) -> None:
    net = wrap_module(nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 3)), (5,), 3)
    trainer = TorchTrainer(net, training)
    shards = [records(net, count, default_rng(count)) for count in (3, 15, 8)]
    torch.manual_seed(7)

    together = updates_of(trainer, start(net), shards, [default_rng(k) for k in range(3)])
    torch.manual_seed(8)
    backwards = updates_of(trainer, start(net), shards[::-1], [default_rng(k) for k in (2, 1, 0)])
    alone = updates_of(TorchTrainer(net, training), start(net), shards[1:2], [default_rng(1)])
    other = updates_of(trainer, start(net), [shards[1]], [default_rng(9)])

    assert np.array_equal(together, backwards[::-1])
    assert np.array_equal(together[1:2], alone)
    assert not np.allclose(together[1], other[0], rtol=1e-2)


def test_training_leaves_torchs_own_generator_alone() -> None:
    net = wrap_module(nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 3)), (5,), 3)
    torch.manual_seed(7)
    state = torch.get_rng_state()

    updates_of(TorchTrainer(net, PLAIN), start(net), [records(net, 9, default_rng(0))], [default_rng(1)])
    wrap_module(nn.Sequential(nn.Dropout(0.5), net.module()), (5,), 3)

    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_layers_do_not_move_and_do_not_travel() -> None:
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    module[0].requires_grad_(False)
    net = wrap_module(module, (5,), 3)
    shard = records(net, 9, default_rng(6))

    (update,) = TorchTrainer(net, PLAIN).updates(start(net), [shard], [default_rng(7)])
    filled = net.filled(start(net) + update)

    assert net.dim == 27 and [name for name, _ in net.layout.tensors] == ["2.weight", "2.bias"]
    assert len(net.start_payload()) == 24 + 4 * 27
    assert torch.equal(filled[0].weight, module[0].weight)  # type: ignore[index]
    assert not torch.equal(filled[2].weight, module[2].weight)  # type: ignore[index]


@each_training
@pytest.mark.parametrize("make", [cnn, Twice])
def test_weights_outside_the_mask_never_move(make: Any, training: LocalTraining) -> None:
    net = wrapped(make())
    mask = default_rng(8).random(net.dim) < 0.3
    shard = records(net, 9, default_rng(9))

    (update,) = TorchTrainer(net, training).updates(start(net), [shard], [default_rng(10)], mask)

    assert update[mask].any()
    assert not update[~mask].any()


def test_the_start_is_the_given_weights_and_travels_once() -> None:
    module = cnn()
    net = wrap_module(module, IMAGES, 3)
    given = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    with torch.no_grad():
        module[0].weight.zero_()  # what becomes of the user's module is no longer ours

    payload = net.start_payload() + b"the rest"
    read, rest = net.read_start(payload, default_rng(1))

    assert np.array_equal(net.initialise(default_rng(0)), given)
    assert np.array_equal(read, given) and rest == b"the rest"
    assert len(payload) == 24 + 4 * net.dim + 8
    with pytest.raises(WireError):
        net.read_start(payload[:100], default_rng(1))


def test_a_network_of_layers_needs_no_start_beside_the_seed() -> None:
    net = network("mlp", (4,), 3)

    read, rest = net.read_start(net.start_payload() + b"the rest", default_rng(1))

    assert np.array_equal(read, net.initialise(default_rng(1))) and rest == b"the rest"


def test_a_tied_parameter_is_counted_once() -> None:
    net = wrapped(Tied())

    assert net.dim == 300 * 256
    assert [name for name, _ in net.layout.tensors] == ["words.weight"]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_output_for_two_classes_is_binary(shape: tuple[int, ...]) -> None:
    last: list[nn.Module] = [nn.Flatten(0)] if shape == (3,) else []
    net = wrap_module(nn.Sequential(nn.Linear(5, 1), *last), (5,), 2)
    shard = records(net, 9, default_rng(11))

    (update,) = TorchTrainer(net, PLAIN).updates(start(net), [shard], [default_rng(12)])

    assert net.binary
    assert np.array_equal(update, naive_update(net, PLAIN, shard, default_rng(12)))
    assert TorchTrainer(net, PLAIN).scores(start(net), shard.x).shape == (9,)


def test_a_client_with_one_record_may_be_squeezed() -> None:
    class Squeezing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(x).squeeze()
            return out

    net = wrap_module(Squeezing(), (5,), 3)

    (update,) = TorchTrainer(net, PLAIN).updates(start(net), [records(net, 1, default_rng(0))], [default_rng(1)])

    assert update.any()


def test_images_are_turned_unless_the_module_reads_them_as_stored() -> None:
    first = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(80, 3))

    assert wrap_module(first, (7, 6, 2), 3).images == "turned"
    assert wrap_module(first, (2, 7, 6), 3).images == "stored"
    assert wrap_module(Viewing(), (7, 6, 2), 3).images == "copied"
    assert wrap_module(nn.Sequential(nn.Flatten(), nn.Linear(84, 3)), (7, 6, 2), 3, turned=False).images == "stored"
    with pytest.raises(InputError, match=r"records of shape \(2, 7, 6\): given float32 values of shape \(3, 6, 2, 7\)"):
        wrap_module(first, (2, 7, 6), 3, turned=True)


def test_token_ids_stay_integers() -> None:
    net = wrapped(Tied())
    trainer = TorchTrainer(net, PLAIN)

    assert net.tokens
    with pytest.raises(DataError, match="does not know all token ids from 300 to 300"):
        trainer.scores(start(net), np.full((2, 6), 300))
    with pytest.raises(DataError, match="reads token ids, which are integers, got float32"):
        trainer.scores(start(net), np.zeros((2, 6), np.float32))


def test_a_module_that_differentiates_in_its_forward_pass_trains_without_deferred_gradients() -> None:
    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(5, 16384), nn.Linear(16384, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad():
                x = x.requires_grad_()
                out: Tensor = self.last(torch.tanh(self.first(x)))
                (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            return out + slope.sum(1, keepdim=True)

    net = wrap_module(Penalised(), (5,), 3)
    shard = records(net, 9, default_rng(13))

    (update,) = TorchTrainer(net, PLAIN).updates(start(net), [shard], [default_rng(14)])

    assert not net.deferred
    np.testing.assert_allclose(update, naive_update(net, PLAIN, shard, default_rng(14)), rtol=1e-3, atol=1e-5)


def test_a_small_resnet_with_group_norm_learns_digits() -> None:
    digits = load_digits()
    order = default_rng(0).permutation(len(digits.target))
    x, y = digits.images.astype(np.uint8)[order][..., None], digits.target[order]
    torch.manual_seed(1)
    net = make_model(resnet(), (8, 8, 1), 10, input_scale=1 / 16)
    trainer = make_trainer(net, LocalTraining(local_steps=220, batch_size=20, client_lr=0.005, optimizer="adam"))
    params = net.initialise(default_rng(0))

    (update,) = trainer.updates(params, [Shard(x[:1400], y[:1400])], [default_rng(21)])

    assert evaluate(trainer.scores(params + update, x[1400:]), y[1400:], ClassTask(10))["accuracy"] > 0.9
