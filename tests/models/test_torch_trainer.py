import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from sottovoce.core.errors import DataError, InputError
from sottovoce.models import LocalTraining, Shard, batches, evaluate, network
from sottovoce.models.network import (
    Conv1d,
    Conv2d,
    DropoutLayer,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Linear,
    Lstm,
    MaxPool,
    MaxPool1d,
    Network,
)
from sottovoce.models.task import ClassTask
from sottovoce.models.torch_trainer import TorchTrainer
from tests.models.rows import updates_of

LAST = Linear(3, relu=False)
NETWORKS = [
    Network("dense", (Flatten(), Linear(6), LAST), (2, 2, 2), 3, 1 / 255),
    Network("binary", (Linear(6), Linear(1, relu=False)), (5,), 2, 1, "bce"),
    Network("same", (Conv2d(4, 3), MaxPool(2), Flatten(), LAST), (7, 6, 2), 3, 1 / 255),
    Network("valid", (Conv2d(4, 3, padding="valid"), Conv2d(2, 2, relu=False), Flatten(), LAST), (5, 6, 2), 3, 1 / 255),
    Network("strided", (Conv2d(4, 3, stride=2), Conv2d(3, 1, relu=False), GlobalAveragePool()), (6, 7, 2), 3, 1 / 255),
    Network("even", (Conv2d(3, 4), MaxPool(3), Flatten(), LAST), (6, 6, 1), 3, 1 / 255),
    Network("words", (Embedding(9, 4), Conv1d(5, 3), MaxPool1d(2), Lstm(4), Linear(1, relu=False)), (9,), 2, 1, "bce"),
    Network("padded", (Embedding(9, 4), Conv1d(5, 4, padding="same", relu=False), Lstm(4), LAST), (6,), 3),
]
each_network = pytest.mark.parametrize("net", NETWORKS, ids=lambda net: net.name)
DROPPING = Network("dropping", (Linear(16), DropoutLayer(0.5), Linear(16), DropoutLayer(0.2), LAST), (5,), 3)
PLAIN = LocalTraining(local_steps=4, batch_size=6, client_lr=0.1)
TRAININGS = [PLAIN, replace(PLAIN, momentum=0.9), replace(PLAIN, optimizer="adam", client_lr=0.01)]
each_training = pytest.mark.parametrize("training", TRAININGS, ids=["sgd", "momentum", "adam"])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Do as the workers do: these networks are too small for more threads to help."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def records(net: Network, count: int, rng: Generator) -> Shard:
    shape, y = (count, *net.input_shape), rng.integers(0, net.classes, count)
    if isinstance(net.layers[0], Embedding):
        return Shard(rng.integers(0, net.layers[0].vocabulary, shape).astype(np.uint16), y)
    if len(net.input_shape) == 3:
        return Shard(rng.integers(0, 256, shape, dtype=np.uint8), y)
    return Shard(rng.standard_normal(shape, dtype=np.float32), y)


def start(net: Network, seed: int = 0) -> NDArray[np.float32]:
    rng = default_rng(seed)
    return net.initialise(rng) + rng.normal(0, 0.1, net.dim).astype(np.float32)


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def slow_scores(net: Network, params: NDArray[np.floating], x: NDArray[np.generic]) -> NDArray[np.float64]:
    """Run a network by its definition, one window and one time step after the other, in float64."""
    places = {name: params[net.layout.span(name)].reshape(shape) for name, shape in net.layout.tensors}
    a = x.astype(np.float64) * net.input_scale if not isinstance(net.layers[0], Embedding) else x
    for index, layer in enumerate(net.layers):
        own = {name.split(".")[1]: tensor for name, tensor in places.items() if name.startswith(f"{index}.")}
        out = np.zeros((len(x), *net.shapes[index + 1]))
        match layer:
            case Conv2d():
                padded = np.pad(a, ((0, 0), layer.pads(a.shape[1]), layer.pads(a.shape[2]), (0, 0)))
                for i, j in np.ndindex(*out.shape[1:3]):
                    top, left = i * layer.stride, j * layer.stride
                    window = padded[:, top : top + layer.kernel, left : left + layer.kernel]
                    out[:, i, j] = np.einsum("nhwi,hwio->no", window, own["kernel"]) + own["bias"]
            case Conv1d():
                padded = np.pad(a, ((0, 0), layer.pads(a.shape[1]), (0, 0)))
                for i in range(out.shape[1]):
                    out[:, i] = np.einsum("nli,lio->no", padded[:, i : i + layer.kernel], own["kernel"]) + own["bias"]
            case MaxPool():
                for i, j in np.ndindex(*out.shape[1:3]):
                    rows, columns = (slice(k * layer.size, (k + 1) * layer.size) for k in (i, j))
                    out[:, i, j] = a[:, rows, columns].max((1, 2))
            case MaxPool1d():
                for i in range(out.shape[1]):
                    out[:, i] = a[:, i * layer.size : (i + 1) * layer.size].max(1)
            case Linear():
                out = a @ own["kernel"] + own["bias"]
            case Lstm():
                hidden = cell = np.zeros((len(x), layer.units))
                for t in range(a.shape[1]):
                    gates = a[:, t] @ own["kernel"] + hidden @ own["recurrent"] + own["bias"]
                    i, f, c, o = np.split(gates, 4, axis=1)
                    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
                    hidden = sigmoid(o) * np.tanh(cell)
                out = hidden
            case Embedding():
                out = own["embedding"][a]
            case Flatten():
                out = a.reshape(len(a), -1)
            case GlobalAveragePool():
                out = a.mean((1, 2))
        a = np.maximum(out, 0) if getattr(layer, "relu", False) else out
    return a[:, 0] if net.binary else a


def slow_loss(net: Network, params: NDArray[np.floating], shard: Shard) -> float:
    return evaluate(slow_scores(net, params, shard.x), shard.y, net.task)["loss"]


@each_network
def test_scores_are_those_of_the_definition(net: Network) -> None:
    params, shard = start(net), records(net, 5, default_rng(1))

    scores = TorchTrainer(net, PLAIN).scores(params, shard.x)

    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, slow_scores(net, params, shard.x), rtol=1e-4, atol=1e-5)


@each_network
def test_the_gradient_is_the_slope_of_the_loss(net: Network) -> None:
    rng = default_rng(2)
    params, shard = start(net, 2), records(net, 4, rng)

    gradient = TorchTrainer(net, PLAIN).gradient(params, shard)

    for name, _ in net.layout.tensors:
        span = net.layout.span(name)
        for index in rng.integers(span.start, span.stop, 4):
            step = np.zeros(net.dim)
            step[index] = 1e-6
            slope = (slow_loss(net, params + step, shard) - slow_loss(net, params - step, shard)) / 2e-6
            assert gradient[index] == pytest.approx(slope, rel=1e-3, abs=1e-5), name


def test_a_kernel_is_read_as_height_width_in_out() -> None:
    net = Network("pixel", (Conv2d(1, 3, relu=False), Flatten(), Linear(2, relu=False)), (3, 3, 2), 2)
    params = np.zeros(net.dim, np.float32)
    views = net.layout.views(params)
    views["0.kernel"][0, 1, 1, 0] = 5  # the pixel above, of the second channel
    views["2.kernel"][5, 1] = 1  # row 1, column 2
    x = np.arange(18, dtype=np.uint8).reshape(1, 3, 3, 2)

    scores = TorchTrainer(net, PLAIN).scores(params, x)

    assert scores.tolist() == [[0, 5 * x[0, 0, 2, 1]]]


def test_gradient_and_scores_do_not_depend_on_chunks() -> None:
    net = NETWORKS[2]
    trainer, params, shard = TorchTrainer(net, PLAIN), start(net), records(net, 600, default_rng(3))
    first, second = Shard(shard.x[:100], shard.y[:100]), Shard(shard.x[100:], shard.y[100:])

    whole = trainer.gradient(params, shard)
    parts = trainer.gradient(params, first) / 6 + trainer.gradient(params, second) * (5 / 6)

    np.testing.assert_allclose(whole, parts, rtol=1e-4, atol=1e-6)
    scores = trainer.scores(params, shard.x)
    np.testing.assert_allclose(scores[:100], trainer.scores(params, first.x), rtol=1e-5, atol=1e-6)


def reference_update(net: Network, training: LocalTraining, shard: Shard, rng: Generator) -> NDArray[np.float32]:
    """Train with torch's own optimisers on the gradients of whole batches."""
    trainer, params = TorchTrainer(net, training), start(net)
    weights = torch.tensor(params, requires_grad=True)
    if training.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam([weights], lr=training.client_lr)
    else:
        optimizer = torch.optim.SGD([weights], lr=training.client_lr, momentum=training.momentum)
    for batch in batches(len(shard.y), training, rng):
        weights.grad = torch.from_numpy(
            trainer.gradient(weights.detach().numpy(), Shard(shard.x[batch], shard.y[batch]))
        )
        optimizer.step()
    update: NDArray[np.float32] = weights.detach().numpy() - params
    return update


@each_network
@each_training
def test_local_training_follows_the_optimisers_of_torch(net: Network, training: LocalTraining) -> None:
    shard = records(net, 15, default_rng(4))

    (update,) = TorchTrainer(net, training).updates(start(net), [shard], [default_rng(5)])

    assert update.any()
    np.testing.assert_allclose(update, reference_update(net, training, shard, default_rng(5)), rtol=1e-3, atol=2e-5)


@each_training
@pytest.mark.parametrize("net", [*NETWORKS[2:4], NETWORKS[6], DROPPING], ids=lambda net: net.name)
def test_a_client_gets_the_same_bits_in_any_company(net: Network, training: LocalTraining) -> None:
    trainer, params = TorchTrainer(net, training), start(net)
    shards = [records(net, count, default_rng(count)) for count in (3, 15, 8)]

    together = updates_of(trainer, params, shards, [default_rng(k) for k in range(3)])
    backwards = updates_of(trainer, params, shards[::-1], [default_rng(k) for k in (2, 1, 0)])
    alone = updates_of(TorchTrainer(net, training), params, shards[1:2], [default_rng(1)])

    assert np.array_equal(together, backwards[::-1])
    assert np.array_equal(together[1:2], alone)


@settings(max_examples=20, deadline=None)
@given(net=st.sampled_from([*NETWORKS, DROPPING]), training=st.sampled_from(TRAININGS), seed=st.integers(0, 2**32))
def test_weights_outside_the_mask_never_move(net: Network, training: LocalTraining, seed: int) -> None:
    rng = default_rng(seed)
    shard, mask = records(net, 9, rng), rng.random(net.dim) < rng.random()

    (update,) = TorchTrainer(net, training).updates(start(net), [shard], [default_rng(6)], mask)

    assert not update[~mask].any()


@each_training
@pytest.mark.parametrize("net", [NETWORKS[2], NETWORKS[6], DROPPING], ids=lambda net: net.name)
def test_a_mask_of_everything_is_no_mask(net: Network, training: LocalTraining) -> None:
    trainer, shard = TorchTrainer(net, training), records(net, 9, default_rng(7))

    free = updates_of(trainer, start(net), [shard], [default_rng(8)])
    masked = updates_of(trainer, start(net), [shard], [default_rng(8)], np.ones(net.dim, np.bool_))

    assert np.array_equal(free, masked)


def test_training_is_constrained_and_not_only_masked_afterwards() -> None:
    net = NETWORKS[2]
    trainer, shard = TorchTrainer(net, replace(PLAIN, batch_size=None)), records(net, 9, default_rng(9))
    mask = default_rng(10).random(net.dim) < 0.3
    params = start(net)
    weights = params.copy()
    for _ in range(PLAIN.local_steps):
        weights -= np.float32(PLAIN.client_lr) * trainer.gradient(weights, shard) * mask

    (update,) = trainer.updates(params, [shard], [default_rng(11)], mask)
    (free,) = trainer.updates(params, [shard], [default_rng(11)])

    np.testing.assert_allclose(update, weights - params, rtol=1e-4, atol=1e-6)
    assert not np.allclose(update[mask], free[mask], rtol=1e-3)


def test_a_mask_holds_even_when_training_diverges() -> None:
    net = NETWORKS[0]
    mask = default_rng(12).random(net.dim) < 0.5
    trainer = TorchTrainer(net, replace(PLAIN, client_lr=1e38, local_steps=6))

    (update,) = trainer.updates(start(net), [records(net, 9, default_rng(13))], [default_rng(14)], mask)

    assert not np.isfinite(update[mask]).all()
    assert not update[~mask].any()


def test_units_drop_out_in_training_only() -> None:
    trainer, shard = TorchTrainer(DROPPING, replace(PLAIN, batch_size=None)), records(DROPPING, 9, default_rng(15))
    params = start(DROPPING)

    one, other, again = trainer.updates(params, [shard] * 3, [default_rng(seed) for seed in (1, 2, 1)])

    assert np.array_equal(one, again)
    assert not np.allclose(one, other, rtol=1e-2)
    assert np.array_equal(trainer.scores(params, shard.x), trainer.scores(params, shard.x))
    assert np.array_equal(trainer.gradient(params, shard), trainer.gradient(params, shard))


def test_dropout_silences_the_units_that_were_drawn() -> None:
    net = Network("one", (Linear(4, relu=False), DropoutLayer(0.5), Linear(1, relu=False)), (1,), 2, 1, "bce")
    params = np.ones(net.dim, np.float32)
    rng = default_rng(16)
    list(batches(1, replace(PLAIN, local_steps=1), rng))
    kept = net.layers[1].factors(1, (4,), rng)[0] > 0  # type: ignore[union-attr]

    trainer = TorchTrainer(net, replace(PLAIN, local_steps=1))
    (update,) = trainer.updates(params, [Shard(np.ones((1, 1), np.float32), np.array([0]))], [default_rng(16)])

    assert 0 < kept.sum() < 4
    assert np.array_equal(net.layout.views(update)["0.kernel"][0] != 0, kept)


def test_parameters_off_the_wire_are_read_without_a_warning_and_left_alone() -> None:
    net = NETWORKS[2]
    params, shard = start(net), records(net, 9, default_rng(17))
    params.flags.writeable = shard.x.flags.writeable = False
    copy, trainer = params.copy(), TorchTrainer(net, PLAIN)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        updates_of(trainer, params, [shard], [default_rng(18)])
        trainer.scores(params, shard.x)
        trainer.gradient(params, shard)

    assert np.array_equal(params, copy)


def test_a_small_cnn_learns_digits() -> None:
    digits = load_digits()
    order = default_rng(0).permutation(len(digits.target))
    x, y = digits.images.astype(np.uint8)[order], digits.target[order]
    net = network("cnn", (8, 8, 1), 10, input_scale=1 / 16)
    trainer = TorchTrainer(net, LocalTraining(local_steps=200, batch_size=20, client_lr=0.2))
    params = net.initialise(default_rng(19))

    (update,) = trainer.updates(params, [Shard(x[:1400], y[:1400])], [default_rng(20)])

    assert evaluate(trainer.scores(params + update, x[1400:]), y[1400:], ClassTask(10))["accuracy"] > 0.9


def test_bad_input_is_refused_in_words() -> None:
    net, words = NETWORKS[0], NETWORKS[6]
    trainer, shard = TorchTrainer(net, PLAIN), records(net, 4, default_rng(21))
    with pytest.raises(InputError, match=f"dense has {net.dim} parameters, got shape"):
        trainer.scores(np.zeros(3, np.float32), shard.x)
    with pytest.raises(InputError, match="trainable must be"):
        updates_of(trainer, start(net), [shard], [default_rng(0)], np.ones(3, np.bool_))
    with pytest.raises(DataError, match="got 0 and 0"):
        updates_of(trainer, start(net), [Shard(shard.x[:0], shard.y[:0])], [default_rng(0)])
    with pytest.raises(DataError, match=r"token ids must be in \[0, 9\), got 9 to 9"):
        TorchTrainer(words, PLAIN).scores(start(words), np.full((2, 9), 9))
    with pytest.raises(InputError, match="device has no 'gpu'"):
        TorchTrainer(net, PLAIN, "gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_at_once() -> None:
    with pytest.raises(InputError, match="'cuda' is not there"):
        TorchTrainer(NETWORKS[0], PLAIN, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@each_network
def test_a_gpu_gives_nearly_the_same_update(net: Network) -> None:
    shard = records(net, 9, default_rng(22))

    (here,), (there,) = (
        updates_of(TorchTrainer(net, PLAIN, device), start(net), [shard], [default_rng(23)])
        for device in ("cpu", "cuda")
    )

    np.testing.assert_allclose(here, there, rtol=1e-2, atol=1e-4)


def test_momentum_is_not_dropped_silently_by_adam() -> None:
    with pytest.raises(InputError, match="momentum is for optimizer 'sgd'"):
        LocalTraining(optimizer="adam", momentum=0.5)
