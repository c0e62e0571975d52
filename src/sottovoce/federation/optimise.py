"""Post-process the mean message on the server: momentum, adaptive steps, step size, a running mean of the weights.

All of it is free under differential privacy, because it only touches what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core.errors import RunError
from sottovoce.core.vectors import Vector
from sottovoce.federation.adaptive import DEFAULTS, Adaptive
from sottovoce.schemes.base import State

__all__ = ["ServerStep", "model_of"]


@dataclass(frozen=True)
class ServerStep:
    """Turn the mean message y into the step lr_t * u, with u = momentum * u + y; off by default, as in the papers.

    With another `optimizer` than "sgd", y is decoded as it is, and `adapt` changes the step that the scheme took.
    """

    optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd"
    momentum: float = 0.0
    lr: float = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    beta1: float | None = None  # None: the paper's value for the optimizer
    beta2: float | None = None
    tau: float | None = None
    average: float = 0.0  # weight of the past in the running mean of the models; 0: none is kept
    rounds: int = 1

    @property
    def adaptive(self) -> Adaptive | None:
        """Return the adaptive optimiser; None for "sgd"."""
        if self.optimizer == "sgd":
            return None
        given = {"beta1": self.beta1, "beta2": self.beta2, "tau": self.tau}
        keys = DEFAULTS[self.optimizer] | {key: value for key, value in given.items() if value is not None}
        return Adaptive(self.optimizer, **keys)

    def lr_at(self, round_: int) -> float:
        """Return the step size of a round; schedules end near zero at the last."""
        progress = (round_ - 1) / self.rounds
        if self.schedule == "linear":
            return self.lr * (1 - progress)
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * progress))
        return self.lr

    def step(self, mean: Vector, state: State, round_: int) -> tuple[Vector, State]:
        """Return what the scheme decodes, and what to keep for the next round."""
        kept: State = {}
        if self.momentum:
            mean = np.float32(self.momentum) * state.get("velocity", np.float32(0)) + mean
            kept["velocity"] = mean
        factor = 1 if self.adaptive else self.lr_at(round_)
        return (mean if factor == 1 else np.float32(factor) * mean), kept

    def adapt(self, before: Vector, after: Vector, state: State, round_: int) -> tuple[Vector, State]:
        """Return the model that the optimiser makes of the scheme's step, and what to keep for the next round.

        The scheme moved `before` to `after`; "sgd" leaves it there.
        """
        adaptive = self.adaptive
        if adaptive is None:
            return after, {}
        direction, kept = adaptive.direction(after - before, state)
        if not np.isfinite(np.sum(kept["second_moment"], dtype=np.float64)):
            raise RunError(f"round {round_}: the step is too large for optimizer {self.optimizer!r}; lower client_lr")
        return before + np.float32(self.lr_at(round_)) * direction, kept

    def follow(self, params: Vector, state: State, round_: int) -> State:
        """Return the running mean of the models; the plain mean while it is young."""
        if not self.average:
            return {}
        past = np.float32(min(self.average, 1 - 1 / round_))
        return {"average": past * state.get("average", params) + (1 - past) * params}


def model_of(state: State) -> Vector:
    """Return the model that is evaluated and kept: the running mean if there is one."""
    return state.get("average", state["params"])
