"""A loss of the user's own: any torch function of outputs and targets that returns one number."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.registry import Registry
from sottovoce.core.target import Target
from sottovoce.models.task import Bounded, Floats, LearningTask, blank_labels, shape_of

if TYPE_CHECKING:
    from torch import Tensor

LOSSES: Final = Registry[Callable[..., Any]]("loss", "sottovoce.losses", {}, key="[model] loss")
"""Losses of installed packages, and any `module:function`."""

_TRIED: Final = 3  # records of a trial


@final
@dataclass(frozen=True)
class OwnLossTask:
    """A task whose loss is a function of the user's; all but the loss is the inner task's.

    The function gets a batch: outputs (records, outputs), or (records,) where there is one, and targets as the inner
    task has them: class numbers, answers of 0 and 1, or numbers on the scale of `Target`.
    """

    inner: LearningTask
    place: str  # module:function, or the name of a function that travels in `pickled`
    pickled: bytes = field(default=b"", repr=False)

    kernel: ClassVar[None] = None
    torch_only: ClassVar[bool] = True

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Return the function itself."""
        return pickle.loads(self.pickled) if self.pickled else LOSSES[self.place]

    @property
    def name(self) -> str:
        """Return the name of the inner task."""
        return self.inner.name

    @property
    def classes(self) -> int:
        """Count the classes of the inner task."""
        return self.inner.classes

    @property
    def target(self) -> Target:
        """Return what a label is."""
        return self.inner.target

    @property
    def outputs(self) -> int:
        """Count the outputs of the inner task."""
        return self.inner.outputs

    @property
    def flat(self) -> bool:
        """Tell whether there is one output."""
        return self.inner.flat

    @property
    def binary(self) -> bool:
        """Tell whether the score is that of class 1 against class 0."""
        return self.inner.binary

    @property
    def leading(self) -> str:
        """Name the metric of the inner task."""
        return self.inner.leading

    @property
    def measured(self) -> tuple[Bounded, Bounded]:
        """Return the metrics that clients tell: a loss of one's own has no public bound, so it is the inner one's."""
        return self.inner.measured

    def fitting(self, outputs: int) -> OwnLossTask | None:
        """Return this task for a model that gives so many values a record; None if it cannot be learnt so."""
        inner = self.inner.fitting(outputs)
        return None if inner is None else replace(self, inner=inner)

    def codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Refuse: the kernels know no function of the user's."""
        raise InputError(f"loss {self.place!r} is a torch function; use trainer 'torch'")

    def targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return labels as the function gets them."""
        return self.inner.targets(y)

    def losses(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of all records together, for each of them: the function tells no single ones."""
        import torch

        wanted = torch.from_numpy(self.targets(y))
        with torch.no_grad():
            value = self.torch_loss(torch.from_numpy(np.asarray(scores, np.float32)), wanted, None)
        return np.full(len(y), float(value))

    def slopes(self, outputs: Floats, y: NDArray[Any]) -> Floats:
        """Refuse: torch differentiates the function."""
        raise InputError(f"loss {self.place!r} is a torch function; use trainer 'torch'")

    def torch_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return what the function says of a batch."""
        import torch

        if weights is not None:
            raise InputError(f"loss {self.place!r} weighs records by itself; remove [client] balanced")
        value = self.function(scores, targets)
        if not isinstance(value, torch.Tensor) or value.ndim:
            given = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(
                f"loss {self.place!r} must return one number for a batch, a tensor, got {given}; return its mean"
            )
        return value

    def guesses(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the answers of the inner task."""
        return self.inner.guesses(scores)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of the inner task."""
        return self.inner.probabilities(scores)

    def torch_answers(self, scores: Tensor) -> dict[str, Tensor]:
        """Return what the graph of the inner task gives."""
        return self.inner.torch_answers(scores)

    @property
    def reading(self) -> str:
        """Say what the outputs of the inner task are."""
        return self.inner.reading


def with_own_loss(inner: LearningTask, loss: str | Callable[..., Any]) -> OwnLossTask:
    """Return a task with a loss of the user's, or refuse a function that is none."""
    require(f"loss {loss!r}" if isinstance(loss, str) else "a loss of your own", "torch")
    if isinstance(loss, str):
        made = OwnLossTask(inner, loss)
        _ = made.function
        return made
    import cloudpickle

    place = getattr(loss, "__name__", type(loss).__name__)
    try:
        return OwnLossTask(inner, place, cloudpickle.dumps(loss))
    except Exception as error:  # whatever a user's object raises
        raise InputError(f"loss {place!r} cannot be sent to worker processes: {error}") from error


def check_loss(task: LearningTask) -> None:
    """Raise in one sentence if the loss of a task cannot be computed and differentiated on made-up records."""
    if not isinstance(task, OwnLossTask):
        return
    import torch

    scores = torch.zeros(shape_of(task, _TRIED), requires_grad=True)
    try:
        value = task.torch_loss(scores, torch.from_numpy(task.targets(blank_labels(task, _TRIED))), None)
    except InputError:
        raise
    except Exception as error:  # whatever a user's function raises
        told = (str(error).strip().splitlines() or [""])[0]
        raise InputError(f"loss {task.place!r} fails on {_TRIED} records: {type(error).__name__}: {told}") from error
    if value.requires_grad is False:
        raise InputError(f"loss {task.place!r} does not depend on the outputs, so nothing can be learnt from it")
