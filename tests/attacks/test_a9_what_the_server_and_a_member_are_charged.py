"""Every measurement counts against the server, and a client of a cohort of fixed size is no outsider to a ballot."""

from __future__ import annotations

import math

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.checks.twin import few
from sottovoce.privacy import PrivacyPlan
from sottovoce.threats.audit.bounds import epsilon_of_mu

DELTA = 1e-2


def plan_with_measurements(every: int) -> PrivacyPlan:
    """Return a plan of six rounds whose model clients measure after every so many."""
    experiment = few(
        experiment={"rounds": 6, "evaluate_every": every, "evaluation": "federated"},
        client={"held_out": 0.2},
        privacy={"noise_multiplier": 2.0, "evaluation_noise_multiplier": 3.0, "delta": DELTA, "clip_norm": 0.5},
    )
    plan = protect(gather(experiment)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(("every", "measurements"), [(6, 1), (2, 3), (1, 6)])
def test_each_measurement_is_charged_against_the_server(every: int, measurements: int) -> None:
    plan = plan_with_measurements(every)

    # Releases of a Gaussian are one Gaussian: mu^2 is the sum of 1 / z^2, of which the server lacks a part of z^2.
    mu = math.sqrt((plan.max_participations / 2.0**2 + measurements / 3.0**2) / plan.shares.server_part)

    assert plan.max_participations == 6, "everybody is asked in every round"
    assert plan.epsilon_server == pytest.approx(epsilon_of_mu(mu, DELTA), rel=0.01)


def ballots(sampling: str) -> PrivacyPlan:
    return PrivacyPlan.solve(
        clients=600,
        sample_rate=1 / 6,
        rounds=20,
        delta=1e-5,
        threshold=2 / 3,
        clip_norm=1.0,
        length=100,
        noise_by="aggregators",
        noise_multiplier=2.0,
        sampling=sampling,
    )


def test_a_client_of_a_fixed_cohort_is_no_outsider_to_a_ballot() -> None:
    """It is drawn or not, and of the n places one fewer is left for the others: no amplification is claimed for it."""
    plan = ballots("fixed")

    mu = math.sqrt(plan.max_participations) / 2.0

    assert plan.epsilon_member >= epsilon_of_mu(mu, 1e-5) * 0.99
    assert plan.epsilon_member != plan.epsilon


def test_a_client_of_a_poisson_cohort_is_an_outsider_to_a_ballot() -> None:
    plan = ballots("poisson")

    assert plan.epsilon_member == plan.epsilon
