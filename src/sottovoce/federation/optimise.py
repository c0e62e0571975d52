"""Post-process the mean message on the server: momentum, step size, a running mean of the weights.

All of it is free under differential privacy, because it only touches what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import State

__all__ = ["ServerStep", "model_of"]


@dataclass(frozen=True)
class ServerStep:
    """Turn the mean message y into the step lr_t * u, with u = momentum * u + y; off by default, as in the papers."""

    momentum: float = 0.0
    lr: float = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    average: float = 0.0  # weight of the past in the running mean of the models; 0: none is kept
    rounds: int = 1

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
        factor = self.lr_at(round_)
        return (mean if factor == 1 else np.float32(factor) * mean), kept

    def follow(self, params: Vector, state: State, round_: int) -> State:
        """Return the running mean of the models; the plain mean while it is young."""
        if not self.average:
            return {}
        past = np.float32(min(self.average, 1 - 1 / round_))
        return {"average": past * state.get("average", params) + (1 - past) * params}


def model_of(state: State) -> Vector:
    """Return the model that is evaluated and kept: the running mean if there is one."""
    return state.get("average", state["params"])
