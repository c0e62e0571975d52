"""What the thesis proves of FL-SIGN, computed for a run: it stands in the summary beside what the run found."""

from __future__ import annotations

import math

from sottovoce.core.errors import InputError
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.ready import Ready
from sottovoce.experiment.records import Record
from sottovoce.schemes.sign_bounds import convergence, slack

__all__ = ["thesis_bounds"]


def thesis_bounds(parts: Parts, ready: Ready, rounds: int) -> Record:
    """Return `thesis` for the summary of an FL-SIGN run, and nothing for other schemes; a bound that fails is null."""
    if ready.scheme.name != "fl-sign" or rounds < 1:
        return {}
    return {"thesis": {"theorem_3": _theorem_3(parts, ready, rounds), "theorem_6": _theorem_6(parts, ready, rounds)}}


def _theorem_3(parts: Parts, ready: Ready, rounds: int) -> Record | None:
    if ready.plan is None or ready.plan.grid is None:
        return None
    try:
        found = slack(math.sqrt(ready.plan.grid.variance), parts.cohort.expected)
    except InputError:  # so coarse that the lemma says nothing
        return None
    return {
        "epsilon_slack": found.epsilon(ready.plan.rounds),  # as epsilon, for all rounds that are planned,
        "log10_kappa": found.log10_kappa,
        "log10_nu": found.log10_nu,
    }


def _theorem_6(parts: Parts, ready: Ready, rounds: int) -> Record | None:
    threat, plan = parts.threat, ready.plan
    if threat is not None and (plan is not None or threat.table.attack != "random-update"):
        return None  # the thesis bounds random updates only, and only without noise
    found = convergence(
        rounds=rounds,
        cohort=parts.cohort.expected,
        server_lr=float(getattr(ready.scheme, "server_lr")),  # noqa: B009
        gap=1.0,
        fraction=0.0 if threat is None else float(threat.table.fraction),
        noise_multiplier=0.0 if plan is None else plan.noise_multiplier,
        length=ready.scheme.length,
    )
    return {
        "tau_factor_sampling": found.sampling,
        "tau_factor_privacy": found.privacy,
        "descent_per_unit_of_loss": found.descent,
    }
