"""Post-process the mean message on the server: momentum, adaptive steps, step size, a running mean of the weights.

All of it is free under differential privacy, because it only touches what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np

from sottovoce.core.errors import RunError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import State

Rule = Literal["adam", "yogi", "adagrad"]

# The paper's values (its appendix on hyperparameters), and by their names the keys that each rule has.
DEFAULTS: Final[dict[Rule, dict[str, float]]] = {
    "adam": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    "yogi": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    "adagrad": {"beta1": 0.0, "tau": 1e-3},
}
# Ours, because the paper tunes it for each data set: about how far a weight moves in a round, with "adagrad" at first.
DEFAULT_LR: Final[dict[Rule, float]] = {"adam": 0.01, "yogi": 0.01, "adagrad": 0.1}


@final
@dataclass(frozen=True)
class AdaptiveOptimiser:
    """Server optimiser that divides each parameter's step by the root of its past squares.

    Guarantee: it sees only steps that were released already, so it costs no privacy.
    """

    rule: Rule
    beta1: float = 0.0
    beta2: float = 0.0  # not used by "adagrad"
    tau: float = 1e-3

    def __post_init__(self) -> None:
        in_range("beta1", self.beta1, low=0, high=1, open_high=True)
        in_range("beta2", self.beta2, low=0, high=1, open_high=True)
        in_range("tau", self.tau, low=0, open_low=True, open_high=True)

    def direction(self, delta: Vector, state: State) -> tuple[Vector, State]:
        """Return m / (sqrt(v) + tau), to be multiplied by lr, and the moments to keep for the next round."""
        second = self._second(state.get("second_moment", np.full_like(delta, self.tau**2)), delta)
        kept: State = {"second_moment": second}
        first = delta
        if self.beta1:
            before = state.get("first_moment", np.float32(0))
            first = np.float32(self.beta1) * before + np.float32(1 - self.beta1) * delta
            kept["first_moment"] = first
        scale: Vector = np.sqrt(second)
        scale += np.float32(self.tau)
        return first / scale, kept

    def _second(self, past: Vector, delta: Vector) -> Vector:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
            square = np.square(delta)
            new = np.float32(1 - self.beta2) * square
            if self.rule == "adagrad":
                return past + square
            if self.rule == "yogi":
                return past - new * np.sign(past - square)
            return np.float32(self.beta2) * past + new


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
    def adaptive(self) -> AdaptiveOptimiser | None:
        """Return the adaptive optimiser; None for "sgd"."""
        if self.optimizer == "sgd":
            return None
        given = {"beta1": self.beta1, "beta2": self.beta2, "tau": self.tau}
        keys = DEFAULTS[self.optimizer] | {key: value for key, value in given.items() if value is not None}
        return AdaptiveOptimiser(self.optimizer, **keys)

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
