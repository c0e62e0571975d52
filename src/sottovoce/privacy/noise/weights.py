"""Noise for the weights that one client sends: three mechanisms beside Laplace, Gaussian and the staircase.

As in `mechanisms`, the noise is floating-point and leaks (Mironov 2012): for studies, never for a deployment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.validate import in_range
from sottovoce.privacy.noise.mechanisms import Staircase

__all__ = ["CoordinateStaircase", "GammaShare", "Radial"]

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Radial:
    """Noise with density proportional to exp(-epsilon ||x||_2 / D) (Chaudhuri, Monteleoni and Sarwate 2011).

    Its norm is Gamma(dim, D / epsilon), its direction uniform. Of the pure mechanisms it is the one for an L2
    sensitivity: Laplace noise would need the L1 sensitivity, up to sqrt(dim) times as large.

    Guarantee: on real numbers, epsilon-private for queries of L2 sensitivity D = `sensitivity`.
    """

    epsilon: float
    sensitivity: float
    dim: int = 1

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity, self.dim)

    @property
    def mean_norm(self) -> float:
        """Return the expected L2 norm of the noise."""
        return self.dim * self.sensitivity / self.epsilon

    def sample(self, rng: Generator) -> Values:
        """Return one noise vector."""
        direction = rng.standard_normal(self.dim)
        radius = rng.gamma(self.dim, self.sensitivity / self.epsilon)
        return np.asarray(radius * direction / np.linalg.norm(direction))


@dataclass(frozen=True)
class CoordinateStaircase:
    """Independent staircase noise on each of `dim` coordinates, of a query with L1 sensitivity D = `sensitivity`.

    Staircase noise of (epsilon, D) on each coordinate would not be epsilon-private: a shift by any t in (0, D] can cost
    the whole epsilon on every coordinate, because a step may lie right there. A shift by t costs at most
    epsilon_1 ceil(|t| / step) <= epsilon_1 (|t| / step + 1). Over all coordinates this is at most
    epsilon_1 (D / step + dim), which is epsilon for step = D / dim and epsilon_1 = epsilon / (2 dim).

    Guarantee: on real numbers, epsilon-private for queries of L1 sensitivity `sensitivity`.
    """

    epsilon: float
    sensitivity: float
    dim: int = 1
    gamma: float | None = None  # None: the one of least expected noise

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity, self.dim)
        if self.gamma is not None:
            in_range("gamma", self.gamma, low=0, high=1)

    @cached_property
    def single(self) -> Staircase:
        """Return the noise of one coordinate."""
        return Staircase(self.epsilon / (2 * self.dim), self.sensitivity / self.dim, gamma=self.gamma)

    @property
    def mean_norm(self) -> float:
        """Return the expected L1 norm of the noise, in closed form (Geng and Viswanath 2014).

        A coordinate's is b / (1 - b) + (b + (1 - b) gamma^2) / (2 (b + (1 - b) gamma)) steps, b = e^-epsilon_1.
        """
        single = self.single
        b, gamma = float(np.exp(-single.epsilon)), single.best_gamma
        inner = (b + (1 - b) * gamma**2) / (2 * (b + (1 - b) * gamma))
        return self.dim * single.sensitivity * (float(b / -np.expm1(-single.epsilon)) + inner)

    def sample(self, rng: Generator) -> Values:
        """Return one noise vector, each coordinate by Algorithm 1 of Geng et al. 2015."""
        single = self.single
        b, gamma = float(np.exp(-single.epsilon)), single.best_gamma
        sign = rng.integers(0, 2, self.dim) * 2 - 1
        step = rng.geometric(-np.expm1(-single.epsilon), self.dim) - 1
        uniform = rng.random(self.dim)
        inner = rng.random(self.dim) < gamma / (gamma + (1 - gamma) * b)
        place = np.where(inner, gamma * uniform, gamma + (1 - gamma) * uniform)
        return np.asarray(single.sensitivity * sign * (step + place))


@dataclass(frozen=True)
class GammaShare:
    """One client's share of Laplace noise: G - G', both Gamma(1 / shares, D / epsilon) (Kotz et al. 2001, PrivacyFL).

    Guarantee: on real numbers, the sum of exactly `shares` independent shares is Laplace(D / epsilon) on each
    coordinate, so the *sum* of the clients' messages is epsilon-private if one record moves it by at most D in L1. A
    single message is not: it needs a secure sum, from which nobody drops out, of clients who do not collude.
    """

    epsilon: float
    sensitivity: float
    dim: int = 1
    shares: int = 1

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity, self.dim)
        in_range("shares", self.shares, low=1)

    def sample(self, rng: Generator) -> Values:
        """Return one share."""
        shape, scale = 1 / self.shares, self.sensitivity / self.epsilon
        return np.asarray(rng.gamma(shape, scale, self.dim) - rng.gamma(shape, scale, self.dim))


def _check(epsilon: float, sensitivity: float, dim: int) -> None:
    in_range("epsilon", epsilon, low=0, open_low=True)
    in_range("sensitivity", sensitivity, low=0, open_low=True)
    in_range("dim", dim, low=1)
