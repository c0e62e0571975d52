"""Say what a privacy plan promises, field by field, for `sottovoce plan` and `summary.json`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.privacy.plan.plan import PrivacyPlan


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
        "adjacency": request.adjacency.sentence,
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
        "too_few": plan.too_few,
        "unsafe": list(request.unsafe),
    }
    if request.of_sites:
        return told | _describe_sites(plan)
    return told if request.noise_by == "clients" else told | _describe_ballots(plan)


def _describe_sites(plan: PrivacyPlan) -> dict[str, Any]:
    """Return what a plan for records or persons promises in other words, or beside, that for clients."""
    request = plan.request
    who = f"one {request.unit}" if request.unit == "record" else "the rows of one person at one site"
    return {
        "unit": request.unit,
        "units": request.units,
        "unit_rate": request.unit_rate,
        "epsilon_site": _finite(plan.epsilon_member),
        "epsilon_against": f"anyone but the sites and the server, for {who}; the site itself holds the records",
        "epsilon_server_against": f"the server with {request.colluders} sites that tell or leave out their noise",
        "epsilon_if_all_answer": plan.epsilon,
        "noise_by": "each site by itself" if request.local_noise else "the sites in shares",
        "expected_batch": request.batch,
        "max_participations": None,
        "max_participations_is": "none: every round is charged whoever takes part",
    }


def _describe_ballots(plan: PrivacyPlan) -> dict[str, Any]:
    """Return what a plan of ballots promises in other words, or beside, that of the clients' noise."""
    joint = plan.shares.joint
    how = "tosses its coins fairly" if joint else "adds its noise"
    both = "trusts that one aggregator tosses fairly" if joint else "trusts that both aggregators add their noise"
    return {
        "noise_by": "two aggregators jointly" if joint else "two aggregators",
        "aggregator_noise_multiplier": plan.noise_multiplier * math.sqrt(plan.shares.server_part),
        "epsilon_against": f"anyone who does not know who was sampled; {both}",
        "epsilon_server_against": f"either aggregator, with any other clients, while the other one {how}",
        "epsilon_both_aggregators": None,
        "epsilon_both_aggregators_is": "infinite: leader and helper together open every ballot",
        "bits_per_coordinate": 1,
        "share_bits": plan.bits,
        "coins": list(plan.grid.coins) if joint and plan.grid is not None else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
