"""Noise by two aggregators: what a plan of secret ballots has in place of the clients' shares.

A ballot is a vector of d votes, +1 or -1, so one client moves the sum of votes by sqrt(d) at most, whatever bytes it
sends. Each of two aggregators adds a discrete Gaussian of variance

    V_a = z_a^2 d + s^2,   z_a = noise_multiplier / sqrt(2),   s = 2, the rounding width of `noise.lattice`.

Or both make the noise together (*joint*): of coins that are the sum of a bit of either aggregator (`noise.coins`), and
neither knows a coin.

Guarantee: outsiders face both noises, which less the rounding are `noise_multiplier` sensitivities or more, and do not
know who was sampled. An aggregator faces the other's noise, z_a sensitivities, and knows who took part:
`epsilon_server` is for either of them, by participations, without amplification; with joint noise it faces all of it.
Both together know every ballot: no epsilon at all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.noise.coins import Coins, solve_coins
from sottovoce.privacy.noise.grid import TAIL, NoiseGrid
from sottovoce.privacy.noise.lattice import ROUNDING, sum_slack
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.noise.sampler import draw
from sottovoce.privacy.noise.table import can_tabulate, centred_tables
from sottovoce.privacy.plan.cohort import Shares

WORD_BITS: Final = (16, 32)  # of the aggregators' shares: what their words may have


def solve_ballot_grid(*, noise_multiplier: float, shares: Shares, length: int, max_slack: float) -> NoiseGrid:
    """Return the grid of votes: step one, `variance` that of both aggregators together, `bits` those of a share.

    Guarantee: the sum of any cohort up to the cap fits a word with 12 standard deviations of both noises to spare.
    """
    radius = math.nextafter(math.sqrt(length), math.inf)  # so that `length` votes are not longer
    half = (noise_multiplier * radius) ** 2 / 2 + ROUNDING**2
    variance = 2 * half
    slack = length * float(sum_slack(2, half))
    if slack > max_slack:
        raise PrivacyError(
            f"the noise of {length} votes at noise multiplier {noise_multiplier:.4g} is too far from a Gaussian; raise "
            "the noise, or send more values"
        )
    if not can_tabulate(half, 1):
        raise PrivacyError(
            f"the noise of {length} votes at noise multiplier {noise_multiplier:.4g} is too wide for the exact "
            "sampler; raise epsilon, or send fewer values"
        )
    bits, wrap = _word(shares, length, variance)
    return NoiseGrid(bits, radius, variance, 0, wrap, slack)


def solve_joint_grid(*, noise_multiplier: float, shares: Shares, length: int, max_slack: float) -> NoiseGrid:
    """Return the grid of votes whose noise are coins that both aggregators toss together.

    Guarantee: that of `solve_ballot_grid`; a release is within `slack` of one as private as a Gaussian of
    `noise_multiplier` sensitivities (`noise.coins`).
    """
    slack = 2.0 ** math.floor(math.log2(max_slack))  # plans that differ by little have the same coins
    coins = solve_coins(noise_multiplier, length, slack)
    bits, wrap = _word(shares, length, coins.variance)
    return NoiseGrid(bits, math.sqrt(length), coins.variance, 0, wrap, slack, coins.counts)


def _word(shares: Shares, length: int, variance: float) -> tuple[int, float]:
    """Return the bits of a share, and how likely any sum wraps; coins are below a Gaussian's tail (Hoeffding)."""
    needed = shares.cap + TAIL * math.sqrt(variance)
    bits = next((bits for bits in WORD_BITS if 2.0 ** (bits - 1) > needed), None)
    if bits is None:
        raise PrivacyError(f"a cohort of {shares.cap} ballots does not fit a word; lower the cohort cap")
    margin = 2.0 ** (bits - 1) - 1 - shares.cap
    return bits, min(1.0, 2 * length * math.exp(-margin * margin / (2 * variance)))


def noise(grid: NoiseGrid | None, length: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return one aggregator's noise: discrete Gaussians of half the grid's variance, in votes."""
    if grid is None:
        raise PrivacyError("the continuous Gaussian does not count votes")
    tables = centred_tables(Fraction(grid.variance) / 2, (Fraction(0),))
    drawn = draw(tables, np.zeros(length, np.int32), randomness.bits())
    return drawn.view(np.int32).astype(np.int64)


def toss(grid: NoiseGrid | None, length: int, randomness: Randomness) -> NDArray[np.uint8]:
    """Return fair bits, packed as ballots are: a row for each coin of a coordinate, the lightest first."""
    rows, size = Coins(_joint(grid).coins).number, (length + 7) // 8
    words = randomness.bits().take(-(-rows * size // 8))
    bits = words.view(np.uint8)[: rows * size].reshape(rows, size)
    if length % 8:
        bits[:, -1] &= (1 << length % 8) - 1
    return bits


def coin_votes(grid: NoiseGrid | None, length: int, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the noise of tossed coins: what they weigh, less their mean."""
    coins = Coins(_joint(grid).coins)
    votes = np.full(length, -coins.mean, np.int64)
    for weight, row in zip(coins.weights, np.unpackbits(bits, axis=1, count=length, bitorder="little"), strict=True):
        votes += weight * row
    return votes


def _joint(grid: NoiseGrid | None) -> NoiseGrid:
    if grid is None or not grid.coins:
        raise PrivacyError("this plan has no coins: its noise is not made by two aggregators together")
    return grid
