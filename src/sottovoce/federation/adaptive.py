"""Adapt the server's step to each parameter: FedAdam, FedYogi and FedAdagrad.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Alg. 2. With Delta the step of the scheme alone:

    m <- beta1 m + (1 - beta1) Delta
    v <- v + Delta^2                                        adagrad
    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)          yogi
    v <- beta2 v + (1 - beta2) Delta^2                      adam
    w <- w + lr m / (sqrt(v) + tau)

from m = 0 and v = tau^2, without the bias correction of the original Adam, as in the paper.

m and v belong to the parameters and not to the values of a message: a message of FL-RND holds other coordinates every
round, and one of FL-CS holds measurements whose sizes say nothing about a single weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import State

__all__ = ["DEFAULTS", "DEFAULT_LR", "Adaptive", "Rule"]

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
class Adaptive:
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
