"""Every task has one loss: in numpy, in torch and in C it is the same function, with the same derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.target import Target
from sottovoce.models import LocalTraining, Shard, TaskKeys, evaluate, network
from sottovoce.models.fast import FastTrainer
from sottovoce.models.metrics import better
from sottovoce.models.plain import PlainTrainer
from sottovoce.models.task import (
    AnswersTask,
    ClassTask,
    LearningTask,
    OrdinalTask,
    ValueTask,
    blank_labels,
    shape_of,
)

VALUES = Target.between(-20, 60)
TASKS: dict[str, tuple[LearningTask, Any]] = {
    "classes": (ClassTask(3), lambda rng: rng.integers(0, 3, 12)),
    "one score": (ClassTask(2, single=True), lambda rng: rng.integers(0, 2, 12)),
    "weighted": (ClassTask(3, weights=(1.0, 4.0, 0.5)), lambda rng: rng.integers(0, 3, 12)),
    "one weighted": (ClassTask(2, single=True, weights=(1.0, 4.0)), lambda rng: rng.integers(0, 2, 12)),
    "squared": (ValueTask(VALUES), lambda rng: rng.uniform(-20, 60, 12).astype(np.float32)),
    "absolute": (ValueTask(VALUES, "absolute"), lambda rng: rng.uniform(-20, 60, 12).astype(np.float32)),
    "huber": (ValueTask(VALUES, "huber"), lambda rng: rng.uniform(-20, 60, 12).astype(np.float32)),
    "answers": (AnswersTask(4), lambda rng: rng.integers(0, 2, (12, 4))),
    "ordinal": (OrdinalTask(4), lambda rng: rng.integers(0, 4, 12)),
    "ordinal weighted": (OrdinalTask(3, (1.0, 2.0, 3.0)), lambda rng: rng.integers(0, 3, 12)),
}


@pytest.mark.parametrize("name", TASKS)
def test_numpy_and_torch_have_the_same_loss_and_the_same_derivative(name: str) -> None:
    torch = pytest.importorskip("torch")
    task, draw = TASKS[name]
    rng = np.random.default_rng(1)
    y = draw(rng)
    scores = (2 * rng.standard_normal(shape_of(task, 12))).astype(np.float32)
    tensor = torch.tensor(scores, requires_grad=True)
    loss = task.torch_loss(tensor, torch.from_numpy(task.targets(y)), None)
    loss.backward()

    assert float(loss.detach()) == pytest.approx(task.losses(scores, y).mean(), rel=1e-5)
    slopes = task.slopes(scores.reshape(12, -1), y).reshape(scores.shape) / 12
    np.testing.assert_allclose(tensor.grad.numpy(), slopes, rtol=2e-5, atol=1e-7)


KEYS: dict[str, tuple[TaskKeys, Target, int]] = {
    "squared": (TaskKeys("regression"), VALUES, 1),
    "absolute": (TaskKeys("regression", "absolute"), VALUES, 1),
    "huber": (TaskKeys("regression", "huber"), VALUES, 1),
    "answers": (TaskKeys("multilabel"), Target("answers"), 4),
    "ordinal": (TaskKeys("ordinal"), Target(), 4),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_the_kernels_train_as_numpy_does(name: str, model: str) -> None:
    keys, target, classes = KEYS[name]
    if model == "linear" and name == "answers":
        model = "logistic"
    net = network(model, (6,), classes, hidden=7, task=keys, target=target)
    rng = np.random.default_rng(2)
    shards = [Shard(rng.standard_normal((12, 6)).astype(np.float32), TASKS[name][1](rng)) for _ in range(3)]
    training = LocalTraining(local_steps=4, batch_size=5, client_lr=0.1)
    params = net.initialise(rng)

    def updates(trainer: Any) -> list[Any]:
        return list(trainer.updates(params, shards, [np.random.default_rng(seed) for seed in range(3)]))

    fast, plain = FastTrainer(net, training), PlainTrainer(net, training)

    for ours, theirs in zip(updates(fast), updates(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-6)
        assert np.abs(ours).max() > 1e-3
    (alone,) = fast.updates(params, shards[1:2], [np.random.default_rng(1)])
    assert alone.tobytes() == updates(fast)[1].tobytes()  # the same bits in any company
    np.testing.assert_allclose(
        fast.scores(params, shards[0].x), plain.scores(params, shards[0].x), rtol=1e-5, atol=1e-5
    )
    slope = plain.gradient(params, shards[0])
    np.testing.assert_allclose(fast.gradient(params, shards[0]), slope, rtol=1e-3, atol=1e-6)


def test_regression_finds_the_line_that_made_the_numbers() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (400, 3)).astype(np.float32)
    y = (20 + x @ np.array([10.0, -5.0, 2.0])).astype(np.float32)
    net = network("linear", (3,), 1, task=TaskKeys("regression"), target=VALUES)
    trainer = FastTrainer(net, LocalTraining(local_steps=300, batch_size=50, client_lr=0.3))
    params = net.initialise(rng)
    (update,) = trainer.updates(params, [Shard(x, y)], [rng])
    found = evaluate(trainer.scores(params + update, x), y, net.task)

    assert found["r2"] > 0.9999
    assert found["mae"] < 0.05


def test_the_metrics_of_numbers_are_in_the_units_of_the_label() -> None:
    task = ValueTask(Target.between(0, 40))  # centre 20, scale 10
    found = evaluate(np.array([0.0, 1.0, -1.0, 0.0]), np.array([20.0, 32.0, 10.0, 16.0]), task)

    assert found["mae"] == pytest.approx(1.5)
    assert found["rmse"] == pytest.approx(np.sqrt(5))
    assert found["r2"] == pytest.approx(1 - 20 / np.square(np.array([20.0, 32, 10, 16]) - 19.5).sum())
    assert "accuracy" not in found


def test_the_metrics_of_answers_count_all_of_them() -> None:
    found = evaluate(np.array([[1.0, -1, 1], [1, 1, -1]]), np.array([[1, 0, 0], [1, 1, 0]]), AnswersTask(3))

    assert found["accuracy"] == pytest.approx(5 / 6)
    assert found["exact_match"] == 0.5
    assert found["f1"] == pytest.approx(2 * 3 / (4 + 3))


def test_classes_in_an_order_have_probabilities_that_add_up_and_a_distance() -> None:
    task = OrdinalTask(4)
    scores = np.array([[2.0, -1.0, 3.0], [-3.0, -3.0, -4.0], [5.0, 4.0, 3.0]])

    assert task.probabilities(scores).sum(1) == pytest.approx([1, 1, 1])
    assert (task.probabilities(scores) >= 0).all()
    assert task.guesses(scores).tolist() == [2, 0, 3]
    assert evaluate(scores, np.array([0, 0, 3]), task)["mae"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("keys", "target", "words"),
    [
        (TaskKeys("regression", "cubic"), VALUES, "squared, absolute, huber"),
        (TaskKeys("regression"), Target(), "does not fit the labels, which are classes"),
        (TaskKeys("classification", "huber"), Target(), "is for task = 'regression'"),
        (TaskKeys("regression", class_weights=(1.0, 2.0)), VALUES, "class_weights are for classes"),
        (TaskKeys("classification", class_weights=(1.0,)), Target(), "3 numbers above 0"),
        (TaskKeys("ranking"), Target(), "must be one of classification, regression"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(keys: TaskKeys, target: Target, words: str) -> None:
    with pytest.raises(InputError, match=words):
        keys.make(3, target, single=False)


def test_labels_that_are_not_finite_are_refused_before_they_reach_a_loss() -> None:
    with pytest.raises(DataError, match="NaN or infinite"):
        ValueTask(VALUES).codes(np.array([1.0, np.nan]))


@pytest.mark.parametrize("name", TASKS)
def test_made_up_labels_fit_their_task(name: str) -> None:
    task, _ = TASKS[name]
    y = blank_labels(task, 3)

    task.target.check(name, y, task.classes)
    assert np.isfinite(task.losses(np.zeros(shape_of(task, 3)), y)).all()


def test_labels_beyond_a_public_range_are_cut_off_where_it_ends() -> None:
    stored = Target.between(100, 140).stored(np.array([-1e9, 99.0, 120.0, 1e9]))

    assert stored.tolist() == [100.0, 100.0, 120.0, 140.0]


def test_of_two_errors_the_smaller_is_better_and_of_two_accuracies_the_larger() -> None:
    assert better("rmse", 1.0, 2.0) and not better("held_out_mae", 2.0, 1.0)
    assert better("accuracy", 0.9, 0.8) and not better("r2", 0.1, 0.2)
