"""Tabulate discrete Gaussians in integer arithmetic, to 128 bits.

The discrete Gaussian DG(c, v) gives the integer j the weight exp(-(j - c)^2 / 2v). For the centres c = i / 2^k every
weight is exp(-m^2 h) with m an integer and h = 1 / (2 v 4^k), so one pass over m serves all 2^k fractions of a grid
step.

Sums of such tables are what the lattice-Gaussian lemmas speak of (Peikert 2010; Micciancio and Walter 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, isqrt, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError

WORK_BITS: Final = 320  # of the fixed-point weights; each of at most 2^24 steps loses one unit in the last place
THRESHOLD_BITS: Final = 128
REACH: Final = Fraction(27, 2)  # in standard deviations; what lies beyond weighs less than 2^-128
MAX_ENTRIES: Final = 1 << 22

_ONE: Final = 1 << WORK_BITS


@dataclass(frozen=True, eq=False)
class Tables:
    """The cumulative thresholds of several centres, ready for the sampler.

    Row f answers for centre f. Outcome `first + j` has the numbers from threshold j - 1 up to threshold j, of 2^128.
    `guide` maps the highest bits of a number to the first outcome it can have.

    Guarantee: each row is within 2^-119 of its discrete Gaussian in total variation (rounding of the thresholds, and
    tails).
    """

    high: NDArray[np.uint64]  # rows x outcomes
    low: NDArray[np.uint64]
    guide: NDArray[np.uint16]  # rows x 2^guide_bits
    first: int
    guide_bits: int

    @property
    def rows(self) -> int:
        """Count the centres."""
        return int(self.high.shape[0])

    def probabilities(self, row: int) -> list[Fraction]:
        """Return the exact probability of each outcome, `first` upwards."""
        tops = [(int(h) << 64) | int(low) for h, low in zip(self.high[row], self.low[row], strict=True)]
        tops[-1] = 1 << THRESHOLD_BITS
        return [Fraction(top - below, 1 << THRESHOLD_BITS) for below, top in zip([0, *tops], tops, strict=False)]


@lru_cache(maxsize=32)
def fraction_tables(variance: Fraction, precision: int) -> Tables:
    """Return the tables of DG(i / 2^precision, variance) for i = 0 .. 2^precision - 1."""
    rows = 1 << precision
    reach = _reach(variance) + 1
    weights = gaussian_weights(Fraction(1) / (2 * variance * rows * rows), rows * (reach + 1) + 1)
    # Outcome j = -reach .. reach of centre i / rows lies |j * rows - i| steps away.
    columns = range(-reach, reach + 1)
    return _tables([[weights[abs(j * rows - i)] for j in columns] for i in range(rows)], -reach)


@lru_cache(maxsize=32)
def centred_tables(variance: Fraction, centres: tuple[Fraction, ...]) -> Tables:
    """Return the tables of DG(c, variance) for any rational centres in [-1, 1]."""
    if any(abs(centre) > 1 for centre in centres):
        raise InputError(f"centres must lie in [-1, 1], got {[float(c) for c in centres]}")
    reach = _reach(variance) + 1
    rate = Fraction(1) / (2 * variance)
    rows = []
    for centre in centres:
        # exp(-(j - c)^2 h) = exp(-j^2 h) exp(2jch) exp(-c^2 h); the last factor cancels in the normalisation.
        tilt = _exponential(-2 * abs(centre) * rate)
        plain = gaussian_weights(rate, reach + 1)
        falling = list(accumulate([_ONE, *[tilt] * reach], lambda a, b: a * b >> WORK_BITS))
        rising = [_ONE * _ONE // part for part in falling]
        sign = 1 if centre >= 0 else -1
        rows.append(
            [
                plain[abs(j)] * (rising[abs(j)] if sign * j >= 0 else falling[abs(j)]) >> WORK_BITS
                for j in range(-reach, reach + 1)
            ]
        )
    return _tables(rows, -reach)


def can_tabulate(variance: float, rows: int) -> bool:
    """Tell whether `rows` centres of this variance fit into tables."""
    return rows * (2 * (float(REACH) * sqrt(variance) + 2) + 1) <= MAX_ENTRIES


def gaussian_weights(rate: Fraction, count: int) -> list[int]:
    """Return exp(-m^2 * rate) for m = 0 .. count - 1, in units of 2^-WORK_BITS."""
    step = _exponential(-2 * rate)
    factor = _exponential(-rate)
    weight = _ONE
    weights = [weight]
    for _ in range(count - 1):
        weight = weight * factor >> WORK_BITS
        factor = factor * step >> WORK_BITS
        weights.append(weight)
    return weights


def _reach(variance: Fraction) -> int:
    if variance <= 0:
        raise InputError(f"variance must be above 0, got {float(variance):g}")
    return isqrt(ceil(variance * REACH * REACH)) + 1


def _exponential(exponent: Fraction) -> int:
    """Return exp(exponent) in units of 2^-WORK_BITS, for -64 < exponent <= 0, by halving and a Taylor series."""
    guard = 64
    one = 1 << (WORK_BITS + guard)
    halvings = 8
    x = exponent.numerator * one // (exponent.denominator << halvings)
    total = term = one
    index = 0
    while term:
        index += 1
        # Truncated towards zero: floor would keep the last unit of a negative term for ever.
        term = abs(term * x) // (index * one) * (-1 if (term < 0) != (x < 0) else 1)
        total += term
    for _ in range(halvings):
        total = total * total >> (WORK_BITS + guard)
    return total >> guard


def _tables(rows: list[list[int]], first: int) -> Tables:
    outcomes = len(rows[0])
    if len(rows) * outcomes > MAX_ENTRIES:
        raise InputError(f"{len(rows)} tables of {outcomes} outcomes are too many; use a coarser grid")
    full = 1 << THRESHOLD_BITS
    parts: list[bytes] = []
    for row in rows:
        sums = list(accumulate(row))
        scale = (full << WORK_BITS) // sums[-1]
        parts.extend((part * scale >> WORK_BITS).to_bytes(17, "little")[:16] for part in sums[:-1])
        parts.append((full - 1).to_bytes(16, "little"))
    words = np.frombuffer(b"".join(parts), "<u8").reshape(len(rows), outcomes, 2)
    high = np.ascontiguousarray(words[:, :, 1])
    # Sums that round to 2^128 lost their highest bit above: the outcomes after them have no numbers.
    lost = np.zeros(high.shape, bool)
    lost[:, outcomes // 2 :] = high[:, outcomes // 2 :] == 0
    high[lost] = np.uint64(2**64 - 1)
    low = np.ascontiguousarray(words[:, :, 0])
    low[lost] = np.uint64(2**64 - 1)
    guide_bits = min(14, max(8, (outcomes - 1).bit_length() + 1))
    marks = np.arange(1 << guide_bits, dtype=np.uint64) << np.uint64(64 - guide_bits)
    guide = np.stack([np.searchsorted(row, marks, side="left") for row in high]).astype(np.uint16)
    return Tables(high, low, guide, first, guide_bits)
