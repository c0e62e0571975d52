from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sottovoce.models import LocalTraining, network
from sottovoce.models.network import Embedding, Linear, Lstm, Network
from sottovoce.models.partial import Partial
from sottovoce.models.torch_layers import LayersProgram
from sottovoce.models.trainer import Shard, training_gflop, training_memory_mb
from sottovoce.models.wrap import wrap_module

ONE = LocalTraining(local_steps=1, batch_size=1)


def test_the_papers_network_takes_361_9_gflop_for_a_hundred_clients() -> None:
    cnn = network("cnn", (28, 28, 1), 10)
    training = LocalTraining(local_steps=5, batch_size=10)

    assert 100 * training_gflop(cnn, training, 10) == pytest.approx(361.9, rel=1e-3)


@pytest.mark.parametrize("name", ["cnn", "mlp", "logistic"])
def test_layers_cost_what_torch_counts(name: str) -> None:
    net = network(name, (28, 28, 1), 10)
    batch = Shard(np.zeros((3, 28, 28, 1), np.float32), np.zeros(3, np.int64))
    program = LayersProgram(net, torch.zeros(net.dim), torch.zeros(net.dim))
    with FlopCounterMode(display=False) as counter:
        program.differentiate(batch)

    assert 3 * training_gflop(net, ONE, 1) * 1e9 == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_client_with_few_records_trains_on_those() -> None:
    net = network("logistic", (8, 8, 1), 10)
    training = LocalTraining(local_steps=4, batch_size=10)

    assert training_gflop(net, training, 3) == pytest.approx(training_gflop(net, training, 30) * 3 / 10)


def test_a_batch_of_everything_takes_all_records() -> None:
    net = network("logistic", (8, 8, 1), 10)
    training = LocalTraining(local_steps=1, batch_size=None)

    assert training_gflop(net, training, 7) == pytest.approx(7 * training_gflop(net, ONE, 1))


def test_an_embedding_below_lets_gradients_through_the_layer_above_it() -> None:
    net = Network("text", (Embedding(100, 8), Lstm(4), Linear(2, relu=False)), input_shape=(5,), classes=2)
    recurrent = 5 * 16 * (8 + 4)

    assert training_gflop(net, ONE, 1) * 1e9 == pytest.approx(2 * 3 * (recurrent + 8))


def test_a_head_costs_its_own_layer_alone() -> None:
    cnn = network("cnn", (28, 28, 1), 10)
    head = Partial.start(cnn, ("fc2",), None, np.random.default_rng(1))

    # forward and the gradient of the weights; what lies below was computed once
    assert training_gflop(head, ONE, 1) * 1e9 == pytest.approx(2 * 2 * 512 * 10)


def test_layers_below_that_do_not_train_are_walked_forward_only() -> None:
    cnn = network("cnn", (28, 28, 1), 10)
    part = Partial.start(cnn, ("conv2", "fc2"), None, np.random.default_rng(1))
    conv1, conv2, fc1, fc2 = 784 * 32 * 25, 196 * 64 * 25 * 32, 3136 * 512, 5120

    assert training_gflop(part, ONE, 1) * 1e9 == pytest.approx(2 * (conv1 + 2 * conv2 + 2 * fc1 + 3 * fc2))


def test_a_torch_module_costs_what_the_same_layers_cost() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 10))
    wrapped = wrap_module(module, (8, 8, 1), 10)

    assert training_gflop(wrapped, ONE, 1) * 1e9 == pytest.approx(2 * (2 * 64 * 32 + 3 * 32 * 10))


def test_memory_holds_weights_and_gradient() -> None:
    assert training_memory_mb(network("cnn", (28, 28, 1), 10)) == pytest.approx(2 * 4 * 1.66337, rel=1e-6)


def test_a_forward_pass_costs_the_same_as_layers_and_as_a_module() -> None:
    layers = Network("two", (Linear(8), Linear(3, relu=False)), (5,), 3)
    module = wrap_module(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (5,), 3)

    assert layers.flops().forward == module.flops().forward == 2 * (5 * 8 + 8 * 3)
    assert layers.flops().weights == module.flops().weights == layers.dim
