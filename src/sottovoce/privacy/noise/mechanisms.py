"""Mechanisms beside the private path: one to compare with, and those of the study of the mechanisms thesis.

Their noise is floating-point, so it leaks (Mironov 2012): none of them may run in a deployment. The private path
itself is the distributed discrete Gaussian of `PrivacyPlan.protect`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.privacy.noise.clipping import clip
from sottovoce.privacy.noise.randomness import Randomness

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Add continuous Gaussian noise: in simulation, to compare with the discrete path.

    Guarantee: none in floating point; on real numbers, that of the Gaussian accountant.
    """

    stddev: float

    def protect(self, message: NDArray[np.generic], clip_norm: float, randomness: Randomness) -> Vector:
        """Return the clipped message with this client's share."""
        return self.add(clip(message.astype(np.float32, copy=False), clip_norm), randomness)

    def add(self, values: Vector, randomness: Randomness) -> Vector:
        """Return `values` with noise."""
        rng = Generator(Philox(key=np.frombuffer(randomness.key[:16], "<u8")))
        return (values + rng.normal(0.0, self.stddev, values.size)).astype(np.float32)


@dataclass(frozen=True)
class Laplace:
    """Add Laplace noise to each of `dim` values (Dwork et al. 2006).

    Guarantee: on real numbers, epsilon-private for queries of L1 sensitivity `sensitivity`.
    """

    epsilon: float
    sensitivity: float
    dim: int = 1

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity, self.dim)

    @property
    def mean_norm(self) -> float:
        """Return the expected L1 norm of the noise."""
        return self.dim * self.sensitivity / self.epsilon

    def sample(self, rng: Generator) -> Values:
        """Return one noise vector."""
        return rng.laplace(0.0, self.sensitivity / self.epsilon, self.dim)


@dataclass(frozen=True)
class Staircase:
    """Add noise whose density is a staircase in the L1 norm (Geng, Kairouz, Oh and Viswanath 2015).

    With D the sensitivity and b = e^-epsilon the density is a b^k for ||x||_1 in [kD, (k + gamma)D) and a b^(k+1) up
    to (k + 1)D. `gamma` None is the one of least expected L1 norm: 1 / (1 + e^(epsilon / 2)) in one dimension, a
    numeric minimum beyond.

    The thesis' Algorithm 1 is the case dim = 1, corrected: the branch has probabilities gamma and (1 - gamma) b (it
    prints (1 - gamma)^b), the sign multiplies both branches, and gamma is in [0, 1].

    Guarantee: on real numbers, epsilon-private for queries of L1 sensitivity `sensitivity`.
    """

    epsilon: float
    sensitivity: float
    dim: int = 1
    gamma: float | None = None

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity, self.dim)
        if self.gamma is not None:
            in_range("gamma", self.gamma, low=0, high=1)

    @cached_property
    def best_gamma(self) -> float:
        """Return the gamma in use."""
        if self.gamma is not None:
            return self.gamma
        if self.dim == 1:
            return 1 / (1 + math.exp(self.epsilon / 2))
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(self._log_mean, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
        return float(found.x)

    @cached_property
    def mean_norm(self) -> float:
        """Return the expected L1 norm of the noise."""
        return self.sensitivity * math.exp(self._log_mean(self.best_gamma))

    def sample(self, rng: Generator) -> Values:
        """Return one noise vector: a shell, a radius in it by volume, a direction uniform on the L1 sphere."""
        edges, _, cumulative = self._shells
        shell = int(np.searchsorted(cumulative, rng.random(), side="right"))
        shell = min(shell, cumulative.size - 1)
        low, high = edges[shell], edges[shell + 1]
        # The volume within radius r grows as r^dim; relative to `high`, so that no power overflows.
        inner = (low / high) ** self.dim
        radius = high * (inner + (1 - inner) * rng.random()) ** (1 / self.dim)
        direction = rng.standard_exponential(self.dim)
        signs = rng.integers(0, 2, self.dim) * 2 - 1
        return np.asarray(self.sensitivity * radius * signs * direction / direction.sum())

    @cached_property
    def _shells(self) -> tuple[Values, Values, Values]:
        edges, logs = self._log_masses(self.best_gamma, self.dim)
        masses = np.exp(logs - logs.max())
        return edges, masses, np.cumsum(masses) / masses.sum()

    def _log_masses(self, gamma: float, power: int) -> tuple[Values, Values]:
        """Return shell edges in units of the sensitivity, and the log of (high^power - low^power) times the density."""
        # ||x||_1 is about Gamma(dim, 1 / epsilon); beyond this many steps less than 1e-20 is left.
        steps = math.ceil((self.dim + 10 * math.sqrt(self.dim) + 60) / self.epsilon) + 2
        k = np.arange(steps, dtype=float)
        edges = np.empty(2 * steps + 1)
        edges[0:-1:2], edges[1::2], edges[-1] = k, k + gamma, steps
        low, high = edges[:-1], edges[1:]
        with np.errstate(divide="ignore"):
            volume = power * np.log(high) + np.log1p(-((low / np.where(high > 0, high, 1.0)) ** power))
        level = -self.epsilon * np.repeat(k, 2)
        level[1::2] -= self.epsilon
        return edges, np.where(high > low, volume + level, -np.inf)

    def _log_mean(self, gamma: float) -> float:
        """Return the log of E||x||_1 / sensitivity: d / (d + 1) times the ratio of two sums of shell volumes."""
        from scipy.special import logsumexp

        _, top = self._log_masses(gamma, self.dim + 1)
        _, bottom = self._log_masses(gamma, self.dim)
        return float(math.log(self.dim / (self.dim + 1)) + logsumexp(top) - logsumexp(bottom))


def _check(epsilon: float, sensitivity: float, dim: int) -> None:
    in_range("epsilon", epsilon, low=0, open_low=True)
    in_range("sensitivity", sensitivity, low=0, open_low=True)
    in_range("dim", dim, low=1)


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
