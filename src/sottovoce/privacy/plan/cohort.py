"""The cohort of a round: drawn exactly as it is charged for, and how much of its noise each adversary cannot know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.validate import in_range
from sottovoce.privacy.accounting.events import Sampling

Counts = NDArray[np.int32]


class Drawn(NamedTuple):
    """Who takes part, in ascending order, and how often each client has been drawn by now."""

    clients: NDArray[np.int64]
    draws: Counts


def draw_cohort(
    draws: Counts,
    *,
    sampling: Sampling,
    sample_rate: float,
    size: int,
    cohort_cap: int,
    max_participations: int,
    cohort_floor: int = 1,
    rng: Generator,
) -> Drawn:
    """Return the cohort of the next round, given how often each client was drawn before.

    Poisson: each client by its own coin. More than `cohort_cap` drawn: a uniformly random subset of that size, which is
    dp-accounting's truncated Poisson event (arXiv 2508.15089). Fixed: `size` of all clients, uniformly.
    Then whoever has been drawn more than `max_participations` times sits out. A draw counts even if it was cut.
    A cohort below `cohort_floor` is sent home, and the round releases noise as if nobody had been drawn.

    Guarantee: this is the sampler that `Event` describes; a client's count depends on nobody's data and, under Poisson
    sampling, on no other client's draws. Nothing that is published tells a small cohort from an empty one: a round that
    was visibly called off for its size would make a draw likelier, in the others, than the rate that is charged.
    """
    if draws.ndim != 1 or draws.size == 0:
        raise InputError(f"draws must count every client, got shape {draws.shape}")
    if sampling == "fixed":
        drawn = np.sort(rng.choice(draws.size, size=size, replace=False))
    else:
        drawn = np.flatnonzero(rng.random(draws.size) < sample_rate)
    after = draws.copy()
    after[drawn] += 1
    if drawn.size > cohort_cap:
        drawn = np.sort(rng.choice(drawn, size=cohort_cap, replace=False))
    taking = drawn[after[drawn] <= max_participations].astype(np.int64)
    return Drawn(taking if taking.size >= cohort_floor else taking[:0], after)


Sizes = NDArray[np.int64]

LEAST_COHORT: Final = 3  # beside colluders: of two clients, each reads the other's message off the sum


def least_cohort(threshold: float, colluders: int) -> int:
    """Return the least cohort from which on a client is hidden among others, and two survivor sets share an honest one.

    >>> least_cohort(2 / 3, 0), least_cohort(2 / 3, 3)
    (3, 8)
    """
    sizes = np.arange(LEAST_COHORT + colluders, 12 * (LEAST_COHORT + colluders))
    split = sizes[2 * _fewest(threshold, sizes) <= sizes + colluders]
    # Where even large cohorts are split, no floor helps; `Shares` says so.
    return int(split[-1]) + 1 if split.size and split[-1] < sizes[-1] else LEAST_COHORT + colluders


def _fewest(threshold: float, sizes: Sizes) -> Sizes:
    """Return t(n): n itself for a threshold of 1, else floor(threshold n) + 1."""
    if threshold == 1:
        return sizes
    needed: Sizes = np.floor(threshold * sizes + 1e-9).astype(np.int64) + 1
    return np.minimum(sizes, needed)


def floor_note(floor: int, colluders: int) -> str | None:
    """Say that cohorts may be too small to hide a client among others; None if `floor`, the least, is large enough."""
    if floor >= LEAST_COHORT + colluders:
        return None
    helped = f" with {colluders} colluders" if colluders else ""
    return (
        f"cohort_floor must be at least {LEAST_COHORT + colluders}{helped}, got {floor}: in a smaller cohort one "
        "client reads another's message off the sum; raise [cohort] sample_rate, the number of clients, or "
        "[privacy] delta"
    )


@dataclass(frozen=True)
class Shares:
    """The shares into which a cohort's noise is split, and how many of them an adversary cannot know.

    A cohort of n clients, from `floor` to `cap`, shares one variance V: each client adds V / n, whatever n is. Of a
    cohort of n at least t(n) messages must arrive (n itself when `threshold` is 1, else floor(threshold n) + 1, as
    secure aggregation has it); the server makes up the shares of those who left. Up to `colluders` of the senders may
    tell the server their noise, or leave it out: V is so large that the others' shares are enough against outsiders.

    Shares of V / t(n) would leave more noise, but would tell n: in a million coordinates the variance of the sum is
    measured to a thousandth, and n tells who was sampled.

    With `by_aggregators` clients add nothing: each of two aggregators adds V / 2 to the sum, however many messages it
    is made of. Each knows its own half; clients know none, so neither survivors nor colluders matter. With `joint` too
    the noise is made of coins that neither aggregator knows, and all of V hides a client from either.

    With `of_sites` clients are sites that protect units of their own. A site's own share is in every sum that has its
    units, and nobody else knows it. Where all other sites may collude (`local`), that share alone is enough.
    """

    threshold: float
    colluders: int
    floor: int
    cap: int
    by_aggregators: bool = False
    of_sites: bool = False
    local: bool = False
    joint: bool = False

    def __post_init__(self) -> None:
        in_range("threshold", self.threshold, low=0.5, high=1)
        in_range("colluders", self.colluders, low=0)
        in_range("cohort_floor", self.floor, low=1)
        in_range("cohort_cap", self.cap, low=self.floor)
        if self.by_aggregators or self.local:
            return
        if self.honest(self.floor) < 1:
            raise PrivacyError(
                f"cohort_floor must leave an honest survivor, got {self.floor}: of its {self.survivors(self.floor)} "
                f"survivors {self.colluders} may collude; raise cohort_floor or sample_rate"
            )
        if np.any(2 * self._survivors <= self.sizes + self.colluders):
            raise PrivacyError(
                f"colluders must leave two survivor sets a common honest client, got {self.colluders} in a cohort of "
                f"{self.floor} with threshold {self.threshold:.3g}; raise cohort_floor or threshold"
            )

    @property
    def sizes(self) -> Sizes:
        """Return every size that a cohort may have."""
        return np.arange(self.floor, self.cap + 1)

    def survivors(self, cohort: int) -> int:
        """Return t(n), the fewest messages with which a sum may be opened."""
        if self.by_aggregators:
            return min(cohort, self.floor, 2)
        return cohort if self.threshold == 1 else min(cohort, int(self.threshold * cohort + 1e-9) + 1)

    def honest(self, cohort: int) -> int:
        """Return t(n) - c, the fewest shares that server and colluders together do not know."""
        return self.survivors(cohort) - self.colluders

    @cached_property
    def outsider_part(self) -> float:
        """Return the least part of V that is in the sum if `colluders` of a cohort leave out their shares."""
        return 1.0 if self.by_aggregators else self._least(self.sizes - self.colluders)

    @cached_property
    def server_part(self) -> float:
        """Return the least part of V that server and colluders do not know: (t(n) - c) / n of the worst cohort."""
        if self.joint:
            return 1.0
        return 0.5 if self.by_aggregators else self._least(self._survivors - self.colluders)

    @cached_property
    def member_part(self) -> float:
        """Return the least part of V that one client does not know: all but its own share and those left out."""
        return 1.0 if self.by_aggregators else self._least(self.sizes - 1 - self.colluders)

    @cached_property
    def third_part(self) -> float:
        """Return what `server_part` would be if a third of every cohort told the server its noise."""
        if self.joint:
            return 1.0
        return 0.5 if self.by_aggregators else self._least(self._survivors - self.sizes // 3)

    def unknown_shares(self) -> list[Sizes]:
        """Return, for each adversary, how many shares of each cohort it does not know and nobody left out."""
        sizes, honest = self.sizes, self._survivors - self.colluders
        known = [sizes - self.colluders, honest, sizes - 1 - self.colluders, self._survivors - sizes // 3]
        return [self._own(shares) for shares in known]

    def check(self, cohort: int, survivors: int, *, round_: int | None = None) -> None:
        """Raise unless enough messages arrived for the noise to be complete."""
        where = "" if round_ is None else f"round {round_}: "
        if not 0 <= survivors <= cohort:
            raise RunError(f"{where}{survivors} messages of a cohort of {cohort}")
        if cohort > self.cap:
            raise RunError(f"{where}a cohort of {cohort} is above the cohort cap {self.cap}; nothing was released")
        if 0 < cohort < self.floor:
            raise RunError(f"{where}a cohort of {cohort} is below the floor {self.floor}; nothing was released")
        if survivors < self.survivors(cohort):
            raise RunError(
                f"{where}{survivors} messages, but the noise was shared among at least {self.survivors(cohort)}; "
                "nothing was released"
            )

    @property
    def _survivors(self) -> Sizes:
        return _fewest(self.threshold, self.sizes)

    def _least(self, unknown: NDArray[Any]) -> float:
        return float(np.min(self._own(unknown) / self.sizes))

    def _own(self, unknown: NDArray[Any]) -> NDArray[Any]:
        """Return the unknown shares, of which a site's own is always one."""
        return np.maximum(unknown, 1) if self.of_sites else unknown
