"""The numpy trainer makes the steps of torch's, on the same batches and with the same units dropped out."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, choose_trainer, make_trainer, network
from sottovoce.models.plain import PlainTrainer
from sottovoce.models.torch_trainer import TorchTrainer

WAYS = [
    LocalTraining(local_steps=4, batch_size=8, client_lr=0.2),
    LocalTraining(local_steps=4, batch_size=8, client_lr=0.1, momentum=0.9),
    LocalTraining(local_steps=4, batch_size=None, client_lr=0.01, optimizer="adam"),
    LocalTraining(local_steps=4, batch_size=8, client_lr=0.1, prox=0.5, weighted_loss=True),
    LocalTraining(local_steps=2, batch_size=8, client_lr=0.1, ascend=True),
]
NETWORKS = [network("hospital-mlp", (12,), 2), network("mlp", (4, 4, 1), 5, hidden=16), network("logistic", (7,), 3)]


def _shard(net: object, records: int = 30) -> Shard:
    rng = np.random.default_rng(2)
    return Shard(
        rng.standard_normal((records, *net.input_shape)).astype(np.float32),  # type: ignore[attr-defined]
        rng.integers(0, net.classes, records),  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("training", WAYS)
@pytest.mark.parametrize("net", NETWORKS, ids=lambda net: net.name)
def test_updates_gradients_and_scores_are_torchs(net: object, training: LocalTraining) -> None:
    shard, start = _shard(net), net.initialise(np.random.default_rng(0))  # type: ignore[attr-defined]
    mask = np.random.default_rng(3).random(net.dim) < 0.5  # type: ignore[attr-defined]
    ours, theirs = PlainTrainer(net, training), TorchTrainer(net, training)  # type: ignore[arg-type]

    for trainable in (None, mask):
        (one,), (other,) = (
            list(trainer.updates(start, [shard], [np.random.default_rng(1)], trainable)) for trainer in (ours, theirs)
        )
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-6)
        assert trainable is None or not one[~trainable].any()
    np.testing.assert_allclose(ours.gradient(start, shard), theirs.gradient(start, shard), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.scores(start, shard.x), theirs.scores(start, shard.x), rtol=1e-4, atol=1e-5)


def test_auto_takes_it_only_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = NETWORKS[0]
    assert choose_trainer(hospital, LocalTraining()).trainer == "torch"

    monkeypatch.setitem(sys.modules, "torch", None)

    assert choose_trainer(hospital, LocalTraining()).trainer == "plain"
    assert isinstance(make_trainer(hospital, LocalTraining()), PlainTrainer)
    with pytest.raises(InputError, match="needs torch"):
        choose_trainer(hospital, LocalTraining(), "torch")


def test_a_layer_that_it_does_not_know_is_named() -> None:
    with pytest.raises(InputError, match=r"^cnn: layer 0 \(Conv2d\) is not known to the plain trainer"):
        PlainTrainer(network("cnn", (8, 8, 1), 10), LocalTraining())
