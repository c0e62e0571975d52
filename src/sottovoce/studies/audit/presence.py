"""Play the rounds in which one client decides, with it and without it, and check that the plan charges for them.

The other games keep a canary in its cohort and let it say nothing: their rounds are then alike but for a message. The
adjacency (`privacy.adjacency`) takes the whole client away. That matters where a cohort is at its floor, or where the
answers are one short of a quorum. These rounds are rare, so they are not waited for but played on purpose; how likely
they are is reckoned here by the formula of docs/privacy.md, and not by the code that charges.
"""

from __future__ import annotations

import math

from sottovoce.core.streams import Seeds
from sottovoce.privacy.adjacency import ADJACENCY
from sottovoce.studies.audit.federation import AuditFederation
from sottovoce.studies.audit.sites import answers_anyway
from sottovoce.threats.audit.finding import AuditFinding, checked

_ROUNDED = 0.99  # of a charge: what logarithms may lose


def presence(federation: AuditFederation, seed: int) -> list[AuditFinding]:
    """Test that whatever one client decides by being there is paid for, or no epsilon is promised."""
    plan = federation.plan
    if plan.request.of_sites:  # the site is there in both runs
        return [answers_anyway(federation, seed)]
    if math.isinf(plan.epsilon):
        return []
    own = plan.events()[-1]
    found = (
        [_floor(federation, own.floor_slack)] if plan.request.sampling == "poisson" and plan.shares.floor > 1 else []
    )
    return [*found, _quorum(federation, seed, own.quorum_slack)]


def _floor(federation: AuditFederation, charged: float) -> AuditFinding:
    from scipy.stats import binom

    request, floor = federation.plan.request, federation.plan.shares.floor
    cohort = range(floor)
    tipped = len(ADJACENCY.without(cohort, {0}, floor)) != floor - 1  # sent home for the lack of one client
    likely = (
        request.sample_rate
        * federation.plan.rounds
        * float(binom.pmf(floor - 1, request.clients - 1, request.sample_rate))
    )
    if request.sample_rate == 1:
        likely = 0.0 if floor < request.clients else 1.0
    return checked(
        "floor is charged",
        not tipped or charged >= _ROUNDED * _common(federation) * likely,
        f"one client decides whether a cohort of {floor} is asked, which has probability {likely:.2g} over all rounds, "
        f"and {charged:.2g} is charged",
    )


def _quorum(federation: AuditFederation, seed: int, charged: float) -> AuditFinding:
    """Let as many leave as leave one answer too few without client 0, and see whether its answer opens the sum."""
    from scipy.stats import binom

    plan = federation.plan
    size = min(plan.shares.cap, max(plan.shares.floor, round(plan.expected_cohort)))
    needed, rate = plan.shares.survivors(size), plan.request.answer_rate
    leavers = range(needed, size)
    present = federation.play(Seeds(seed), 1, list(range(size)), leavers=leavers)
    absent = federation.play(Seeds(seed), 1, list(range(size)), leavers=[0, *leavers])
    tipped = (present.total.reason is None) != (absent.total.reason is None)
    everybody = plan.request.sample_rate == 1 or plan.request.sampling == "fixed"
    chance = 1.0 if everybody else float(binom.pmf(size - 1, plan.request.clients - 1, plan.request.sample_rate))
    likely = 0.0
    if rate is not None and rate < 1:
        likely = plan.request.sample_rate * plan.rounds * chance * float(binom.pmf(needed - 1, size - 1, rate))
    return checked(
        "quorum is charged",
        not tipped or charged >= _ROUNDED * _common(federation) * likely,
        f"one client decides whether {size} clients have enough answers, which has probability {likely:.2g} at least "
        f"over all rounds at the answer rate {rate}, and {charged:.2g} is charged",
    )


def _common(federation: AuditFederation) -> float:
    """Return the share of the rounds in which nobody sits out: where many do, the law of the others is another one."""
    plan = federation.plan
    return 1.0 if plan.draws_lost < 1e-3 else 0.0
