from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from sottovoce.core.errors import InputError
from sottovoce.federation.stages.local_evaluation import (
    LocalSplit,
    local_accuracies,
    personal_accuracies,
    split_shard,
    summarise_clients,
)
from sottovoce.models import LocalTraining, Shard, make_trainer, network
from sottovoce.models.task import ClassTask

NET = network("logistic", (64,), 10)
TUNING = LocalTraining(local_steps=30, batch_size=10, client_lr=0.02)


def digits() -> Shard:
    data = load_digits()
    return Shard(data.data.astype(np.float32), data.target)


def clients(classes: int = 2, count: int = 8, size: int = 40) -> list[LocalSplit]:
    """Return clients that each have records of a few classes only."""
    whole, found = digits(), []
    for client in range(count):
        rng = default_rng(client)
        own = rng.choice(np.flatnonzero(np.isin(whole.y, rng.choice(10, classes, replace=False))), size, replace=False)
        found.append(split_shard(Shard(whole.x[own], whole.y[own]), 0.25, rng))
    return found


@given(records=st.integers(1, 60), share=st.floats(0.01, 0.99))
def test_a_split_keeps_every_record_once_and_always_some_to_train_with(records: int, share: float) -> None:
    shard = Shard(np.arange(records, dtype=np.float32)[:, None], np.arange(records))

    split = split_shard(shard, share, default_rng(records))

    assert sorted([*split.train.y, *split.held_out.y]) == list(range(records))
    assert len(split.train.y) >= 1
    assert len(split.held_out.y) == (0 if records == 1 else min(max(1, round(share * records)), records - 1))
    assert all(np.array_equal(half.x[:, 0], half.y) for half in split)


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_a_share_that_splits_nothing_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=r"held_out must be in \(0, 1\)"):
        split_shard(digits(), share, default_rng(0))


@given(values=st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_the_summary_is_mean_worst_tenth_and_worst_of_the_clients(values: list[int]) -> None:
    accuracies = np.array(values) / 100
    shuffled = default_rng(0).permutation(np.append(accuracies, np.nan))

    summary = summarise_clients(shuffled)

    worst = sorted(values)[: -(-len(values) // 10)]
    assert summary["client_accuracy_mean"] == pytest.approx(sum(values) / len(values) / 100)
    assert summary["client_accuracy_worst_tenth"] == pytest.approx(sum(worst) / len(worst) / 100)
    assert summary["client_accuracy_worst"] == pytest.approx(min(values) / 100)
    assert summary["client_accuracy_clients"] == len(values)


@pytest.mark.parametrize("accuracies", [np.array([]), np.array([np.nan, np.nan])])
def test_what_nobody_measured_is_null(accuracies: NDArray[np.float64]) -> None:
    assert summarise_clients(accuracies, "personal") == {
        "personal_accuracy_mean": None,
        "personal_accuracy_worst_tenth": None,
        "personal_accuracy_worst": None,
        "personal_accuracy_clients": 0,
    }


def test_numbers_that_are_no_accuracies_are_refused() -> None:
    with pytest.raises(InputError, match=r"accuracies must be in \[0, 1\], got 0.5 to 1.5"):
        summarise_clients(np.array([0.5, 1.5]))
    with pytest.raises(InputError, match="one number a client"):
        summarise_clients(np.zeros((2, 2)))


@pytest.mark.parametrize("kind", ["auto", "torch"])
def test_each_client_is_judged_on_its_own_records(kind: str) -> None:
    trainer, params = make_trainer(NET, TUNING, kind), NET.initialise(default_rng(1))  # type: ignore[arg-type]
    held_out = [client.held_out for client in clients()] + [Shard(np.zeros((0, 64), np.float32), np.zeros(0, np.int64))]

    accuracies = local_accuracies(trainer, params, held_out, task=ClassTask(10))

    for accuracy, shard in zip(accuracies[:-1], held_out, strict=False):
        right = sum(
            int(trainer.scores(params, x[None])[0].argmax()) == y for x, y in zip(shard.x, shard.y, strict=True)
        )
        assert accuracy == right / len(shard.y)
    assert np.isnan(accuracies[-1])


@pytest.mark.parametrize("kind", ["auto", "torch"])
def test_clients_with_few_classes_gain_by_training_further(kind: str) -> None:
    trainer = make_trainer(NET, TUNING, kind)  # type: ignore[arg-type]
    whole, owned = digits(), clients()
    (update,) = trainer.updates(NET.initialise(default_rng(1)), [whole], [default_rng(2)])
    params = NET.initialise(default_rng(1)) + update

    rngs = [default_rng(client) for client in range(len(owned))]
    before, after = personal_accuracies(trainer, params, owned, rngs, task=ClassTask(10))

    assert np.array_equal(
        before, local_accuracies(trainer, params, [client.held_out for client in owned], task=ClassTask(10))
    )
    assert after.mean() > before.mean() + 0.05
    (alone,) = personal_accuracies(trainer, params, owned[3:4], [default_rng(3)], task=ClassTask(10)).after
    assert alone == after[3], "independent of the other clients in the call"


def test_nothing_that_may_not_move_moves_and_the_shared_model_stays_as_it_was() -> None:
    trainer, params = make_trainer(NET, TUNING), NET.initialise(default_rng(1))
    owned, copy = clients(), params.copy()

    before, after = personal_accuracies(
        trainer, params, owned, [default_rng(0)] * 8, task=ClassTask(10), trainable=np.zeros(NET.dim, np.bool_)
    )

    assert np.array_equal(before, after)
    assert np.array_equal(params, copy)


def test_a_personal_model_that_diverged_is_wrong_everywhere() -> None:
    trainer = make_trainer(NET, LocalTraining(local_steps=9, client_lr=1e38))

    result = personal_accuracies(
        trainer, NET.initialise(default_rng(1)), clients()[:2], [default_rng(0), default_rng(1)], task=ClassTask(10)
    )

    assert result.after.tolist() == [0, 0]


def test_a_binary_model_is_judged_by_the_sign_of_its_score() -> None:
    binary = network("hospital-mlp", (6,), 2)
    trainer, params = make_trainer(binary, TUNING), binary.initialise(default_rng(1))
    shard = Shard(default_rng(2).standard_normal((20, 6), dtype=np.float32), default_rng(3).integers(0, 2, 20))

    (accuracy,) = local_accuracies(trainer, params, [shard], task=ClassTask(2, single=True))

    assert accuracy == np.mean((trainer.scores(params, shard.x) > 0) == shard.y)
