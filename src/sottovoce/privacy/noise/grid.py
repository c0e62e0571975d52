"""Choose the grid and the modulus: as few bits as cannot wrap, and noise wide enough for the Gaussian accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sottovoce.core.errors import PrivacyError
from sottovoce.core.validate import in_range
from sottovoce.privacy.noise.lattice import ROUNDING, sum_slack
from sottovoce.privacy.noise.table import can_tabulate
from sottovoce.privacy.plan.cohort import Shares

Form = Literal["floats", "signs"]

FINEST: Final = 40.0  # grid steps in the noise's standard deviation at most: g = z S / 40 ...
FINEST_SHARE: Final = 4.0  # ... or, in cohorts above 100 clients, so many in the standard deviation of one share
COARSEST: Final = 20.0  # at least: there rounding of width 2 costs one per cent of the variance
TAIL: Final = 12.0  # standard deviations of noise that the modulus leaves room for
MAX_BITS: Final = 30
PRECISIONS: Final = range(4, 9)  # binary digits of a centre
UNIT_PRECISIONS: Final = range(4, 19)  # of the centre of one unit, whose site adds many of them
BIAS_SHARE: Final = 1 / 4  # of the noise: what the roundings of all units together may add to a coordinate
SIGN_STEPS: Final = 64  # of the precision in the centre of a unit's sign: its rounding costs at most a 64th
ROUNDING_SHARE: Final = 1 / 12  # of the clip norm: how long the vector of all rounding errors of the centres may be


@dataclass(frozen=True)
class NoiseGrid:
    """The integers of the private path; lengths are in grid steps.

    A message of norm `clip_norm` is `radius` steps long; a full cohort's noise has `variance`; centres have `precision`
    binary digits (floats), or are +-`radius` / sqrt(length) as they are (signs); words have `bits` bits. `slack` is
    the total variation distance of one release from the rounded Gaussian that `lattice` describes, or what `coins`
    have in its place.
    """

    bits: int
    radius: float
    variance: float
    precision: int
    wrap_probability: float
    slack: float
    coins: tuple[int, ...] = ()  # of the weights 1, 2, 4, ...: where two aggregators make the noise together


def solve_grid(
    *,
    noise_multiplier: float,
    shares: Shares,
    length: int,
    form: Form = "floats",
    max_slack: float = 1e-20,
    step_one: bool = False,
    bits: int | None = None,
    units: int | None = None,
) -> NoiseGrid:
    """Return the grid with the fewest bits, and of those the finest; `step_one` is the papers' grid for signs.

    With `units` a message is the sum of a site's units, at most so many of all sites together; each is rounded to a
    centre so fine that the roundings of all of them, even if all go the same way, are below the noise.

    Guarantee: the sum of any cohort up to the cap fits the modulus with 12 standard deviations to spare, centres
    counted at their largest; the noise of a whole cohort, less the rounding width, is `noise_multiplier` clip norms;
    the sum, whichever of its shares an adversary knows, is within `max_slack` of what the Gaussian accountant prices,
    all coordinates together.
    """
    in_range("length", length, low=1)
    if bits is not None:
        in_range("bits", bits, low=2, high=MAX_BITS)
    reason = "it would wrap; lower the cohort cap"
    for width in [bits] if bits is not None else range(2, MAX_BITS + 1):
        room = 2.0 ** (width - 1) - 1
        finest = _finest(noise_multiplier, shares, length, form, room, step_one, units)
        if finest is None:
            continue
        grid = _grid(noise_multiplier, finest, shares, length, form, width, units)
        if grid.slack > max_slack:
            reason = (
                "the noise of that grid is too far from a Gaussian at so large an epsilon; lower it, or raise the noise"
            )
        elif grid.precision > _precisions(units)[-1]:
            reason = "messages would round to nothing; lower the noise, or send fewer values"
        elif not can_tabulate(grid.variance / shares.floor, 1 << min(grid.precision, PRECISIONS[-1])):
            reason = "the noise is too wide for the exact sampler; raise epsilon or cohort_floor"
        else:
            return grid
    if bits is not None:
        raise PrivacyError(
            f"bits must be enough for a cohort of {shares.cap} at noise multiplier {noise_multiplier:.4g} not to wrap, "
            f"got {bits}; leave bits out and they are solved for"
        )
    raise PrivacyError(
        f"no grid of up to {MAX_BITS} bits serves the sum of {units or shares.cap} messages of {length} values at "
        f"noise multiplier {noise_multiplier:.4g}: {reason}"
    )


def _finest(
    z: float, shares: Shares, length: int, form: Form, room: float, step_one: bool, units: int | None
) -> float | None:
    """Return the largest radius whose sums fit `room` on either side of zero."""
    most = shares.cap if units is None else units

    def needs(radius: float) -> float:
        largest = radius / math.sqrt(length) if form == "signs" else radius
        return most * largest + TAIL * math.sqrt(_variance(z, radius))

    if step_one:
        radius = math.nextafter(math.sqrt(length), math.inf)  # so that `length` ones are not longer
        return radius if needs(radius) <= room else None
    low, high = COARSEST / z, max(FINEST, FINEST_SHARE * math.sqrt(shares.cap)) / z
    # Few clients with much noise in many coordinates: centres would round to nothing, so the grid must be finer.
    least = _rounding_error(length, _precisions(units)[-1]) / ROUNDING_SHARE if form == "floats" else 0.0
    low, high = max(low, least), max(high, least)
    if needs(low) > room:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if needs(middle) <= room else (low, middle)
    return low


def _grid(z: float, radius: float, shares: Shares, length: int, form: Form, bits: int, units: int | None) -> NoiseGrid:
    variance = _variance(z, radius)
    largest = radius / math.sqrt(length) if form == "signs" else radius
    margin = 2.0 ** (bits - 1) - 1 - (shares.cap if units is None else units) * largest
    wrap = min(1.0, 2 * length * math.exp(-margin * margin / (2 * variance)))
    worst = max(float(np.max(sum_slack(known, variance / shares.sizes))) for known in shares.unknown_shares())
    precision = _precision(radius, variance, length, form, units)
    return NoiseGrid(bits, radius, variance, precision, wrap, length * worst)


def _precisions(units: int | None) -> range:
    return PRECISIONS if units is None else UNIT_PRECISIONS


def _precision(radius: float, variance: float, length: int, form: Form, units: int | None) -> int:
    """Return the fewest binary digits of a centre; one more than there may be, if these are not enough."""
    if form == "signs" and units is None:
        return 0

    def enough(precision: int) -> bool:
        if form == "signs":
            return radius / math.sqrt(length) * 2.0**precision >= SIGN_STEPS
        if _rounding_error(length, precision) > radius * ROUNDING_SHARE * (1 + 1e-9):
            return False
        return units is None or units / 2.0 ** (precision + 1) <= BIAS_SHARE * math.sqrt(variance)

    allowed = _precisions(units)
    return next((digits for digits in allowed if enough(digits)), allowed[-1] + 1)


def _variance(z: float, radius: float) -> float:
    """Return V, the noise variance of a whole cohort: (z radius)^2, and s^2 for the rounding."""
    return (z * radius) ** 2 + ROUNDING**2


def _rounding_error(length: int, precision: int) -> float:
    """Return the usual norm of `length` rounding errors, each uniform over 2^-precision."""
    return math.sqrt(length / 12) / 2.0**precision
