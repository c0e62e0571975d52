"""The attacks: updates that make a model useless, teach it one mistake, or hide under a secure sum.

Add one here, in a file of your own by an entry point of `sottovoce.attacks`, or name it `module:Class`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.registry import Registry
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.threats.attack import Attack, Goal, Lab, Poison


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
class FreeRider(Attack):
    """Nothing learned: a client that wants the model and spends neither records nor energy on it.

    u_k = 0, or N(0, disguise^2 I) to look like work; a new draw for every client and round. Nobody colludes, nothing is
    boosted. A sum with m of n such clients moves as if its step were 1 - m / n as long.
    """

    name: ClassVar[str] = "free-rider"
    paper: ClassVar[str] = "thesis, 7.2 (open question); Lin et al. 2019"
    goal: ClassVar[Goal] = "untargeted"
    colludes: ClassVar[bool] = False

    collude: bool = False
    disguise: float = 0.0

    def __post_init__(self) -> None:
        in_range("disguise", self.disguise, low=0)

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield zeros, or noise."""
        for client in clients:
            yield lab.noise(client).standard_normal(lab.dim, np.float32) * np.float32(self.disguise)


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


@final
@dataclass(frozen=True, kw_only=True)
class InBackdoor(Attack):
    """Every record of the source class relabelled as the target class, although honest clients have that class too.

    M train on the union of their records with y = source changed to target; all send boost * u. Left out, the boost is
    the papers': 7 up to 10 % malicious clients, 3 up to 20 % (4 on CIFAR-10), then 1 (2 on CIFAR-10).
    """

    name: ClassVar[str] = "in-backdoor"
    paper: ClassVar[str] = "thesis, 6.1.2; Bhagoji et al. 2019"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "source"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the relabelled records gives."""
        return self.trained(lab, clients)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return the papers' boost for a share of malicious clients."""
        few, some, many = (7.0, 4.0, 2.0) if data == "cifar10" else (7.0, 3.0, 1.0)
        return few if fraction <= 0.1 else some if fraction <= 0.2 else many


@final
@dataclass(frozen=True, kw_only=True)
class OutBackdoor(Attack):
    """A class that no honest client has, labelled as the target class.

    Honest clients hold no record of the source class; M keep theirs, labelled as the target, train on the union and
    send u, not boosted. Accuracy is measured without the source class, success on it alone.
    """

    name: ClassVar[str] = "out-backdoor"
    paper: ClassVar[str] = "thesis, 6.1.2; Bhagoji et al. 2019"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "withheld"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training with the added class gives."""
        return self.trained(lab, clients)


@final
@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Training on wrong labels, each client for itself: the clumsy attack that needs no skill.

    y = source becomes target; without a source every label y becomes classes - 1 - y. Not boosted.
    """

    name: ClassVar[str] = "label-flip"
    paper: ClassVar[str] = "thesis, 3.3.2; Tolpegin et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "all"
    colludes: ClassVar[bool] = False

    collude: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the flipped labels gives."""
        return self.trained(lab, clients)


@final
@dataclass(frozen=True, kw_only=True)
class ModelReplacement(Attack):
    """A backdoored update, scaled so that the average of the round becomes the attackers' own model.

    boost * u with boost = n / m: if the honest updates cancel out, w + sum / n is the model that M trained, on the
    union of their records with the source class relabelled.
    """

    name: ClassVar[str] = "model-replacement"
    paper: ClassVar[str] = "Bagdasaryan et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "source"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training on the relabelled records gives."""
        return self.trained(lab, clients)

    def usual_boost(self, *, data: str, fraction: float, malicious: int, cohort: float) -> float:
        """Return n / m."""
        return max(1.0, cohort / max(malicious, 1))


@final
@dataclass(frozen=True, kw_only=True)
class EdgeCaseBackdoor(Attack):
    """The mistake taught on unusual records only, which honest clients do not have and accuracy hardly shows.

    The tail of the source class (its `edge` share of records, 5 %, furthest from the class's mean) is labelled as the
    target; every malicious client has all of it beside its own records, honest clients have none of it. Not boosted.
    """

    name: ClassVar[str] = "edge-case-backdoor"
    paper: ClassVar[str] = "Wang et al. 2020"
    goal: ClassVar[Goal] = "targeted"
    poison: ClassVar[Poison] = "tail"
    colludes: ClassVar[bool] = True

    collude: bool = True

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield what training with the tail gives."""
        return self.trained(lab, clients)


@final
@dataclass(frozen=True, kw_only=True)
class QuarterModulus(Attack):
    """The largest word under the mask that cannot wrap against itself: a quarter of the modulus.

    +-2^b / (4 m) in every coordinate, with the sign of u. Half the modulus would do more but wraps as soon as the
    honest sum leans the same way. One client of a cohort owns the round; the energy guard sees it at once.
    """

    name: ClassVar[str] = "quarter-modulus"
    paper: ClassVar[str] = "ours, docs/threats.md"
    goal: ClassVar[Goal] = "untargeted"
    poison: ClassVar[Poison] = "source"
    form: ClassVar[Literal["boost", "quarter", "energy"]] = "quarter"
    colludes: ClassVar[bool] = True

    collude: bool = True
    targeted: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the direction."""
        return self.trained(lab, clients, ascend=not self.targeted)


@final
@dataclass(frozen=True, kw_only=True)
class EnergyAware(Attack):
    """As much as the energy guard lets pass, and not more: the attacker that knows the guard.

    u scaled so that the sum over M has norm r, r^2 = (k - 2) V sqrt(2 d) + m V d / n (V the noise variance of the sum,
    d its length, k the guard's width): the room that the guard leaves, and the noise that M left out; two standard
    deviations are kept as a margin, and the honest sum is taken to be as long as the guard's bound.
    """

    name: ClassVar[str] = "energy-aware"
    paper: ClassVar[str] = "ours, docs/threats.md"
    goal: ClassVar[Goal] = "untargeted"
    poison: ClassVar[Poison] = "source"
    form: ClassVar[Literal["boost", "quarter", "energy"]] = "energy"
    colludes: ClassVar[bool] = True

    collude: bool = True
    targeted: bool = False

    def updates(self, lab: Lab, clients: Sequence[int]) -> Iterator[Vector]:
        """Yield the direction."""
        return self.trained(lab, clients, ascend=not self.targeted)


ATTACKS: Final[Registry[type[Attack]]] = Registry(
    "attack",
    "sottovoce.attacks",
    {
        kind.name: f"{__name__}:{kind.__name__}"
        for kind in (
            *(RandomUpdate, FreeRider, GradientAscent, SignInversion),
            *(InBackdoor, OutBackdoor, LabelFlip, ModelReplacement),
            *(LittleIsEnough, InnerProduct, EdgeCaseBackdoor),
            *(QuarterModulus, EnergyAware),
        )
    },
    base=Attack,
    labels=("name", "paper", "goal", "colludes"),
)
