"""Let the clients choose FL-TOP's coordinates by a private vote (thesis 5.4.3), which spends budget.

Each client marks its K largest coordinates with 1 and the others with 0: a vector of norm sqrt(K) exactly. The marks
are noised and summed on the private path like any message, in one round before round 1. The server keeps the K
highest sums. Choosing them from the noisy sum is post-processing and free; the vote itself is one more event of the
run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.plan import PrivacyPlan


def vote_plan(*, kept: int, noise_multiplier: float, **keys: Any) -> tuple[PrivacyPlan, tuple[Event, ...]]:
    """Return the plan of the vote and what it spends, to be given to the training plan as `spent`.

    Guarantee: the marks weigh sqrt(kept), so the vote is one Gaussian release at `noise_multiplier`; the training plan
    composes it with its rounds, and `epsilon_server` counts it as one more participation.
    """
    in_range("kept", kept, low=1, high=keys["length"])
    plan = PrivacyPlan.solve(
        **{**keys, "rounds": 1, "epsilon": None, "clipping": "fixed", "form": "floats"},
        noise_multiplier=noise_multiplier,
        clip_norm=math.sqrt(kept),
    )
    return plan, tuple(plan.events())


def marks(importance: Vector, kept: int) -> Vector:
    """Return 1 at the `kept` largest magnitudes, 0 elsewhere; of equal ones the first."""
    in_range("kept", kept, low=1, high=importance.size)
    marks = np.zeros(importance.size, np.float32)
    marks[np.argsort(-np.abs(importance), kind="stable")[:kept]] = 1
    return marks


def elected(total: Vector, kept: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the `kept` coordinates with the highest noisy sums, ascending."""
    in_range("kept", kept, low=1, high=total.size)
    return np.sort(np.argsort(-total, kind="stable")[:kept]).astype(np.int64)
