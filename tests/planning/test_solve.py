"""A search for plans: what it finds keeps the limits, and it finds more under looser ones."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.planning import candidates
from sottovoce.planning.candidates import parse_constraints
from sottovoce.planning.estimate import Offer, sketch
from sottovoce.planning.plan import gather_shapes, plan
from sottovoce.planning.solve import _offers, apply, feasible, front, solve
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.solve import solve_request

PRIVATE = {"epsilon": 8.0, "delta": 0.01, "clip_norm": 1.0}
BASE: dict[str, Any] = {"data": {"clients": 60}, "privacy": PRIVATE}


@pytest.fixture(autouse=True)
def _few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search among few: the code is the same, and exact epsilons take time."""
    monkeypatch.setattr(candidates, "RATES", (Fraction(1), Fraction(1, 4)))
    monkeypatch.setattr(candidates, "ROUNDS", (4, 12))
    monkeypatch.setattr(candidates, "RATIOS", (0.1,))


def found(text: str, **tables: Any) -> set[tuple[Any, ...]]:
    """Return the names of all candidates that keep the limits."""
    experiment, constraints = small(**{**BASE, **tables}), parse_constraints(text)
    return {_name(offer) for offer in _kept(experiment, constraints)}


def _kept(experiment: Any, constraints: Any) -> list[Offer]:
    from dataclasses import replace

    parts, _ = gather_shapes(experiment)
    parts = replace(parts, experiment=candidates.limited(experiment, constraints))
    return feasible(_offers(parts, constraints)[0], constraints)


def _name(offer: Offer) -> tuple[Any, ...]:
    pace = offer.paced.pace
    return (offer.sender.bound.name, offer.sender.ratio, pace.sample_rate, pace.rounds)


def test_every_solution_keeps_every_limit_when_it_is_planned_alone() -> None:
    experiment = small(**BASE)
    real = small(**{**BASE, "aggregation": {"secure": "real"}})  # limits are of the sum that epsilon needs
    limits = parse_constraints("epsilon<=6, epsilon_server<=9, epsilon_member<=9, up<=4.8kB, joules<=40, hours<=1")
    solved = solve(experiment, limits)

    assert any("privacy.noise_multiplier" in solution.changes for solution in solved.solutions), (
        "more noise, fewer bits"
    )
    for solution in solved.solutions:
        told = plan(apply(real, solution.changes))
        assert told["limits"] == solution.plan["limits"]
        assert all(limit.holds(told["limits"]) for limit in limits)


@pytest.mark.parametrize(
    ("strict", "loose"),
    [
        ("epsilon<=2, up<=950B", "epsilon<=7, up<=950B"),  # less noise takes more bits: they must not be refused
        ("epsilon<=4, up<=400B", "epsilon<=4, up<=2kB"),
        ("epsilon<=4, joules<=9", "epsilon<=4, joules<=30"),
        ("epsilon<=4, hours<=0.0005", "epsilon<=4, hours<=1"),
        ("epsilon<=4, rounds<=4", "epsilon<=4, rounds<=12"),
        ("epsilon_server<=6, down<=3kB", "epsilon_server<=12, down<=3kB"),
        ("epsilon<=4, bytes<=20kB, joules<=20", "epsilon<=4, joules<=20"),
    ],
)
def test_relaxing_a_limit_never_removes_a_solution(strict: str, loose: str) -> None:
    few, many = found(strict), found(loose)

    assert few and few <= many


def test_the_file_s_own_pace_and_scheme_are_among_the_candidates() -> None:
    assert ("fl-std", None, Fraction(1, 2), 6) in found("epsilon<=8")


def test_the_front_keeps_what_no_other_of_its_scheme_beats() -> None:
    rng = np.random.default_rng(1)
    offers: list[Any] = [
        SimpleNamespace(merits=tuple(rng.integers(0, 4, 3)), sender=SimpleNamespace(bound=SimpleNamespace(name=name)))
        for name in ("fl-std", "fl-cs")
        for _ in range(30)
    ]

    def beaten(offer: Any) -> bool:
        rivals = [one.merits for one in offers if one.sender.bound.name == offer.sender.bound.name]
        return any(
            all(a >= b for a, b in zip(one, offer.merits, strict=True)) and one != offer.merits for one in rivals
        )

    best = front(offers)

    def names(chosen: list[Any]) -> set[tuple[Any, ...]]:
        return {(offer.sender.bound.name, *offer.merits) for offer in chosen}

    assert names(best) == names([offer for offer in offers if not beaten(offer)])
    assert len(best) == len(names(best)) < 30, "of equals one is enough"


def test_an_impossible_limit_is_named_with_what_can_be_had() -> None:
    with pytest.raises(InputError, match=r"up<=10B stands in the way; .* the least is up [\d,]+ \(fl-"):
        solve(small(**BASE), parse_constraints("epsilon<=4, up<=10B, hours<=10"))


def test_devices_that_leave_without_an_answer_rate_are_named_and_not_the_bytes() -> None:
    with pytest.raises(InputError, match=r"no plan has an epsilon to limit: .*set \[aggregation\] answer_rate"):
        solve(small(**{**BASE, "devices": {"profile": "phone-lte"}}), parse_constraints("epsilon<=4, up<=200kB"))


def test_limits_that_only_fail_together_are_told_one_by_one() -> None:
    with pytest.raises(InputError, match=r"nor all of them but one; each alone can be had down to up .*, joules"):
        solve(small(**BASE), parse_constraints("epsilon<=4, up<=10B, joules<=0.001"))


def test_a_budget_that_no_noise_keeps_is_a_refusal_of_privacy() -> None:
    voted = {"privacy": {**PRIVATE, "vote_noise_multiplier": 0.5}, "scheme": {"name": "fl-top", "ratio": 0.1}}

    with pytest.raises(PrivacyError, match="the vote alone costs"):
        solve(small(**{**BASE, **voted}), parse_constraints("epsilon<=0.5"))


def test_noise_that_the_file_fixes_is_not_solved_for() -> None:
    fixed = {"delta": 0.01, "clip_norm": 1.0, "noise_multiplier": 2.0}

    with pytest.raises(InputError, match="noise_multiplier is given; remove it"):
        solve(small(privacy=fixed), parse_constraints("epsilon<=0.5"))


def test_a_limit_on_epsilon_needs_a_private_file() -> None:
    with pytest.raises(InputError, match=r"not private; add a \[privacy\] table"):
        solve(small(), parse_constraints("epsilon<=1"))


def test_schemes_without_a_clip_norm_are_left_out_with_the_reason() -> None:
    signs = {"data": {"clients": 60}, "scheme": {"name": "fl-sign"}, "privacy": {"epsilon": 8.0, "delta": 0.01}}
    solved = solve(small(**signs), parse_constraints("epsilon<=8"))

    assert {solution.plan["scheme"] for solution in solved.solutions} == {"fl-sign"}
    assert "clip_norm" in solved.left_out["fl-std"]


def test_a_run_without_privacy_can_be_solved_for_bytes() -> None:
    solved = solve(small(), parse_constraints("up<=600B"))

    assert {solution.plan["scheme"] for solution in solved.solutions} >= {"fl-sign", "fl-cs"}
    assert all(solution.plan["bytes_up_per_client_round"] <= 600 for solution in solved.solutions)


def test_a_search_says_what_each_limit_costs_and_rules_out() -> None:
    told = solve(small(**BASE), parse_constraints("epsilon<=4, epsilon_server<=8, up<=3.3kB")).describe()

    sentences = {found["limit"]: found["sentence"] for found in told["killed_by"]}
    assert "every client in every round, 6 rounds, z " in sentences["epsilon_server<=8"]
    assert "at threshold 2/3" in sentences["epsilon_server<=8"]
    assert "all of fl-std" in sentences["up<=3.3kB"]
    assert "fl-top" in told["schemes_left_out"]


def test_everyone_in_every_round_at_epsilon_server_1_needs_z_20_4() -> None:
    """SCIENCE: 20 rounds, 6,000 clients, threshold 2/3, delta 1e-5."""
    request = PrivacyRequest(
        clients=6000, sample_rate=1.0, rounds=20, delta=1e-5, length=4010, clip_norm=1.0, threshold=2 / 3,
        epsilon_server=1.0,
    )  # fmt: skip

    assert sketch(request).noise == pytest.approx(20.44, rel=5e-3)


@pytest.mark.parametrize(("rate", "rounds"), [(1.0, 20), (1 / 12, 40), (1 / 30, 100)])
def test_a_sketch_is_near_the_plan(rate: float, rounds: int) -> None:
    request = PrivacyRequest(
        clients=6000, sample_rate=rate, rounds=rounds, delta=1e-5, length=400, clip_norm=1.0, threshold=2 / 3,
        epsilon=1.0, epsilon_server=4.0,
    )  # fmt: skip
    known, exact = sketch(request), solve_request(request)

    assert known.noise == pytest.approx(exact["noise_multiplier"], rel=0.05)
    assert abs(known.most - exact["max_participations"]) <= 0.25 * exact["max_participations"]


def test_a_limit_of_the_cohort_s_members_takes_more_noise() -> None:
    request = PrivacyRequest(
        clients=60, sample_rate=0.5, rounds=6, delta=0.01, length=650, clip_norm=1.0, threshold=1.0, epsilon=8.0
    )
    loose, tight = sketch(request), sketch(request, member=2.0)

    assert tight.noise > loose.noise and tight.forced and not loose.forced


UNITS: dict[str, Any] = {
    "data": {"clients": 4},
    "cohort": {"sample_rate": 1},
    "client": {"batch_size": "all", "local_steps": 1},
    "privacy": {"unit": "record", "epsilon": 8.0, "delta": 1e-4, "clip_norm": 1.0},
}


def test_plans_that_protect_records_are_searched_too() -> None:
    experiment, limits = small(**UNITS), parse_constraints("epsilon<=2, rounds<=12, up<=100kB")
    solved = solve(experiment, limits)

    assert {solution.plan["scheme"] for solution in solved.solutions} >= {"fl-std", "fl-sign"}
    for solution in solved.solutions[:3]:
        alone = plan(apply(experiment, solution.changes))
        assert alone["privacy"]["epsilon"] <= 2
        assert alone["rounds"] <= 12
    assert "kept by the noise" in solved.blames[0].sentence
    with pytest.raises(InputError, match=r"stands in the way|nor all of them"):
        solve(experiment, parse_constraints("epsilon<=2, up<=1B"))
