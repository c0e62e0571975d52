"""The signal-to-noise ratio of a private run before it is played: how long the sum of all messages is beside the noise.

A run of T rounds adds up N E messages, E contributions of each of N clients, and in each of d values noise of z sqrt(T)
clip norms. If all messages had the clip norm and one direction, the ratio of both norms would be
1 / (noise_per_draw sqrt(d)) with noise_per_draw = z sqrt(T) / (N E). Clients agree less than that; how much less is
measured (docs/planning.md).
"""

from __future__ import annotations

import math
from typing import Any, Final

from sottovoce.core.validate import in_range
from sottovoce.privacy import PrivacyPlan

_C: Final = (20.0, 60.0, 140.0)  # how much noise adds to the error: least, usual, most
AGREEMENT: Final = (0.1, 0.3, 0.6)  # of the mean message, in clip norms: low, usual, high


def loudest(noise_per_draw: float, length: int) -> float:
    """Return the signal-to-noise ratio of a run in which everybody agrees; `noise_per_draw` is z sqrt(T) / (N E).

    >>> round(loudest(0.000866, 8_317), 1)
    12.7
    """
    return 1 / (noise_per_draw * math.sqrt(length))


def reach(ratio: float, moved: float) -> float:
    """Return how far the sum of a run points where the whole model should go: a cosine, by which plans are ranked.

    Noise turns the sum away by s / sqrt(1 + s^2), s being the signal-to-noise ratio. Of a direction that is spread over
    all weights, a message that moves a share of them holds the square root of that share.

    >>> reach(0.11, 1.0) > reach(2.4, 0.01)
    True
    """
    return math.sqrt(moved) * ratio / math.sqrt(1 + ratio**2) if math.isfinite(ratio) else math.sqrt(moved)


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
    told: dict[str, Any] = {"low": low, "default": usual, "high": high, "most": most}
    if plan.request.units is not None:
        told["units_needed"] = {str(wanted): units_for(plan, wanted) for wanted in (1, 10)}
    return told


def expected_accuracy(plan: PrivacyPlan | None, plain: float) -> dict[str, float] | None:
    """Return what accuracy to expect of a model on a front's features, from that of the same run without noise.

        error = plain error * (1 + c * noise_per_draw)

    with c = 60 usually, and 20 to 140 in what was measured (docs/planning.md). A guess, and no promise.

    >>> 1 - 0.114 * (1 + 60 * 4.57 / 6000) > 0.88
    True
    """
    in_range("--plain-accuracy", plain, low=0, high=1, open_low=True)
    if plan is None:
        return None
    least, usual, most = (max(0.0, 1 - (1 - plain) * (1 + c * plan.noise_per_draw)) for c in (_C[2], _C[1], _C[0]))
    return {"plain": plain, "low": least, "default": usual, "high": most}


def units_for(plan: PrivacyPlan, wanted: float) -> int:
    """Return how many records or persons the same epsilon needs for a usual signal-to-noise ratio of so much.

    The noise does not depend on their number, and the sum grows with it.
    """
    usual = AGREEMENT[1] * signal_to_noise(plan)
    return math.ceil(plan.request.protected * wanted / usual)
