"""Attacks that make a model useless: random updates, gradient ascent, inverted signs, estimates of the honest ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.threats.attack import Attack, Goal, Lab

__all__ = ["GradientAscent", "InnerProduct", "LittleIsEnough", "RandomUpdate", "SignInversion"]


@final
@dataclass(frozen=True, kw_only=True)
class RandomUpdate(Attack):
    """Noise in place of an update, a new draw for every client and round.

    u_k ~ N(0, stddev^2 I), independent; nobody colludes and nothing is boosted. On FL-SIGN these are random bits;
    schemes that send fewer values encode the noise as they would an update.
    """

    name: ClassVar[str] = "random-update"
    paper: ClassVar[str] = "thesis, 6.1.1.1; Blanchard et al. 2017"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = False

    collude: bool = False
    stddev: float = 200.0

    def __post_init__(self) -> None:
        in_range("stddev", self.stddev, low=0, open_low=True)

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the noise of each client."""
        for client in clients:
            noise = lab.noise(client).standard_normal(lab.dim, np.float32)
            noise *= np.float32(self.stddev)
            yield noise


@final
@dataclass(frozen=True, kw_only=True)
class GradientAscent(Attack):
    """Steps up the loss on the union of the malicious clients' records, boosted.

    w <- w + eta grad f(union of D_k, k in M; w), T_gd times; all of M send boost * (w - w_t). The boost multiplies the
    finished update (in the thesis it may also be read as the learning rate): 10, and 20 on IMDB.
    """

    name: ClassVar[str] = "gradient-ascent"
    paper: ClassVar[str] = "thesis, 6.1.1.2; Nasr et al. 2019"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the climbing update."""
        return self.trained(lab, clients, ascend=True)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return 10, and 20 on IMDB."""
        return 20.0 if data == "imdb" else 10.0


@final
@dataclass(frozen=True, kw_only=True)
class SignInversion(Attack):
    """The opposite of an honest update: on FL-SIGN, every sign inverted.

    -boost * u_k. The update is turned around before it is encoded, so that a zero still gets a random sign. With
    one local step this is gradient ascent on a client's own records.
    """

    name: ClassVar[str] = "sign-inversion"
    paper: ClassVar[str] = "thesis, 6.1.1.2; Bernstein et al. 2018"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = False

    collude: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the opposite of what training gives."""
        return (-update for update in self.trained(lab, clients))


@final
@dataclass(frozen=True, kw_only=True)
class LittleIsEnough(Attack):
    """The mean of the honest updates, shifted in every coordinate by as much as passes for an honest one.

    mu - z sd, both estimated from the updates that M would have made honestly, z = Phi^-1((n - m - s) / (n - m)) with
    s = floor(n / 2 + 1) - m: so many honest clients lie further out. Made to pass median, trimmed mean and Krum.
    """

    name: ClassVar[str] = "little-is-enough"
    paper: ClassVar[str] = "Baruch, Baruch, Goldberg 2019"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = True

    collude: bool = True
    cohort: float = 0.0  # n, public

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the shifted mean, the same for all."""
        mean, spread = _moments(lab.everyone)
        shifted = np.asarray(mean - self.shift(len(lab.malicious)) * spread, np.float32)
        return (shifted for _ in clients)

    def shift(self, malicious: int) -> float:
        """Return z; 0 where the attackers are a majority already or alone.

        >>> round(LittleIsEnough(cohort=50).shift(24), 3)
        1.426
        """
        honest = max(self.cohort, malicious + 1.0) - malicious
        supporters = math.floor(max(self.cohort, malicious) / 2 + 1) - malicious
        share = (honest - supporters) / honest
        return NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6))


@final
@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    """The negative mean of the honest updates, so that the sum points away from where it should.

    -boost * mu, mu estimated from the updates that M would have made honestly. Left out, the boost is
    1.5 (n - m) / m: enough to turn a plain mean around. The paper takes it small against Krum and the median.
    """

    name: ClassVar[str] = "inner-product"
    paper: ClassVar[str] = "Xie, Koyejo, Gupta 2019"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the negative mean, the same for all."""
        mean, _ = _moments(lab.everyone)
        turned = np.asarray(-mean, np.float32)
        return (turned for _ in clients)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return one and a half times what cancels the honest clients."""
        return max(1.0, 1.5 * (cohort - malicious) / max(malicious, 1))


def _moments(updates: Sequence[Vector]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each coordinate, in one pass over the updates."""
    first = updates[0].astype(np.float64)  # deviations from it: no cancellation where updates are nearly alike
    total, squares = np.zeros_like(first), np.zeros_like(first)
    for update in updates[1:]:
        deviation = update - first
        total += deviation
        squares += np.square(deviation, out=deviation)
    total /= len(updates)
    variance = np.maximum(squares / len(updates) - np.square(total), 0)
    return first + total, np.sqrt(variance)
