"""The noise of a private round as the server ends it: drawn, told its terms, sent over the wire, summed and decoded.

Each check is two-sided at FALSE_ALARM, so a correct build fails one of the eleven checks here in one of 90,000 seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2
from tests.federation.driven import GoneError, drive, sending

from sottovoce.checks.twin import TwinAccount
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.coding import Private
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Request
from sottovoce.federation.round import Server, server_round
from sottovoce.federation.stages.vote import VOTE, Vote
from sottovoce.models import LocalTraining
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.vote import vote_plan
from sottovoce.schemes import Scheme, make
from sottovoce.schemes.packed_signs import expand

FALSE_ALARM = 1e-6
DIM = 20_000
CLIENTS = 60
KEPT = 1000
# A low floor: a client that miscounts its cohort must not refuse it for its size.
KEYS = {"clients": CLIENTS, "sample_rate": 0.25, "delta": 1e-2, "accountant": "rdp", "cohort_floor": 2}

Build = Callable[[], tuple[Scheme, PrivacyPlan]]


def update(client: int) -> NDArray[np.float32]:
    """Return what a client would send: norms from 0.4 to 0.7, so that some are clipped."""
    raw = Streams(3).get(Purpose.SETUP, client).standard_normal(DIM)
    return (raw / np.linalg.norm(raw) * (0.4 + 0.005 * client)).astype(np.float32)


def clipped(message: NDArray[np.float32], clip_norm: float) -> NDArray[np.float64]:
    return message * min(1.0, clip_norm / float(np.linalg.norm(message.astype(float))))


def errors(
    scheme: Scheme, plan: PrivacyPlan, *, round_: int = 1, leavers: int = 0, miscounted: float = 1.0
) -> NDArray[np.float64]:
    """Play a round and return the released sum less the true one."""
    seeds = Seeds(11)
    coding = Private(plan, seeds)
    server = Server(
        scheme,
        Cohort(CLIENTS, Fraction(1, 4)),
        Direct(coding, plan.shares.survivors),
        seeds.server,
        plan=plan,
        account=TwinAccount(),
    )
    state = server.init(np.zeros(DIM, np.float32))
    cohort, _ = server.draw(state, round_)
    seed = scheme.round_seed(round_)
    messages = {client: scheme.encode(update(client), seed, np.random.default_rng(client)) for client in cohort}
    clients = sending(coding, messages.__getitem__, miscounted=miscounted)

    def answer(request: Request, client: int) -> bytes:
        if client in cohort[:leavers]:
            raise GoneError
        return clients(request, client)

    result = drive(server_round(server, state, round_), answer)
    there = [messages[client] for client in cohort[leavers:]]
    if scheme.form == "signs":
        truth = np.sum([expand(message, DIM) for message in there], axis=0, dtype=float)
    else:
        truth = np.sum([clipped(message, plan.request.clip_norm) for message in there], axis=0)
    assert result.total.values is not None
    if scheme.name == "fl-std":  # what reaches the model, to the last step
        assert np.allclose(result.state["params"] * 15, result.total.values, atol=1e-5)
    return result.total.values - truth


def variance_fits(error: NDArray[np.float64], stddev: float) -> bool:
    """Compare the variance with a chi-square law."""
    statistic = float((error**2).sum() / stddev**2)
    return bool(2 * min(chi2.cdf(statistic, error.size), chi2.sf(statistic, error.size)) > FALSE_ALARM)


def standard(**keys: Any) -> tuple[Scheme, PrivacyPlan]:
    base = {**KEYS, "rounds": 5, "noise_multiplier": 1.5, "clip_norm": 0.5, "length": DIM}
    return make("fl-std").bind(DIM), PrivacyPlan.solve(**{**base, **keys})


def sign() -> tuple[Scheme, PrivacyPlan]:
    scheme = make("fl-sign").bind(DIM)
    return scheme, PrivacyPlan.solve(**KEYS, rounds=5, noise_multiplier=1.5, length=DIM, form="signs")


def top() -> tuple[Scheme, PrivacyPlan]:
    scheme = make("fl-top", ratio=KEPT / DIM).bind(DIM, start=np.zeros(DIM, np.float32))
    return scheme, PrivacyPlan.solve(**KEYS, rounds=5, noise_multiplier=1.5, clip_norm=0.05, length=KEPT)


def vote() -> tuple[Scheme, PrivacyPlan]:
    scheme = Vote(kept=KEPT, training=LocalTraining()).bind(DIM, start=np.zeros(DIM, np.float32))
    return scheme, vote_plan(kept=KEPT, noise_multiplier=1.5, length=DIM, **KEYS)[0]


@pytest.mark.parametrize(
    ("build", "leavers", "round_"),
    [
        (standard, 0, 1),
        (partial(standard, threshold=2 / 3), 0, 1),
        (partial(standard, threshold=2 / 3), 3, 1),
        (partial(standard, mechanism="gaussian"), 0, 1),
        (sign, 0, 1),
        (top, 0, 1),
        (vote, 0, VOTE),
    ],
    ids=["fl-std", "threshold", "dropouts", "continuous", "fl-sign", "fl-top", "vote"],
)
def test_the_aggregate_of_a_round_carries_the_planned_noise(build: Build, leavers: int, round_: int) -> None:
    scheme, plan = build()

    error = errors(scheme, plan, leavers=leavers, round_=round_)

    assert variance_fits(error, plan.stddev())
    assert not variance_fits(error, plan.stddev() * 2 / 3)
    assert not variance_fits(error, plan.stddev() * 3 / 2)
    assert plan.stddev() >= plan.noise_multiplier * plan.request.clip_norm


@pytest.mark.parametrize("build", [partial(standard, cohort_cap=CLIENTS), vote], ids=["fl-std", "vote"])
@pytest.mark.parametrize("scale", [2 / 3, 3 / 2])
def test_a_build_whose_clients_add_noise_of_another_scale_is_caught(build: Build, scale: float) -> None:
    """Let every client believe in a cohort of scale^-2 times its size, and so add `scale` times its share."""
    scheme, plan = build()

    error = errors(scheme, plan, round_=2, miscounted=scale**-2)

    assert not variance_fits(error, plan.stddev())
    assert np.sqrt((error**2).mean()) == pytest.approx(scale * plan.stddev(), rel=0.1)
