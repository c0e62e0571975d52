from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import WireError
from sottovoce.data import leaves
from sottovoce.models import LocalTraining, Shard, choose_trainer, make_trainer
from sottovoce.models.features import all_features
from sottovoce.models.fronted import Fronted
from sottovoce.models.fronts.scattering import Scattering
from sottovoce.models.partial import Partial
from sottovoce.models.zoo import network

TRAINING = LocalTraining(local_steps=2, batch_size=5, client_lr=0.2)
DATA = leaves((8, 8, 1), classes=3, records=120)


def fitted(seed: int = 1) -> Scattering:
    public = leaves((8, 8, 1), records=200, seed=seed).x_train
    return Scattering((8, 8, 1), 1 / 255, dims=20).fitted(public, 1 / 255)


@pytest.fixture(scope="module")
def model() -> Fronted:
    return Fronted(fitted(), network("logistic", (20,), 3))


def test_training_on_features_computed_once_is_training_on_records(model: Fronted) -> None:
    shard = Shard(DATA.x_train[:30], DATA.y_train[:30])
    params = model.initialise(default_rng(1))
    features = all_features(model, DATA.x_train, 2)[:30]

    (slow,) = make_trainer(model, TRAINING).updates(params, [shard], [default_rng(2)])
    (fast,) = make_trainer(model.trained, TRAINING).updates(params, [Shard(features, shard.y)], [default_rng(2)])

    assert np.array_equal(slow, fast) and slow.shape == (63,)
    trainer = make_trainer(model, TRAINING)
    assert np.array_equal(
        trainer.scores(params, shard.x), make_trainer(model.trained, TRAINING).scores(params, features)
    )
    assert trainer.gradient(params, shard).shape == (63,)


def test_it_reads_records_and_has_the_parameters_of_what_trains(model: Fronted) -> None:
    assert (model.input_shape, model.input_scale) == ((8, 8, 1), 1 / 255)
    assert (model.dim, model.classes, model.binary, model.name) == (63, 3, False, "logistic")
    assert choose_trainer(model, TRAINING) == choose_trainer(model.trained, TRAINING)
    assert set(model.tensors(model.initialise(default_rng(1)))) == {"1.kernel", "1.bias"}


def test_a_set_up_with_other_numbers_than_the_features_have_is_refused(model: Fronted) -> None:
    start, rest = model.read_start(model.start_payload() + b"more", default_rng(1))

    assert rest == b"more" and np.array_equal(start, model.initialise(default_rng(1)))
    with pytest.raises(WireError, match="another front than the one"):
        model.read_start(Fronted(fitted(seed=2), model.model).start_payload(), default_rng(1))


def test_a_client_is_told_the_front_and_the_layers(model: Fronted) -> None:
    mlp = network("mlp", (20,), 3, hidden=7)
    whole = Fronted(model.front, Partial.start(mlp, ("fc2",), None, default_rng(1)))
    blank = Fronted(Scattering((8, 8, 1), 1 / 255, dims=20), Partial.start(mlp, ("fc1", "fc2"), None, default_rng(1)))

    told = blank.told(whole.start_payload(), default_rng(1))

    assert told.dim == whole.dim == 24
    assert np.array_equal(told.features(DATA.x_test), whole.features(DATA.x_test))
    assert whole.features(DATA.x_test).shape == (24, 7)
