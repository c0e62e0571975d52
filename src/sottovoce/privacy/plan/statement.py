"""Say what a privacy plan promises, field by field, for `sottovoce plan` and `summary.json`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sottovoce.privacy.adjacency import ADJACENCY
from sottovoce.privacy.plan.ballots import describe_ballots

if TYPE_CHECKING:
    from sottovoce.privacy.plan.plan import PrivacyPlan

__all__ = ["describe"]


def describe(plan: PrivacyPlan) -> dict[str, Any]:
    """Return the plan's promises and settings; an epsilon is null where there is no bound."""
    request, own = plan.request, plan.events()[-1]
    told = {
        "mechanism": request.mechanism,
        "note": "deployment" if request.deployment else "simulated: not private",
        "accountant": request.accountant,
        "sampling": request.sampling,
        "sample_rate": request.sample_rate,
        "rounds": plan.rounds,
        "rounds_asked": request.rounds,
        "delta": request.delta,
        "noise_multiplier": plan.noise_multiplier,
        "adjacency": ADJACENCY.sentence,
        "epsilon": _finite(plan.epsilon),
        "epsilon_reason": plan.epsilon_reason,
        "epsilon_against": "anyone who does not know who was sampled and holds no client; trusts the server",
        "epsilon_if_all_answer": plan.epsilon_if_all_answer,
        "answer_rate": request.answer_rate,
        "epsilon_server": _finite(plan.epsilon_server),
        "epsilon_server_if_a_third_colludes": _finite(plan.epsilon_if_a_third_colludes),
        "epsilon_member": _finite(plan.epsilon_member),
        "threshold": request.threshold,
        "colluders": request.colluders,
        "epsilon_target": request.epsilon,
        "epsilon_server_target": request.epsilon_server,
        "noise_for_epsilon": plan.targets.noise_for_epsilon,
        "noise_for_epsilon_server": plan.targets.noise_for_server,
        "noise_decided_by": plan.targets.binding,
        "max_participations": plan.max_participations,
        "max_participations_is": plan.targets.cap,
        "draws_lost": plan.draws_lost,
        "noise_per_draw": plan.noise_per_draw,
        "cohort_floor": plan.shares.floor,
        "cohort_floor_note": plan.floor_note,
        "delta_for_floor": own.floor_slack,
        "delta_for_quorum": _finite(own.quorum_slack),
        "cohort_cap": plan.shares.cap,
        "clipping": request.clipping,
        "clip_norm": request.clip_norm,
        "noise_stddev": plan.stddev(),
        "bits_per_coordinate": plan.bits,
        "wrap_probability": plan.wrap_probability,
        "unsafe": list(request.unsafe),
    }
    return told if request.noise_by == "clients" else told | describe_ballots(plan)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
