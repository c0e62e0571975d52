"""Ways to balance classes on a client: down-sampling, over-sampling, a weighted loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import parse
from sottovoce.core.errors import ConfigError
from sottovoce.data import OVER, balance, balanced_size
from sottovoce.models import choose_trainer
from sottovoce.models.network import Linear, Network
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.trainer import LocalTraining, Shard, class_weights
from sottovoce.runs.loop import run

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(y=LABELS, seed=st.integers(0, 9))
def test_over_sampling_repeats_records_until_classes_are_equal(y: list[int], seed: int) -> None:
    labels = np.array(y)
    kept = balance(labels, default_rng(seed), OVER)
    counts = np.unique(labels, return_counts=True)[1]

    assert len(kept) == balanced_size(labels, OVER)
    assert np.unique(labels[kept], return_counts=True)[1].tolist() == [counts.max()] * len(counts)
    assert set(kept) == set(range(len(y))), "no record is lost"
    for label in np.unique(labels):
        often = np.unique(kept[labels[kept] == label], return_counts=True)[1]
        assert often.max() - often.min() <= 1, "each about as often as the others"
    assert kept.tolist() == balance(labels, default_rng(seed), OVER).tolist()


@given(y=LABELS)
def test_every_class_has_the_same_weight_in_the_loss(y: list[int]) -> None:
    labels = np.array(y)
    weights = class_weights(labels)
    sums = [weights[labels == label].sum() for label in np.unique(labels)]

    assert np.allclose(sums, sums[0], rtol=1e-5)
    assert weights.mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_step_of_the_weighted_loss_is_one_on_records_that_are_repeated(classes: int) -> None:
    """With all records in the batch, counting a record twice and having it twice are the same."""
    out = Linear(1, relu=False) if classes == 2 else Linear(3, relu=False)
    net = Network("dense", (Linear(6), out), (5,), classes, 1.0, *(["bce"] if classes == 2 else []))
    rng = default_rng(1)
    y = np.array([0] * 12 + [1] * 4 if classes == 2 else [0] * 8 + [1] * 4 + [2] * 4)
    shard = Shard(rng.standard_normal((16, 5)).astype(np.float32), y)
    often = np.rint(class_weights(y) / class_weights(y).min()).astype(int)
    repeated = Shard(np.repeat(shard.x, often, axis=0), np.repeat(y, often))
    keys: dict[str, Any] = {"local_steps": 3, "batch_size": None, "client_lr": 0.1}
    params = net.initialise(default_rng(2))

    (weighted,) = TorchTrainer(net, LocalTraining(**keys, weighted_loss=True)).updates(
        params, [shard], [default_rng(3)]
    )
    (twice,) = TorchTrainer(net, LocalTraining(**keys)).updates(params, [repeated], [default_rng(3)])
    (plain,) = TorchTrainer(net, LocalTraining(**keys)).updates(params, [shard], [default_rng(3)])

    np.testing.assert_allclose(weighted, twice, rtol=1e-4, atol=1e-6)
    assert not np.allclose(weighted, plain, rtol=1e-3)
    assert choose_trainer(net, LocalTraining(weighted_loss=True)).reason.endswith("the loss is weighted")


def patients(path: Path) -> Path:
    rng = default_rng(1)
    y = (np.arange(800) % 10 == 0).astype(np.int64)
    x = (rng.standard_normal((800, 6)) + 1.5 * y[:, None]).astype(np.float32)
    np.savez(path, x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])
    return path


def test_over_sampling_finds_the_rare_class(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "data": {"source": str(patients(tmp_path / "own.npz")), "clients": 10, "partition": "hospitals"},
        "client": {"balanced": "over-sampling", "batch_size": "all", "local_steps": 5, "client_lr": 0.5},
        "experiment": {"rounds": 4, "evaluate_every": 4},
        "engine": {"workers": 1},
    }
    assert run(small(**tables), tmp_path / "run")["balanced_accuracy_final"] > 0.9


def test_clients_count_by_the_records_that_they_train_with(tmp_path: Path) -> None:
    source = str(patients(tmp_path / "own.npz"))
    sizes = {}
    for how in (False, True, "down-sampling", "over-sampling", "weighted-loss"):
        data = {"source": source, "clients": 10, "partition": "hospitals"}
        parts = gather(small(data=data, client={"balanced": how}))
        sizes[how] = parts.mean_size
        assert parts.training().weighted_loss == (how == "weighted-loss")

    assert sizes[False] == sizes["weighted-loss"] == 60
    assert sizes[True] == sizes["down-sampling"] == pytest.approx(12)
    assert sizes["over-sampling"] == pytest.approx(108)


def test_copies_of_records_that_are_kept_out_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"over-sampling.*remove held_out"):
        parse({"data": {"source": "digits"}, "client": {"balanced": "over-sampling", "held_out": 0.2}})
