"""What a model learns: how labels become losses, and scores become answers. One class a task.

    classification   one class of several; a score for each, or one for class 1 of two
    regression       a number; squared, absolute or Huber loss, on the scale of `core.target.Target`
    multilabel       several yes-or-no answers at once; a score for each
    ordinal          classes in an order; a score for each step between two of them

Trainers, metrics, predictions and exports read a task and never ask which one it is. Losses are written twice, in numpy
(`losses`, and their derivatives `slopes`) and in torch (`torch_losses`); the C kernels know them by `kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.target import MOST_ANSWERS, Kind, Target

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]
ValueLoss = Literal["squared", "absolute", "huber"]

VALUE_LOSSES: Final = ("squared", "absolute", "huber")
TASKS: Final = ("classification", "regression", "multilabel", "ordinal")


class Bounded(NamedTuple):
    """A metric that clients tell when they measure by a secure sum, and the public bound that it is cut off at."""

    name: str
    bound: float


class LearningTask(Protocol):
    """What a model learns; a frozen value that travels to workers with the model."""

    @property
    def name(self) -> str:
        """Return the name that `[model] task` has."""
        ...

    @property
    def classes(self) -> int:
        """Count the classes or answers that have names; 1 for a number."""
        ...

    @property
    def target(self) -> Target:
        """Return what a label is."""
        ...

    @property
    def outputs(self) -> int:
        """Count the values that the last layer gives for a record."""
        ...

    def fitting(self, outputs: int) -> LearningTask | None:
        """Return this task for a model that gives so many values a record; None if it cannot be learnt so."""
        ...

    @property
    def flat(self) -> bool:
        """Tell whether scores are one number a record, of shape (records,)."""
        ...

    @property
    def binary(self) -> bool:
        """Tell whether the score is that of class 1 against class 0."""
        ...

    @property
    def kernel(self) -> int | None:
        """Return the number of the loss in `kernels_train.h`; None: the kernels do not know it."""
        ...

    @property
    def torch_only(self) -> bool:
        """Tell whether only torch can train it."""
        ...

    @property
    def leading(self) -> str:
        """Name the metric that chooses the best round."""
        ...

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return the two metrics that clients tell of a model, the one that chooses the best round first."""
        ...

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return labels as the kernels read them, one integer a record; raise if there is a wrong one."""
        ...

    def targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return labels as `torch_loss` reads them."""
        ...

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each record."""
        ...

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Return the derivative of each record's loss by each of its outputs (records, outputs)."""
        ...

    def torch_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean loss of a batch, each record times its weight."""
        ...

    def guesses(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the answer to each record, as labels are: a class number, a number, or yes-or-no answers."""
        ...

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each class or answer, one row a record; no columns for a number."""
        ...

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return what an exported graph gives, by name: probabilities, or the values of numbers; in torch."""
        ...

    @property
    def reading(self) -> str:
        """Say in words what the outputs of the last layer are, for who computes without sottovoce."""
        ...


def shape_of(task: LearningTask, records: int) -> tuple[int, ...]:
    """Return the shape of the scores of so many records."""
    return (records,) if task.flat else (records, task.outputs)


def blank_labels(task: LearningTask, records: int) -> NDArray[Any]:
    """Return labels of made-up records."""
    return task.target.blank(records, task.classes)


class _Shared:
    """What tasks with a loss for each record share: the mean of it."""

    torch_only: ClassVar[bool] = False

    def torch_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each record, in torch."""
        raise NotImplementedError

    def torch_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean loss of a batch, each record times its weight."""
        losses = self.torch_losses(scores, targets)
        return losses.mean() if weights is None else (losses * weights).mean()


@final
@dataclass(frozen=True)
class ClassTask(_Shared):
    """One class of several; `single`: one score, of class 1 against class 0. `weights` are public, one a class."""

    classes: int
    single: bool = False
    weights: tuple[float, ...] | None = None

    name: ClassVar[str] = "classification"
    target: ClassVar[Target] = Target()

    def __post_init__(self) -> None:
        if self.single and self.classes != 2:
            raise InputError(f"one score tells 2 classes apart, got {self.classes}; give a score for each")
        check_weights(self.weights, self.classes)

    @property
    def outputs(self) -> int:
        """Count the scores of a record."""
        return 1 if self.single else self.classes

    def fitting(self, outputs: int) -> ClassTask | None:
        """Return the task with a score for each class, or with one for two classes."""
        single = outputs == 1 and self.classes == 2
        return replace(self, single=single) if single or outputs == self.classes else None

    @property
    def flat(self) -> bool:
        """Tell whether there is one score."""
        return self.single

    @property
    def binary(self) -> bool:
        """Tell whether there is one score."""
        return self.single

    @property
    def kernel(self) -> int | None:
        """Return the loss of the kernels, which count every record the same."""
        return None if self.weights else int(self.single)

    @property
    def leading(self) -> str:
        """Name the metric: two classes are seldom balanced."""
        return "balanced_accuracy" if self.single else "accuracy"

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return accuracy, and loss up to twice that of guessing."""
        return Bounded("accuracy", 1.0), Bounded("loss", 2 * math.log(self.classes))

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return class numbers."""
        y = np.ascontiguousarray(y, np.int64)
        if not 0 <= y.min() <= y.max() < self.classes:
            raise DataError(f"labels must be in [0, {self.classes}), got {y.min()} to {y.max()}")
        return y

    def targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return class numbers, as float32 for one score."""
        return np.asarray(y, np.float32 if self.single and not self.weights else np.int64)

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the cross entropy of each record."""
        y = np.asarray(y, np.int64)
        if self.single:
            found = np.logaddexp(0, scores) - y * scores
        else:
            shifted = scores - scores.max(1, keepdims=True)
            found = np.log(np.exp(shifted).sum(1)) - np.take_along_axis(shifted, y[:, None], 1)[:, 0]
        return np.asarray(found * _of_class(self.weights, y))

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Return the derivatives of the cross entropy."""
        y = np.asarray(y, np.int64)
        if self.single:
            found = _logistic(outputs) - y.astype(np.float32)[:, None]
        else:
            found = np.exp(outputs - outputs.max(axis=1, keepdims=True))
            found /= found.sum(axis=1, keepdims=True)
            found[np.arange(len(y)), y] -= 1
        return np.asarray(found * _of_class(self.weights, y)[:, None] if self.weights else found, np.float32)

    def torch_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each record, in torch."""
        from torch.nn import functional

        if self.single:
            found = functional.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="none")
        else:
            found = functional.cross_entropy(scores, targets, reduction="none")
        return found * scores.new_tensor(self.weights)[targets.long()] if self.weights else found

    def torch_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean cross entropy of a batch; without weights by torch's own mean, whose bits runs know."""
        from torch.nn import functional

        if weights is not None or self.weights:
            return super().torch_loss(scores, targets, weights)
        if self.single:
            return functional.binary_cross_entropy_with_logits(scores, targets)
        return functional.cross_entropy(scores, targets)

    def guesses(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """Return the class of each record; -1 where a score is not finite."""
        finite = np.isfinite(scores).reshape(len(scores), -1).all(1)
        chosen = scores > 0 if self.single else scores.argmax(1)
        return np.where(finite, chosen, -1).astype(np.int64)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each class."""
        logits = np.column_stack([np.zeros(len(scores)), scores]) if self.single else scores
        raised = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(raised / raised.sum(1, keepdims=True))

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return the probability of each class, in torch."""
        import torch

        if not self.single:
            return {"probabilities": torch.softmax(scores, 1)}
        positive = torch.sigmoid(scores)
        return {"probabilities": torch.stack([1 - positive, positive], 1)}

    @property
    def reading(self) -> str:
        """Say what the scores are."""
        return "one logit, of class 1 against class 0" if self.single else "one logit a class"


@final
@dataclass(frozen=True)
class ValueTask(_Shared):
    """A number: its score is (value - centre) / scale. Huber's loss is linear beyond an error of one scale."""

    target: Target
    loss: ValueLoss = "squared"

    name: ClassVar[str] = "regression"
    classes: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    flat: ClassVar[bool] = True
    binary: ClassVar[bool] = False
    leading: ClassVar[str] = "r2"

    def __post_init__(self) -> None:
        if self.loss not in VALUE_LOSSES:
            raise InputError(f"the loss of regression is one of {', '.join(VALUE_LOSSES)}, got {self.loss!r}")

    @property
    def kernel(self) -> int:
        """Return the loss of the kernels."""
        return 2 + VALUE_LOSSES.index(self.loss)

    def fitting(self, outputs: int) -> ValueTask | None:
        """Return the task itself, if there are as many outputs as it needs."""
        return self if outputs == self.outputs else None

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return the mean error and its root mean square, both up to four scales, which is a public range."""
        return Bounded("mae", 4 * self.target.scale), Bounded("rmse", 4 * self.target.scale)

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bits of each scaled value, a float32."""
        return np.ascontiguousarray(self.targets(y).view(np.int32), np.int64)

    def targets(self, y: NDArray[Any]) -> Floats:
        """Return values on the scale of the scores."""
        scaled = ((np.asarray(y, np.float64) - self.target.centre) / self.target.scale).astype(np.float32)
        if not np.isfinite(scaled).all():
            raise DataError("a label is NaN or infinite, and regression needs numbers; remove such records")
        return scaled

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each record, on the scale of the scores."""
        error = np.abs(np.asarray(scores, np.float64) - self.targets(y))
        if self.loss == "squared":
            return error * error / 2
        return error if self.loss == "absolute" else np.where(error < 1, error * error / 2, error - 0.5)

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Return the error, its sign, or the error cut off at 1."""
        error = outputs - self.targets(y)[:, None]
        if self.loss == "absolute":
            return np.asarray(np.sign(error))
        return np.asarray(np.clip(error, np.float32(-1), np.float32(1)) if self.loss == "huber" else error)

    def torch_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each record, in torch."""
        from torch.nn import functional

        if self.loss == "squared":
            return functional.mse_loss(scores, targets, reduction="none") / 2
        loss = functional.l1_loss if self.loss == "absolute" else functional.huber_loss
        return loss(scores, targets, reduction="none")

    def guesses(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """Return the value of each record."""
        return np.asarray(np.asarray(scores, np.float64) * self.target.scale + self.target.centre)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return no columns: a number has no classes."""
        return np.empty((len(scores), 0))

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return the value of each record, in torch."""
        return {"values": scores * self.target.scale + self.target.centre}

    @property
    def reading(self) -> str:
        """Say what the score is."""
        return f"one number z; the value is z * {self.target.scale!r} + {self.target.centre!r}"


@final
@dataclass(frozen=True)
class AnswersTask(_Shared):
    """Several yes-or-no answers at once; the loss is the mean of their logistic losses."""

    classes: int

    name: ClassVar[str] = "multilabel"
    target: ClassVar[Target] = Target("answers")
    flat: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    kernel: ClassVar[int] = 6
    leading: ClassVar[str] = "f1"

    def __post_init__(self) -> None:
        if not 1 <= self.classes <= MOST_ANSWERS:
            raise InputError(f"multilabel learns 1 to {MOST_ANSWERS} answers at once, got {self.classes}")

    @property
    def outputs(self) -> int:
        """Count the answers."""
        return self.classes

    def fitting(self, outputs: int) -> AnswersTask | None:
        """Return the task itself, if there are as many outputs as it needs."""
        return self if outputs == self.outputs else None

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return accuracy, and loss up to twice that of guessing."""
        return Bounded("accuracy", 1.0), Bounded("loss", 2 * math.log(2))

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return the answers as bits, the first the lowest."""
        return np.asarray(y, np.int64) @ (1 << np.arange(self.classes, dtype=np.int64))

    def targets(self, y: NDArray[Any]) -> Floats:
        """Return answers of 0 and 1."""
        return np.asarray(y, np.float32)

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean logistic loss of each record."""
        return np.asarray((np.logaddexp(0, scores) - np.asarray(y) * scores).mean(1))

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Return the derivatives."""
        return (_logistic(outputs) - self.targets(y)) / np.float32(self.classes)

    def torch_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean logistic loss of each record, in torch."""
        from torch.nn import functional

        return functional.binary_cross_entropy_with_logits(scores, targets, reduction="none").mean(-1)

    def guesses(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """Return the answers; -1 where a score is not finite."""
        return np.where(np.isfinite(scores), scores > 0, -1).astype(np.int64)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each yes."""
        return _logistic(np.asarray(scores, np.float64))

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return the probability of each yes, in torch."""
        import torch

        return {"probabilities": torch.sigmoid(scores)}

    @property
    def reading(self) -> str:
        """Say what the scores are."""
        return "one logit an answer: yes against no"


@final
@dataclass(frozen=True)
class OrdinalTask(_Shared):
    """Classes in an order: score k is that of being above class k, and the loss the mean of their logistic losses.

    Frank and Hall, "A simple approach to ordinal classification", ECML 2001, with all steps in one network.
    """

    classes: int
    weights: tuple[float, ...] | None = None

    name: ClassVar[str] = "ordinal"
    target: ClassVar[Target] = Target()
    flat: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    leading: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"ordinal classes must be at least 2, got {self.classes}")
        check_weights(self.weights, self.classes)

    @property
    def outputs(self) -> int:
        """Count the steps between classes."""
        return self.classes - 1

    @property
    def kernel(self) -> int | None:
        """Return the loss of the kernels, which count every record the same."""
        return None if self.weights else 5

    def fitting(self, outputs: int) -> OrdinalTask | None:
        """Return the task itself, if there are as many outputs as it needs."""
        return self if outputs == self.outputs else None

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return accuracy, and the mean number of classes that an answer is off."""
        return Bounded("accuracy", 1.0), Bounded("mae", float(self.classes - 1))

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return class numbers."""
        return ClassTask(self.classes).codes(y)

    def targets(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return class numbers."""
        return np.asarray(y, np.int64)

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean logistic loss of each record's steps."""
        found = (np.logaddexp(0, scores) - self._above(y) * scores).mean(1)
        return np.asarray(found * _of_class(self.weights, np.asarray(y, np.int64)))

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Return the derivatives."""
        found = (_logistic(outputs) - self._above(y)) / np.float32(self.outputs)
        return np.asarray(found * _of_class(self.weights, np.asarray(y, np.int64))[:, None], np.float32)

    def torch_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean logistic loss of each record's steps, in torch."""
        import torch
        from torch.nn import functional

        above = (targets.unsqueeze(-1) > torch.arange(self.outputs, device=scores.device)).to(scores.dtype)
        found = functional.binary_cross_entropy_with_logits(scores, above, reduction="none").mean(-1)
        return found * scores.new_tensor(self.weights)[targets] if self.weights else found

    def guesses(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many steps each record is likely above; -1 where a score is not finite."""
        return np.where(np.isfinite(scores).all(1), (scores > 0).sum(1), -1).astype(np.int64)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each class: no later step is likelier than an earlier one."""
        above = np.minimum.accumulate(_logistic(np.asarray(scores, np.float64)), axis=1)
        return -np.diff(above, axis=1, prepend=1.0, append=0.0)

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return the probability of each class and the class itself, which need not be the likeliest, in torch."""
        import torch

        above = [torch.ones_like(scores[:, 0])]
        for step in range(self.outputs):
            above.append(torch.minimum(above[-1], torch.sigmoid(scores[:, step])))
        above.append(torch.zeros_like(scores[:, 0]))
        steps = torch.stack(above, 1)
        return {"probabilities": steps[:, :-1] - steps[:, 1:], "classes": (scores > 0).to(torch.int64).sum(1)}

    @property
    def reading(self) -> str:
        """Say what the scores are."""
        return "one logit a step between neighbouring classes: above it against not; the class counts those above 0"

    def _above(self, y: NDArray[Any]) -> Floats:
        return (np.asarray(y, np.int64)[:, None] > np.arange(self.outputs)).astype(np.float32)


def check_weights(weights: Sequence[float] | None, classes: int) -> None:
    """Raise unless there is a positive weight for each class."""
    if weights is None:
        return
    if len(weights) != classes or not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise InputError(f"class_weights must be {classes} numbers above 0, one a class, got {list(weights)}")


@final
@dataclass(frozen=True)
class TaskKeys:
    """The keys of `[model]` that say what is learnt; `make` makes the task of them and of what the labels are."""

    task: str = "classification"
    loss: str | Callable[..., Any] = "auto"
    class_weights: tuple[float, ...] | None = None

    def make(self, classes: int, target: Target, *, single: bool) -> LearningTask:
        """Return the task, or refuse what does not fit the labels; `single`: two classes have one score."""
        if self.task not in LABELS:
            raise InputError(f"[model] task must be one of {', '.join(TASKS)}, got {self.task!r}")
        if LABELS[self.task] != target.kind:
            raise InputError(f"[model] task = {self.task!r} does not fit the labels, which are {_WORDS[target.kind]}")
        if self.class_weights is not None and target.kind != "class":
            raise InputError(f"[model] class_weights are for classes, and task = {self.task!r} has none; remove them")
        if isinstance(self.loss, str) and ":" not in self.loss:
            return self._usual(self.loss, classes, target, single)
        if self.class_weights is not None:
            raise InputError("[model] class_weights are for the usual loss; a loss of your own weighs by itself")
        from sottovoce.models.own_loss import with_own_loss

        return with_own_loss(self._usual("auto", classes, target, single), self.loss)

    def _usual(self, loss: str, classes: int, target: Target, single: bool) -> LearningTask:
        if self.task == "regression":
            if loss not in ("auto", *VALUE_LOSSES):
                raise InputError(
                    f"[model] loss must be one of {', '.join(VALUE_LOSSES)} or module:function, got {loss!r}"
                )
            return ValueTask(target, "squared" if loss == "auto" else loss)  # type: ignore[arg-type]
        if loss != "auto":
            raise InputError(
                f"[model] loss = {loss!r} is for task = 'regression', and this is {self.task!r}; remove it, or name a "
                "function of your own as module:function"
            )
        if self.task == "multilabel":
            return AnswersTask(classes)
        if self.task == "ordinal":
            return OrdinalTask(classes, self.class_weights)
        return ClassTask(classes, single, self.class_weights)


USUAL: Final = TaskKeys()  # classes, told apart by the cross entropy
LABELS: Final[dict[str, Kind]] = {
    "classification": "class",
    "regression": "number",
    "multilabel": "answers",
    "ordinal": "class",
}
_WORDS: Final = {"class": "classes", "number": "numbers", "answers": "several answers a record"}


def _of_class(weights: tuple[float, ...] | None, y: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)[y]


def _logistic(scores: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # exp of a huge score is infinite, and the probability then zero
        return np.asarray(1 / (1 + np.exp(-scores)))
