"""Compute the papers' own cost formula, to compare with their tables; real bytes are counted elsewhere."""

from __future__ import annotations

import math

from sottovoce.federation.cohort import Cohort
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import Scheme

__all__ = ["paper_cost", "paper_sign_bits"]


def paper_cost(scheme: Scheme, cohort: Cohort, plan: PrivacyPlan | None, rounds: int) -> tuple[float, float]:
    """Return ratio * n * bits * rounds * C in bytes per client, (up, down).

    A float has 32 bits and a sign 1; a sign with noise, FL-SIGN-DP's, has as many as its noise asks for. The tables
    print it for the best round.
    """
    up, down = scheme.paper_values
    if plan is not None and scheme.form == "signs":
        up = scheme.length * paper_sign_bits(scheme.length, plan.noise_multiplier, cohort.expected) / 32
    factor = 4 * rounds * float(cohort.sample_rate)
    return up * factor, down * factor


def paper_sign_bits(length: int, noise_multiplier: float, cohort: float) -> int:
    """Return ceil(log2((12 sqrt(n) sigma + 1) |K|)), thesis 5.2.4: 22 bits at epsilon 1 in the papers, 21 at 2 and 4.

    The formula lacks a bit for the sign of the sum (docs/privacy.md, erratum 6) and is for comparison only.

    >>> paper_sign_bits(1_663_370, 1.54, 100)
    22
    """
    return max(1, math.ceil(math.log2((12 * math.sqrt(length) * noise_multiplier + 1) * cohort)))
