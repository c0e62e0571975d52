"""Noise of both modes: as the thesis' author drew it, and as the guarantee asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.privacy.accounting.accountant import noise_multiplier
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.noise.mechanisms import CoordinateStaircase, GammaShare, Laplace, Radial, Staircase
from sottovoce.studies.mechanisms.settings import Mechanism

Values = NDArray[np.float64]

AUTHOR_DELTA: Final = 1e-4  # "10e-5" in the code
AUTHOR_ALPHA: Final = 1.0  # in the sensitivity; the training has 1e-4
STEEP: Final = 1e-3  # of epsilon a coordinate: below it, gamma changes the expected norm by less than a part in 1e5


@dataclass(frozen=True)
class Noise:
    """Noise of one client in one iteration."""

    sample: Callable[[Generator], Values]
    stddev: float  # of one coordinate; of staircases about, that of the Laplace noise which they resemble
    sensitivity: float  # of the norm that the mechanism needs


def author_sensitivity(clients: int, records: int) -> float:
    """Return the thesis' sensitivity 2 / (clients * records * alpha), with the alpha = 1 of its configuration.

    It is wrong twice: the model is trained with alpha = 1e-4, and a client's message is not yet divided by clients.
    """
    return 2 / (clients * records * AUTHOR_ALPHA)


def author_gamma(epsilon: float) -> float:
    """Return the thesis' gamma e^epsilon / 2, which is above 1 from epsilon = ln 2 on."""
    return math.exp(epsilon) / 2


def author_staircase(epsilon: float, sensitivity: float, dim: int, rng: Generator) -> Values:
    """Draw as the author's code does: S (1 - B) (G + gamma U) D + B (G + gamma + (1 - gamma) U) D.

    Wrong twice: the sign S does not reach the branch B = 1, which is always positive; and B compares a fair coin, not a
    uniform number, with gamma / (gamma + (1 - gamma) e^-epsilon), so it is fair, or 0 always where gamma is above 1.
    """
    gamma = author_gamma(epsilon)
    sign = rng.integers(0, 2, dim) * 2 - 1
    steps = rng.geometric(-math.expm1(-epsilon), dim) - 1
    uniform = rng.random(dim)
    outer = rng.integers(0, 2, dim) >= gamma / (gamma + (1 - gamma) * math.exp(-epsilon))
    inside = sign * (steps + gamma * uniform) * sensitivity
    return np.where(outer, (steps + gamma + (1 - gamma) * uniform) * sensitivity, inside)


def author_noise(
    mechanism: Mechanism, epsilon: float, clients: int, records: int, dim: int, stated: float = 0.0
) -> Noise:
    """Return the thesis' noise on each of `dim` weights; `stated` is a sensitivity in place of its code's.

    Guarantee: none.
    """
    sensitivity = stated or author_sensitivity(clients, records)
    scale = sensitivity / epsilon
    if mechanism == "laplace":
        return Noise(lambda rng: rng.laplace(0.0, scale, dim), math.sqrt(2) * scale, sensitivity)
    if mechanism == "gaussian":
        stddev = math.sqrt(2 * math.log(1.25 / AUTHOR_DELTA)) * scale
        return Noise(lambda rng: rng.normal(0.0, stddev, dim), stddev, sensitivity)
    if mechanism == "staircase":
        return Noise(
            lambda rng: author_staircase(epsilon, sensitivity, dim, rng), _spread(epsilon) * sensitivity, sensitivity
        )
    if mechanism == "gamma-shares":
        share = GammaShare(epsilon, sensitivity, dim, clients)
        return Noise(share.sample, math.sqrt(2 / clients) * scale, sensitivity)
    raise InputError(f'[study] mechanisms: mode "printed" has no {mechanism!r}; set mode = "right"')


@cache
def _spread(epsilon: float) -> float:
    """Return the standard deviation of the author's staircase at sensitivity 1, from many draws."""
    return float(author_staircase(epsilon, 1.0, 1_000_000, np.random.default_rng(0)).std())


def right_noise(
    mechanism: Mechanism, epsilon: float, delta: float, releases: int, l2: float, dim: int, shares: int
) -> Noise:
    """Return noise with which `releases` releases of the same records, each of L2 sensitivity `l2`, cost `epsilon`.

    Guarantee: on real numbers, what a client sends in all iterations is epsilon-private for replacing one of its
    records ((epsilon, delta) with "gaussian"). Pure mechanisms give each release epsilon / releases; Gaussian releases
    are composed exactly. With "gamma-shares" only the sum over all `shares` clients is private.
    """
    in_range("releases", releases, low=1)
    each, l1 = epsilon / releases, math.sqrt(dim) * l2
    if mechanism == "laplace":
        return Noise(Laplace(each, l1, dim).sample, math.sqrt(2) * l1 / each, l1)
    if mechanism == "gaussian":
        stddev = _multiplier(epsilon, delta, releases) * l2
        return Noise(lambda rng: rng.normal(0.0, stddev, dim), stddev, l2)
    if mechanism == "staircase":
        # In many dimensions a step is a small part of the norm's spread, and the search would find rounding errors.
        gamma = 0.5 if each / dim < STEEP else None
        stairs = _stairs(each, dim, gamma)
        return Noise(lambda rng: l1 * stairs.sample(rng), math.sqrt(2) * l1 / each, l1)
    if mechanism == "staircase-coordinates":
        single = CoordinateStaircase(each, l1, dim)
        return Noise(single.sample, math.sqrt(2) * single.mean_norm / dim, l1)
    if mechanism == "gamma-shares":
        return Noise(GammaShare(each, l1, dim, shares).sample, math.sqrt(2 / shares) * l1 / each, l1)
    if mechanism == "radial":
        radial = Radial(each, l2, dim)
        return Noise(radial.sample, math.sqrt((dim + 1) * 1.0) * l2 / each, l2)
    raise InputError(f"[study] mechanisms: {mechanism!r} adds no noise")


@cache
def _stairs(epsilon: float, dim: int, gamma: float | None) -> Staircase:
    """Return staircase noise of sensitivity 1; kept, because its table of shells takes a second in many dimensions."""
    return Staircase(epsilon, 1.0, dim, gamma)


@cache
def _multiplier(epsilon: float, delta: float, releases: int) -> float:
    return noise_multiplier(
        epsilon, lambda z: [Event(noise_multiplier=z, sample_rate=1.0, rounds=releases)], delta=delta
    )
