"""Play the rounds that no game needs: every size of cohort, too few survivors, and the draws themselves."""

from __future__ import annotations

import numpy as np

from sottovoce.core.streams import Purpose, Seeds
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.canaries import Canaries, Canary
from sottovoce.studies.audit.stage import House
from sottovoce.studies.audit.units import Units
from sottovoce.threats.audit.finding import Finding, checked
from sottovoce.threats.audit.sample import NoiseSample
from sottovoce.threats.audit.sampling import cohort_sizes, rates

__all__ = ["released_noise", "sampler", "survivors"]

_VALUES = 30_000  # noise values of a cohort size, if the rounds for them are not too many
_DRAWN = 20_000_000  # coins of an audit of the sampler


def released_noise(house: House, name: str, *, rounds: int, seed: int, silent: bool = False) -> list[Finding]:
    """Test that a released sum carries the plan's noise whatever the size of the cohort is, also when nobody came.

    Noise that depends on the size would tell it, and with it who was sampled. `silent` clients send nothing, where
    what an honest one sends is not known beforehand.
    """
    plan, units = house.plan, Units(house.plan)
    floor, cap = plan.shares.floor, plan.shares.cap
    expected = min(cap, max(floor, round(plan.expected_cohort)))
    if house.knowledge.policy is not None:
        rounds = min(rounds, plan.rounds)  # clients refuse more
    chance = plan.request.sampling == "poisson" and plan.request.sample_rate < 1
    found: list[Finding] = []
    for size in sorted({0, floor, expected, cap}) if chance else [cap]:
        centre = 0.0 if silent else float(units.still()[0]) * size
        sample = NoiseSample(units.variance, centre=centre, discrete=units.discrete)
        seeds = Seeds(seed + size)
        cohort = list(range(size))
        canaries = Canaries(dict.fromkeys(cohort, Canary(0))) if silent else None
        for round_ in range(1, min(rounds, 1 + _VALUES // plan.request.length) + 1):
            sight = house.play(seeds, round_, cohort, canaries=canaries)
            if sight.total.values is None:
                found.append(checked(f"{name} of {size}", False, f"a cohort of {size} released nothing"))
                break
            sample.add(units.of_release(sight.total.values, plan.request.clip_norm))
        found += sample.findings(f"{name} of {size}", f"the noise of a released {name} of {size} clients")
    return found


def survivors(house: House, seed: int) -> Finding:
    """Check that one survivor too few releases nothing."""
    plan = house.plan
    size = min(plan.shares.cap, max(plan.shares.floor, round(plan.expected_cohort)))
    needed = plan.shares.survivors(size)
    sight = house.play(Seeds(seed), 1, list(range(size)), leavers=range(needed - 1, size))
    return checked(
        "too few survivors",
        sight.total.values is None,
        f"a sum of {needed - 1} of {size} clients was opened, and {needed} are needed",
    )


def sampler(plan: PrivacyPlan, seed: int) -> list[Finding]:
    """Test that cohorts are drawn as they are charged for, and that caps are kept."""
    request = plan.request
    rounds = int(np.clip(_DRAWN // request.clients, 200, 2000))
    rng = Seeds(seed).server.get(Purpose.COHORT)
    sizes, draws = np.zeros(rounds, np.int64), np.zeros(request.clients, np.int64)
    most, least = 0, plan.shares.cap
    for round_ in range(rounds):
        drawn = plan.draw_cohort(np.zeros(request.clients, np.int32), rng)
        sizes[round_] = drawn.draws.sum()
        draws += drawn.draws
        most = max(most, drawn.clients.size)
        least = min(least, drawn.clients.size or least)
    worn = plan.draw_cohort(np.full(request.clients, plan.max_participations, np.int32), rng)
    fixed = request.cohort_size if request.sampling == "fixed" else None
    return [
        cohort_sizes("cohort sizes", sizes, request.clients, request.sample_rate, fixed=fixed),
        rates("draws of a client", draws, rounds, request.sample_rate),
        checked(
            "cohort caps",
            plan.shares.floor <= least and most <= plan.shares.cap,
            f"a cohort of {most if most > plan.shares.cap else least} took part, and the plan is charged for "
            f"{plan.shares.floor} to {plan.shares.cap}",
        ),
        checked(
            "participation cap",
            worn.clients.size == 0,
            f"clients that were drawn {plan.max_participations} times, which is the cap, take part once more",
        ),
    ]
