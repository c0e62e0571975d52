"""Noise of weighted fair coins, and how much Gaussian noise it is worth.

Two aggregators toss coins together (`plan.ballots`): each coin is the sum of a bit of either, so it is fair as long as
one of them tosses fairly. A coin of weight 2^j adds 2^j or 0 votes; `counts[j]` coins of that weight are tossed for
every coordinate, and their mean is taken off. With n coins of each of k weights the noise is that of n numbers drawn
uniformly from 0 to 2^k - 1.

What it is worth. A client moves every coordinate by one vote, up or down; the noise is symmetric, so a round of d
coordinates is d independent shifts by one. The privacy loss of one shift is put on a grid such that each outcome is
split between its two neighbours with the probabilities of both worlds kept ("connect the dots", Doroshenko et al.
2022): the split can be undone, so that the pair on the grid is at least as far apart. d of them are convolved, and of
the result the whole curve delta(epsilon) is compared with a Gaussian's, that of one shift by 1 under noise z:

    delta_coins(epsilon) <= delta_Gauss(epsilon; z) + slack        for every epsilon >= 0

For epsilon < 0 this follows by symmetry. So the coins of a round are at least as private as a Gaussian of noise
multiplier z that is given up once in about 1 / slack rounds. `Event` has a place for both numbers, and everything that
is composed, sampled or capped is priced as any other Gaussian release (`lattice` says how a slack is charged).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError

FEWEST: Final = 12  # coins of each weight at least: fewer have tails that are far from a Gaussian's
_FINE: Final = 100  # grid steps of the loss in its standard deviation in one coordinate
_REACH: Final = 16.0  # standard deviations of the loss of a round that the grid covers
_NUMERIC: Final = 2e-15  # what the convolution, of 64-bit mantissas, may be wrong by
_RARE: Final = 1e-17  # the chance of losses in a round that count as infinite
_FINER: Final = 2e-4  # of the variance: in what steps it is raised until the coins are enough
_TRIES: Final = 200
_MOST_WEIGHTS: Final = 20

Long = NDArray[np.longdouble]


class Coins(NamedTuple):
    """The coins of a coordinate: how many there are of the weights 1, 2, 4, ..."""

    counts: tuple[int, ...]

    @property
    def variance(self) -> float:
        """Return the variance of their sum, in votes."""
        return sum(count << 2 * place for place, count in enumerate(self.counts)) / 4

    @property
    def mean(self) -> int:
        """Return the mean of their sum; the number of coins of weight 1 is even, so that it is whole."""
        return sum(count << place for place, count in enumerate(self.counts)) // 2

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return the weight of every coin, the lightest first."""
        return np.repeat(np.int64(1) << np.arange(len(self.counts)), self.counts)

    @property
    def number(self) -> int:
        """Count the coins of a coordinate."""
        return sum(self.counts)


def coins_of(variance: float) -> Coins:
    """Return the fewest kinds of coins with this variance or hardly more.

    >>> coins_of(1_135_956).counts
    (14, 13, 13, 13, 13, 13, 13, 13, 13, 13)
    """
    quarters = math.ceil(4 * variance)
    kinds = 1
    while kinds < _MOST_WEIGHTS and FEWEST * _all(kinds + 1) <= quarters:
        kinds += 1
    each, left = divmod(quarters, _all(kinds))
    counts = [each] * kinds
    for place in reversed(range(kinds)):
        more, left = divmod(left, 4**place)
        counts[place] += more
    counts[0] += counts[0] % 2
    return Coins(tuple(counts))


@lru_cache(maxsize=64)
def solve_coins(noise_multiplier: float, length: int, slack: float) -> Coins:
    """Return the fewest coins for a round of `length` coordinates that are worth a noise multiplier.

    Guarantee: the release of a round is within `slack` of one that is as private as a Gaussian of `noise_multiplier`
    sensitivities (see above); raises where no number of coins shows that.
    """
    if slack < 2 * _NUMERIC:
        raise PrivacyError(
            f'noise = "joint" cannot be shown to be within {slack:.2g} of a Gaussian, as delta and epsilon ask; raise '
            'delta, lower epsilon, or set [aggregation] noise = "each"'
        )
    least = noise_multiplier**2 * length
    least *= Losses.of(coins_of(least)).information
    for more in range(_TRIES):
        coins = coins_of(least * (1 + _FINER) ** more)
        if Losses.of(coins).dominated(noise_multiplier, length, slack - _NUMERIC):
            return coins
    raise PrivacyError(
        f"no number of coins is worth a noise multiplier of {noise_multiplier:.4g} on {length} votes; send more "
        'values, or set [aggregation] noise = "each"'
    )


def coin_sums(counts: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the probabilities of every sum of coins, from 0 on: each is right to 13 digits, however small."""
    sums = np.ones(1)
    for place, count in enumerate(counts):
        for _ in range(count):
            longer = np.zeros(len(sums) + (1 << place))
            longer[: len(sums)] = sums
            longer[1 << place :] += sums
            sums = longer / 2
    return sums


class Losses(NamedTuple):
    """The privacy loss of one coordinate on a grid: `mass[i]` of loss (first + i) step, and of an infinite one."""

    step: float
    first: int
    mass: NDArray[np.float64]
    infinite: float

    @classmethod
    def of(cls, coins: Coins) -> Losses:
        """Return the loss of a shift by one vote, of outcomes as they are where the vote was cast."""
        sums = coin_sums(coins.counts)
        here, there = sums[:-1], sums[1:]  # of all sums but the last with the vote, and without it
        loss = np.log(here / there)
        step = 1 / math.sqrt(coins.variance) / _FINE
        low = np.floor(loss / step)
        below, above = np.exp(-low * step), np.exp(-(low + 1) * step)
        upper = np.clip((here * below - there) / (below - above), 0, here)  # keeps both worlds' probabilities
        first = int(low.min())
        mass = np.zeros(int(low.max()) - first + 2)
        np.add.at(mass, (low - first).astype(np.int64), here - upper)
        np.add.at(mass, (low - first).astype(np.int64) + 1, upper)
        return cls(step, first, mass, float(sums[-1]))

    @property
    def information(self) -> float:
        """Return the mean loss over a Gaussian's of the same variance: how much more variance the coins need."""
        grid = (self.first + np.arange(len(self.mass))) * self.step
        return float(2 * (self.mass @ grid) / (self.step * _FINE) ** 2)

    def dominated(self, noise_multiplier: float, length: int, slack: float) -> bool:
        """Tell whether `length` coordinates are within `slack` of a Gaussian release of that noise."""
        offset, mass, lost = self._round(length)
        grid = (offset + np.arange(len(mass))) * self.step
        inside = grid >= 0
        grid, mass = grid[inside], mass[inside]
        later = np.cumsum((mass * np.exp(-grid))[::-1])[::-1]  # of the world without the vote
        delta = np.cumsum(mass[::-1])[::-1] - np.exp(grid) * later + lost
        # delta is a chord in e^epsilon between two points of the grid, and a Gaussian's curve runs below its chords.
        spread = 1 / noise_multiplier
        density = np.exp(-((grid + spread**2 / 2) ** 2) / (2 * spread**2)) / (spread * math.sqrt(2 * math.pi))
        chord = (np.exp(grid + self.step) - np.exp(grid)) ** 2 / 8 * density / np.exp(grid)
        chord[1:] = np.maximum(chord[1:], chord[:-1])
        return bool(np.all(np.asarray(delta, np.float64) + chord <= _gaussian_delta(grid, spread) + slack))

    def _round(self, length: int) -> tuple[int, Long, float]:
        """Return the place and mass of the loss of a round, and what is lost to infinity or beyond the grid."""
        spread = math.sqrt(length) * self.step * _FINE
        half = math.ceil((_REACH * spread + spread**2) / self.step)
        places = self.first + np.arange(len(self.mass))
        rare = np.cumsum(self.mass[::-1])[::-1] > _RARE / length  # rarer losses count as infinite
        cut = min(half, int(places[rare][-1]))
        far = places > cut
        infinite = self.infinite + float(self.mass[far].sum())
        mass = np.zeros(2 * cut + 1, np.longdouble)
        np.add.at(mass, np.clip(places[~far], -cut, None) + cut, self.mass[~far])  # a loss that is raised is no less
        size = 1 << (2 * (half + cut)).bit_length()
        rolled = np.zeros(size, np.longdouble)
        rolled[: cut + 1], rolled[-cut:] = mass[cut:], mass[:cut]
        from scipy.fft import irfft, rfft

        turned: Any = rfft(rolled)
        power, left = np.ones_like(turned), length
        while left:
            if left & 1:
                power = power * turned
            turned, left = turned * turned, left >> 1
        whole = np.asarray(irfft(power, size), np.longdouble)
        spanned = np.concatenate([whole[-half:], whole[: half + 1]])
        grid = (np.arange(2 * cut + 1) - cut) * self.step
        wrapped = _tail(mass, grid, length, half * self.step)
        return -half, np.maximum(spanned, 0), length * infinite + wrapped


def _tail(mass: Long, grid: NDArray[Any], length: int, reach: float) -> float:
    """Bound the probability that `length` losses add up to more than `reach` either way (Chernoff)."""
    kept = mass > 0
    mass, grid = mass[kept], grid[kept]
    variance = float(mass @ grid**2)
    rate = reach / (length * variance)
    found = 0.0
    for sign in (1, -1):
        moment = float(np.log(mass @ np.exp(np.asarray(sign * rate * grid, np.longdouble))))
        found += math.exp(min(0.0, length * moment - rate * reach))
    return found


def _gaussian_delta(epsilon: NDArray[Any], spread: float) -> NDArray[np.float64]:
    from scipy.special import log_ndtr, ndtr

    values = np.asarray(epsilon, np.float64)
    below = np.exp(values + log_ndtr(-spread / 2 - values / spread))
    return np.asarray(ndtr(spread / 2 - values / spread) - below)


def _all(kinds: int) -> int:
    """Return the variance, in quarters, of one coin of each of the first weights."""
    return ((1 << 2 * kinds) - 1) // 3
