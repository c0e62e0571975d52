from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import InputError, WireError
from sottovoce.models import LocalTraining, Network, Shard, make_trainer
from sottovoce.models.fast import FastTrainer
from sottovoce.models.features import all_features
from sottovoce.models.network import DropoutLayer, Linear
from sottovoce.models.partial import Partial, layers_to_train
from sottovoce.models.zoo import network

CNN = network("cnn", (8, 8, 1), 10)
TRAINING = LocalTraining(local_steps=3, batch_size=4, client_lr=0.05)
X = default_rng(1).integers(0, 256, (12, 8, 8, 1)).astype(np.uint8)
Y = default_rng(2).integers(0, 10, 12)


def part(words: str, net: Network = CNN) -> Partial:
    return Partial.start(net, layers_to_train(net, words), None, default_rng(3))


def test_layers_are_named_from_below_by_their_kind() -> None:
    assert CNN.layer_names == {"conv1": 0, "conv2": 2, "fc1": 5, "fc2": 6}
    assert list(network("imdb-lstm", (400,), 2).layer_names) == ["embedding1", "conv1", "lstm1", "fc1"]
    assert list(network("all-cnn-c", (32, 32, 3), 10).layer_names)[-1] == "conv9"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("heads", "train must be .* got \"heads\"; did you mean 'head'"),
        ("layers", "train must be"),
        ("fc2", "train must be"),
        ("layers: fc3", "model 'cnn' has no layer 'fc3'; did you mean 'fc"),
        ("layers:", "has no layer ''"),
        ("layers: fc2, zzz", "has no layer 'zzz'; known: conv1, conv2, fc1, fc2"),
    ],
)
def test_words_that_name_no_layers_are_refused(words: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        layers_to_train(CNN, words)


def test_the_papers_cnn_has_5130_weights_in_its_head() -> None:
    cnn = network("cnn", (28, 28, 1), 10)

    head = Partial.start(cnn, layers_to_train(cnn, "head"), None, default_rng(1))

    assert (head.dim, cnn.dim) == (5_130, 1_663_370)
    assert head.trained.input_shape == (512,)


@pytest.mark.parametrize("words", ["head", "layers: fc1, fc2", "layers: conv1, fc2", "layers: conv2", "layers: fc1"])
def test_some_layers_train_as_the_whole_network_does_with_a_mask(words: str) -> None:
    partial = part(words)
    mask = np.zeros(CNN.dim, np.bool_)
    mask[partial.places] = True
    whole = FastTrainer(CNN, TRAINING)

    (mine,) = make_trainer(partial, TRAINING).updates(
        partial.initialise(default_rng(3)), [Shard(X, Y)], [default_rng(4)]
    )

    (theirs,) = whole.updates(partial.whole, [Shard(X, Y)], [default_rng(4)], mask)
    assert mine.shape == (partial.dim,)
    assert np.allclose(mine, theirs[mask], atol=2e-6)
    assert np.abs(mine).max() > 1e-4
    assert np.allclose(
        make_trainer(partial, TRAINING).gradient(partial.whole[mask], Shard(X, Y)),
        whole.gradient(partial.whole, Shard(X, Y))[mask],
        atol=2e-6,
    )
    assert np.allclose(
        make_trainer(partial, TRAINING).scores(partial.whole[mask], X), whole.scores(partial.whole, X), atol=1e-5
    )


@pytest.mark.parametrize("words", ["head", "layers: conv1, fc2"])
def test_a_mask_of_the_scheme_is_kept_within_what_trains(words: str) -> None:
    partial = part(words)
    few = default_rng(5).random(partial.dim) < 0.1

    updates = make_trainer(partial, TRAINING).updates(
        partial.initialise(default_rng(3)), [Shard(X, Y)], [default_rng(4)], few
    )

    update = next(iter(updates))
    assert update[few].any() and not update[~few].any()


def test_what_lies_below_a_narrow_dense_layer_is_evaluated_once() -> None:
    head, wide = part("head"), part("layers: fc1, fc2")

    assert all_features(head, X, 2).shape == (12, 512)
    assert np.array_equal(all_features(head, X, 2), head.features(X))
    assert all_features(wide, X, 2) is X  # the outputs of a convolution are many


def test_layers_above_the_lowest_that_trains_may_be_frozen_too() -> None:
    deep = Network("deep", (Linear(6), Linear(5), Linear(4), Linear(3, relu=False)), (8,), 3)
    partial = part("layers: fc2, fc4", deep)
    x, y = default_rng(1).random((9, 8)).astype(np.float32), np.arange(9) % 3
    mask = np.zeros(deep.dim, np.bool_)
    mask[partial.places] = True

    features = all_features(partial, x, 1)
    (mine,) = make_trainer(partial.trained, TRAINING).updates(
        partial.initialise(default_rng(1)), [Shard(features, y)], [default_rng(2)]
    )

    (theirs,) = make_trainer(deep, TRAINING).updates(partial.whole, [Shard(x, y)], [default_rng(2)], mask)
    assert features.shape == (9, 6)
    assert np.allclose(mine, theirs[mask], atol=1e-6)


def test_frozen_dropout_is_drawn_anew_in_every_step_and_so_not_evaluated_once() -> None:
    net = Network("dropping", (Linear(6), DropoutLayer(0.5), Linear(5), Linear(3, relu=False)), (8,), 3)

    assert part("layers: fc3", net).cut == 0
    assert part("layers: fc2, fc3", net).cut == 0


def test_a_file_holds_the_whole_network_and_the_rest_never_moves() -> None:
    partial = part("head")
    params = partial.initialise(default_rng(3)) + 1

    tensors = partial.tensors(params)

    whole = CNN.layout.join(tensors)
    assert list(tensors) == [name for name, _ in CNN.layout.tensors]
    assert np.array_equal(np.delete(whole, partial.places), np.delete(partial.whole, partial.places))
    assert np.array_equal(whole[partial.places], params)


def test_the_start_is_that_of_the_whole_network() -> None:
    assert np.array_equal(part("head").whole, CNN.initialise(default_rng(3)))
    assert np.array_equal(part("head").initialise(default_rng(9)), CNN.initialise(default_rng(3))[-5130:])


def test_the_set_up_names_layers_by_a_bit_each_and_another_choice_is_refused() -> None:
    head, other = part("head"), part("layers: fc1, fc2")

    start, rest = head.read_start(head.start_payload() + b"rest", default_rng(3))

    assert rest == b"rest" and np.array_equal(start, head.initialise(default_rng(3)))
    assert len(head.start_payload()) == 24 + 1
    with pytest.raises(WireError, match="trains other layers of cnn than fc2"):
        head.read_start(other.start_payload(), default_rng(3))


def test_a_client_learns_from_the_set_up_which_layers_train() -> None:
    told = part("all").told(part("layers: conv2, fc2").start_payload(), default_rng(3))

    assert told.layers == ("conv2", "fc2")
    assert np.array_equal(told.whole, part("head").whole)
    with pytest.raises(WireError, match="no layer at all"):
        part("head").told(Partial(CNN, (), part("head").whole).start_payload(), default_rng(3))


def test_a_part_travels_to_a_worker_also_after_it_was_used() -> None:
    head = part("head")
    before = head.features(X)

    again = pickle.loads(pickle.dumps(head))

    assert np.array_equal(again.features(X), before)
    assert again.layout == head.layout
