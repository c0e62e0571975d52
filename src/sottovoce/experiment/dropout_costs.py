"""What it costs that clients may leave: noise that the server could know, rounds that are lost, bytes for nothing."""

from __future__ import annotations

import math
from typing import Any

from sottovoce.devices import profile
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.loads import judged_devices
from sottovoce.experiment.ready import Ready
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.solver import against

__all__ = ["dropout_cost", "leaving_chance"]


def leaving_chance(experiment: Experiment) -> float:
    """Return the chance that a client leaves before its uplink: the file's, or that of the devices it names."""
    before = ("advertise", "share", "mask")
    staying = math.prod(1 - experiment.make_dropout().chances.get(phase, 0.0) for phase in before)
    if staying < 1:
        return 1 - staying
    return max(profile(name).availability.dropout for name in judged_devices(experiment))


def dropout_cost(ready: Ready, chance: float) -> dict[str, Any]:
    """Return what leaving costs if each client of a cohort leaves before its uplink with this chance.

    lost_rounds is the share of rounds in which fewer are left than a sum may be opened with; the noise is what the
    server may know because so many may leave: it would be as private with `noise_factor` times less if none could.
    """
    from scipy.special import bdtr  # scipy.stats takes a second to import

    cohort = max(1, round(ready.protection.parts.cohort.expected))
    needed = ready.protection.fewest(ready.plan)(cohort)
    told: dict[str, Any] = {
        "chance": chance,
        "cohort": cohort,
        "needed": needed,
        "may_leave": cohort - needed,
        "lost_rounds": float(bdtr(needed - 1, cohort, 1 - chance)) if needed else 0.0,
        "wasted_downlinks": chance,
        "epsilon_server_if_nobody_left": None,
        "noise_factor": None,
    }
    plan = ready.plan
    if plan is not None and plan.shares.server_part > 0:
        told["epsilon_server_if_nobody_left"] = _if_nobody_left(plan)
        told["noise_factor"] = 1.0 if plan.shares.by_aggregators else plan.shares.server_part**-0.5
    return told


def _if_nobody_left(plan: PrivacyPlan) -> float | None:
    if plan.shares.by_aggregators:
        return plan.epsilon_server
    part = min((size - plan.shares.colluders) / size for size in (plan.shares.floor, plan.shares.cap))
    value = against(plan.request, plan.events(), most=plan.max_participations, part=part)
    return value if value < float("inf") else None
