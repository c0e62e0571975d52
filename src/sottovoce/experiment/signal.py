"""Predict how loud a private run's signal is beside its noise, from the plan alone.

In T rounds the noises add up to z sqrt(T) clip norms in each of d values, so to z sqrt(T d) in the vector. N clients
that contribute E[min(B, m)] times each, B ~ Binomial(T, q), add up to at most N E[min(B, m)] clip norms, if all of
them are clipped and all agree. Hence

    snr = a N E[min(B, m)] / (z sqrt(T d))

with the *agreement* a: the norm of the mean message in clip norms. It depends on data that nobody has seen, so it is
measured on runs (docs/planning.md): in `AGREEMENT` the low, usual and high value. What is learnt depends on more than
that: on the model, on the weights that a scheme leaves where they are, on the server's steps. So snr ranks plans of one
model and promises no accuracy.
"""

from __future__ import annotations

import math
from typing import Any, Final

from sottovoce.privacy import PrivacyPlan

__all__ = ["AGREEMENT", "loudest", "predicted_signal", "signal_to_noise"]

AGREEMENT: Final = (0.1, 0.3, 0.6)  # of the mean message, in clip norms: low, usual, high


def loudest(noise_per_draw: float, length: int) -> float:
    """Return the signal-to-noise ratio of a run in which everybody agrees; `noise_per_draw` is z sqrt(T) / (N E).

    >>> round(loudest(0.000866, 8_317), 1)
    12.7
    """
    return 1 / (noise_per_draw * math.sqrt(length))


def signal_to_noise(plan: PrivacyPlan) -> float:
    """Return the signal-to-noise ratio of a plan's run in which everybody agrees."""
    more = plan.update_noise_multiplier / plan.noise_multiplier  # adaptive clipping's count takes some of the budget
    return loudest(plan.noise_per_draw * more, plan.request.length)


def predicted_signal(plan: PrivacyPlan | None) -> dict[str, Any] | None:
    """Return the predicted ratio with its range, and the most that it could be; None where there is no noise."""
    if plan is None:
        return None
    most = signal_to_noise(plan)
    low, usual, high = (agreement * most for agreement in AGREEMENT)
    return {"low": low, "default": usual, "high": high, "most": most}
