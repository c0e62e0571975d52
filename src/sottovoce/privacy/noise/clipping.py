"""Decide S, the most that one client's message may weigh; `unsafe_clip_norm` alone looks at private norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector

LEAST_CLIP_NORM: Final = 1e-20  # far from where a message, in grid steps, leaves the range of a float
MOST_CLIP_NORM: Final = 1e20


def norm(message: Vector) -> float:
    """Return the L2 norm; raise if any value is not finite, which is this client's failure and never summed."""
    length = math.sqrt(_squares(message))
    if not math.isfinite(length):
        raise RunError("the update has values that are not finite; it was not sent")
    return length


def clip(message: Vector, clip_norm: float) -> Vector:
    """Return `message` scaled down to norm `clip_norm` if it is longer; a zero message stays zero.

    Guarantee: the result's norm is at most `clip_norm` up to float32 rounding (the private path clips in exact
    integers).
    """
    in_range("clip_norm", clip_norm, low=0, open_low=True)
    length = norm(message)
    return message if length <= clip_norm else (message * (clip_norm / length)).astype(np.float32)


def public_clip_norm(norms: Sequence[float], *, quantile: float = 0.5) -> float:
    """Return a quantile of the norms of updates made from *public* data (the papers' median).

    Guarantee: none for the data the norms come from. Norms of private updates must not enter here.
    """
    values = np.asarray(norms, dtype=float)
    if values.size == 0 or not np.isfinite(values).all() or (values < 0).any():
        raise InputError("clipping from public data needs the finite norms of at least one public update")
    return _quantile(values, quantile, "public")


def unsafe_clip_norm(norms: Sequence[float], *, quantile: float = 0.5) -> float:
    """Return a quantile of the norms of the clients' own updates, as the papers do; updates not finite are left out.

    Guarantee: none. The result depends on the clients' data and no accountant is told; `Request` asks for
    `unsafe_clip_norm` before such a norm may be used.
    """
    values = np.asarray(norms, dtype=float)
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise RunError("no client that was measured had a finite update; lower client_lr")
    return _quantile(values, quantile, "clients'")


def _quantile(norms: NDArray[np.float64], quantile: float, whose: str) -> float:
    in_range("quantile", quantile, low=0, high=1)
    chosen = float(np.quantile(norms, quantile))
    if chosen <= 0:
        raise InputError(f"the {whose} updates have norm 0, so they give no clip_norm; set clip_norm by hand")
    return chosen


@dataclass(frozen=True)
class Adaptive:
    """A clip norm that follows a quantile of the norms by noisy counts (Andrew et al. 2021).

    Each client also says whether its norm was at most S, as +-1/2. The count's noise has standard deviation
    `count_stddev`; S then moves by exp(-lr (fraction - quantile)).
    """

    count_stddev: float
    quantile: float = 0.5
    lr: float = 0.2

    def __post_init__(self) -> None:
        in_range("count_stddev", self.count_stddev, low=0, open_low=True)
        in_range("quantile", self.quantile, low=0, high=1)
        in_range("clip_lr", self.lr, low=0, open_low=True)

    def update_noise_multiplier(self, noise_multiplier: float) -> float:
        """Return the noise that the update needs so that update and count together cost `noise_multiplier`.

        Guarantee: z_update = (z^-2 - (2 sigma_b)^-2)^(-1/2) (Andrew et al. 2021); the two are one Gaussian
        release of a vector of norm sqrt(S^2 + ...), not two.
        """
        left = noise_multiplier**-2 - (2 * self.count_stddev) ** -2
        if left <= 0:
            raise PrivacyError(
                f"count_stddev must be above half the noise multiplier, {noise_multiplier / 2:.4g}, "
                f"got {self.count_stddev:g}: the count alone would spend the round's budget"
            )
        return 1 / math.sqrt(left)

    def next_norm(self, clip_norm: float, centred_count: float, expected_cohort: float) -> float:
        """Return the next S from the noisy sum of +-1/2 over the expected cohort."""
        fraction = min(1.0, max(0.0, 0.5 + centred_count / expected_cohort))
        return min(MOST_CLIP_NORM, max(LEAST_CLIP_NORM, clip_norm * math.exp(-self.lr * (fraction - self.quantile))))


def _squares(values: Vector) -> float:
    """Return the sum of squares by four sums, always the same four, so that no machine adds in another order."""
    values = np.ascontiguousarray(values, np.float32)
    if (library := native.library()) is not None:
        return float(library.squares(native.place(values), values.size))
    squares = np.square(values, dtype=np.float64)
    whole = values.size - values.size % 4
    with np.errstate(over="ignore", invalid="ignore"):
        # Accumulated, because `sum` adds in pairs.
        sums = np.add.accumulate(squares[:whole].reshape(-1, 4))[-1] if whole else np.zeros(4)
        first = sums[0]
        for square in squares[whole:]:
            first += square
        return float((first + sums[1]) + (sums[2] + sums[3]))
