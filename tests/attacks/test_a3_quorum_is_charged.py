"""Whether a round has its quorum may depend on one client: it is charged by an answer rate, or there is no epsilon.

Exact deltas are enumerated, in the neighbouring run of `privacy.adjacency` (the client is not there) and in that of a
client that is drawn and stays silent; no sampling, no false alarms.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm

from sottovoce.assembly.protection import privacy_request, protect
from sottovoce.core.errors import ConfigError
from sottovoce.planning.plan import gather_shapes
from sottovoce.planning.plan import plan as plan_of
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting import accountant
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.others import Others
from sottovoce.privacy.accounting.population import fixed
from sottovoce.privacy.budget import cost_of
from sottovoce.report.planning import plan_sections
from sottovoce.runs.folder import read_rounds
from sottovoce.runs.loop import run
from sottovoce.studies.audit.federation import make_federation
from sottovoce.studies.audit.options import Options, ready_to_play
from sottovoce.studies.audit.presence import presence
from tests.runs.machines import federation, private
from tests.runs.small import small

POINTS = np.linspace(-12, 14, 521)
WIDTH = POINTS[1] - POINTS[0]
PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}


def needed(cohort: int) -> int:
    return 2 * cohort // 3 + 1 if cohort else 0


def delta_of(epsilon: float, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one))))


def bits(epsilon: float, rounds: int, one: float, other: float) -> float:
    """Return the delta of how many of the rounds were aborted, which is all that the bits of equal rounds tell."""
    counts = np.arange(rounds + 1)
    return delta_of(epsilon, binom.pmf(counts, rounds, one), binom.pmf(counts, rounds, other))


@cache
def law(world: str, *, clients: int, rate: float, floor: int, answers: float, own: float, covered: bool) -> Any:
    """Return the law of what one round publishes if everybody sends 1: a sum on the grid, and an abort as one more.

    `own` is the chance of the client itself to answer; "absent" and "silent" are the worlds without it.
    """
    published = np.zeros(POINTS.size + 1)
    drawn = {"present": rate, "silent": rate, "absent": 0.0}[world]
    for others, chosen, stayed in product(range(clients), (0, 1), range(clients)):
        if stayed > others:
            continue
        chance = binom.pmf(others, clients - 1, rate) * (drawn if chosen else 1 - drawn)
        chance *= binom.pmf(stayed, others, answers)
        cohort = others + chosen
        for answered in (0, 1):
            mine = own if world == "present" and chosen else 0.0
            weight = chance * (mine if answered else 1 - mine)
            if weight == 0:
                continue
            senders = stayed + answered
            if cohort < floor:
                published[:-1] += weight * WIDTH * norm.pdf(POINTS, 0, 1)
            elif senders >= needed(cohort):
                published[:-1] += weight * WIDTH * norm.pdf(POINTS, senders, 1)
            elif covered:
                published[:-1] += weight * WIDTH * norm.pdf(POINTS, 0, 1)
            else:
                published[-1] += weight
    return published


def charge(clients: int, rate: float, floor: int, answers: float, rounds: int) -> float:
    law_of = Others(clients=clients, sample_rate=rate, sampling="poisson", cap=clients, rounds=rounds, most=rounds)
    short = law_of.short_of(np.array([needed(others + 1) for others in range(floor, clients)]), answers)
    return short + float(law_of.drawn_with(np.array([floor - 1]))[0])


@pytest.mark.parametrize(("clients", "rate", "floor"), [(4, 0.5, 2), (6, 0.5, 3), (6, 1.0, 5), (5, 0.8, 2)])
@pytest.mark.parametrize("answers", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("covered", [True, False])
def test_sum_and_abort_together_cost_no_more_than_the_sampled_gaussian_and_the_charge(
    clients: int, rate: float, floor: int, answers: float, covered: bool
) -> None:
    keys: dict[str, Any] = {"clients": clients, "rate": rate, "floor": floor, "answers": answers, "covered": covered}
    base = norm.pdf(POINTS, 0, 1) * WIDTH
    mixed = (1 - rate) * base + rate * norm.pdf(POINTS, 1, 1) * WIDTH
    for own, world in product((0.0, answers, 1.0), ("absent", "silent")):
        laws = [law("present", own=own, **keys), law(world, own=own, **keys), base, mixed]
        for rounds in (1, 2):
            one, other, plain, shifted = laws if rounds == 1 else [np.outer(each, each).ravel() for each in laws]
            charged = charge(clients, rate, floor, answers, rounds)
            for epsilon in (0.2, 1.0, 2.5):
                assert delta_of(epsilon, one, other) <= delta_of(epsilon, plain, shifted) + charged + 1e-9


def test_the_charge_is_no_larger_than_it_need_be() -> None:
    """With everybody asked and a quorum that one answer decides, the exact delta comes near what is charged."""
    keys: dict[str, Any] = {"clients": 5, "rate": 1.0, "floor": 4, "answers": 0.99, "covered": False}
    exact = delta_of(3.0, law("present", own=1.0, **keys), law("silent", own=1.0, **keys))
    gaussian = delta_of(3.0, norm.pdf(POINTS, 0, 1) * WIDTH, norm.pdf(POINTS, 1, 1) * WIDTH)

    assert exact > 0.6 * charge(5, 1.0, 4, 0.99, 1)
    assert exact > 10 * gaussian, "and it is most of the whole"


@pytest.mark.parametrize(("clients", "answers", "printed"), [(5, 0.8, 0.80), (20, 0.7, 0.21)])
def test_where_the_published_bits_alone_break_delta_there_is_no_epsilon(
    clients: int, answers: float, printed: float
) -> None:
    """Twenty rounds of everybody: delta at epsilon 1 of the abort bits, enumerated, and what the plan says of it."""
    fewest = needed(clients)
    silent, present = binom.cdf(fewest - 1, clients - 1, answers), binom.cdf(fewest - 1, clients, answers)
    keys: dict[str, Any] = {"clients": clients, "sample_rate": 1.0, "rounds": 20, "clip_norm": 1.0, "length": 10}
    plan = PrivacyPlan.solve(**keys, delta=1e-3, epsilon=1.0, threshold=2 / 3, answer_rate=answers)

    assert bits(1.0, 20, present, silent) == pytest.approx(printed, abs=0.01)
    assert math.isinf(plan.epsilon)
    assert math.isinf(plan.epsilon_after(3))
    assert plan.describe()["epsilon"] is None
    assert "one answer decides" in str(plan.epsilon_reason)
    assert plan.epsilon_if_all_answer == pytest.approx(1.0, abs=1e-4)
    assert math.isfinite(plan.epsilon_server), "who sees the answers learns nothing more from them"


@pytest.mark.parametrize("answers", [0.97, 0.98])
def test_where_epsilon_is_printed_the_bits_are_paid_for(answers: float) -> None:
    keys: dict[str, Any] = {"clients": 20, "sample_rate": 1.0, "rounds": 20, "clip_norm": 1.0, "length": 10}
    sure = PrivacyPlan.solve(**keys, delta=1e-3, epsilon=1.0, threshold=2 / 3)
    plan = PrivacyPlan.solve(**keys, delta=1e-3, epsilon=1.0, threshold=2 / 3, answer_rate=answers)
    [event] = plan.events()
    silent, present = binom.cdf(13, 19, answers), binom.cdf(12, 19, answers)

    assert 0.999 < plan.epsilon <= 1.0
    assert bits(0.0, 20, present, silent) <= event.quorum_slack <= 1e-3 / 2
    assert plan.noise_multiplier >= sure.noise_multiplier
    again = accountant.epsilon(
        [Event(noise_multiplier=plan.noise_multiplier, sample_rate=1.0, rounds=20)],
        delta=1e-3 * (1 - 1e-5) - event.quorum_slack,
    )
    assert plan.epsilon == pytest.approx(again, rel=1e-9)


def test_several_runs_on_the_same_records_add_up_what_their_quorums_cost() -> None:
    keys: dict[str, Any] = {"clients": 20, "sample_rate": 1.0, "rounds": 20, "clip_norm": 1.0, "length": 10}
    plan = PrivacyPlan.solve(**keys, delta=1e-3, epsilon=1.0, threshold=2 / 3, answer_rate=0.97)
    unknown = PrivacyPlan.solve(**keys, delta=1e-3, epsilon=1.0, threshold=2 / 3, answer_rate=None)
    cost = cost_of(plan)

    assert cost.floor == plan.events()[0].quorum_slack > 1e-4
    assert fixed([cost, cost]).delta >= 1e-3 + 2 * cost.floor
    assert cost_of(unknown).epsilon == unknown.epsilon_server, "nobody can charge for less than the server sees"


def test_a_rate_may_be_a_least_one_and_differ_from_client_to_client() -> None:
    """The tail that is charged covers every mix of surer clients, and what they are charged only falls."""
    others = Others(clients=9, sample_rate=1.0, sampling="poisson", cap=9, rounds=1, most=1)
    charged = others.short_of(np.array([needed(9)]), 0.8)
    for rates in ([0.8] * 8, [0.8] * 4 + [0.95] * 4, [0.8, 1, 1, 1, 1, 1, 1, 1], [0.99] * 8):
        tipped = sum(
            math.prod(rate if answer else 1 - rate for rate, answer in zip(rates, answers, strict=True))
            for answers in product((0, 1), repeat=8)
            if sum(answers) == needed(9) - 1
        )
        assert tipped <= charged


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_the_law_of_the_others_is_that_of_the_sampler(sampling: Any) -> None:
    """Cut, capped and fixed cohorts, enumerated: nobody's chance is below the one that is charged."""
    clients, rate, cap, rounds, most = 6, 0.5, 3, 2, 1
    others = Others(clients=clients, sample_rate=rate, sampling=sampling, cap=cap, rounds=rounds, most=most)
    found = others.drawn_with(np.arange(clients))
    if sampling == "fixed":
        assert found == pytest.approx(rate * rounds * (np.arange(clients) == cap - 1), abs=1e-8)
        return
    exact = np.zeros(clients)
    for drawn in range(clients):
        chance = binom.pmf(drawn, clients - 1, rate)
        asked = min(drawn, cap - 1)
        exact[asked] += rate * chance  # round 1: nobody has been drawn before
        for staying in range(asked + 1):  # round 2: who was drawn before sits out
            exact[staying] += rate * chance * binom.pmf(staying, asked, 1 - rate)

    assert np.all(found >= exact - 1e-12)
    assert found.sum() < 1.6 * exact.sum()


def test_a_simulation_in_which_nobody_leaves_has_nothing_to_charge() -> None:
    told = plan_of(small(privacy=PRIVACY))

    assert told["epsilon"] == pytest.approx(8.0, abs=0.01)
    assert told["privacy"]["answer_rate"] == 1
    assert told["privacy"]["delta_for_quorum"] == 0
    assert told["privacy"]["epsilon_reason"] is None


@pytest.mark.parametrize(
    "tables",
    [
        {"devices": {"dropout": 0.2}},
        {"devices": {"leave": [[1, 2, "mask"]]}},
        {"devices": {"profile": "phone-lte"}},
        {"devices": {"dropout": {"unmask": 0.1}}, "aggregation": {"secure": "real"}},
        {"aggregation": {"answer_rate": 0.5}},
    ],
)
def test_a_simulation_in_which_clients_leave_charges_for_it_or_has_no_epsilon(tables: dict[str, Any]) -> None:
    told = plan_of(small(privacy=PRIVACY, **tables))
    shown = dict(plan_sections(told)[1].facts)

    assert told["epsilon"] is None
    assert told["privacy"]["epsilon"] is None
    assert told["privacy"]["epsilon_reason"]
    assert told["privacy"]["epsilon_if_all_answer"] == pytest.approx(8.0, abs=0.01)
    assert told["epsilon_server"] is not None
    assert shown["against outsiders"].startswith("no bound")
    assert shown["... because"] == told["privacy"]["epsilon_reason"]


def test_the_rate_of_a_simulation_follows_from_who_leaves() -> None:
    told = plan_of(small(privacy=PRIVACY, devices={"dropout": {"share": 0.1, "mask": 0.2, "unmask": 0.5}}))
    real = plan_of(
        small(privacy=PRIVACY, devices={"dropout": {"share": 0.1, "unmask": 0.5}}, aggregation={"secure": "real"})
    )

    assert told["privacy"]["answer_rate"] == pytest.approx(0.72)
    assert real["privacy"]["answer_rate"] == pytest.approx(0.45)


def test_a_run_whose_answers_nobody_vouches_for_prints_no_epsilon_anywhere(tmp_path: Path) -> None:
    summary = run(small(privacy=PRIVACY, devices={"dropout": 0.2}, engine={"workers": 1}), tmp_path / "run")

    assert summary["epsilon"] is summary["epsilon_spent"] is summary["epsilon_best_round"] is None
    assert summary["privacy"]["epsilon"] is None
    assert summary["epsilon_reason"]
    assert {record["epsilon"] for record in read_rounds(tmp_path / "run")} == {None}


def test_a_round_without_quorum_refutes_the_rate_that_was_declared(tmp_path: Path) -> None:
    experiment = private("fl-std", aggregation={"secure": "real", "answer_rate": 1.0})
    deployed, _ = federation(experiment, lost=lambda request, client: request.round == 2 and client < 3)
    summary = run(experiment, tmp_path / "run", parties=deployed)
    told = [record["epsilon"] for record in read_rounds(tmp_path / "run")]

    assert told[0] is not None
    assert set(told[1:]) == {None}
    assert summary["epsilon"] is None
    assert "too few answers" in summary["epsilon_reason"]


def test_between_machines_epsilon_is_null_until_somebody_declares_how_surely_clients_answer(tmp_path: Path) -> None:
    experiment = private("fl-std", aggregation={"answer_rate": None})
    deployed, _ = federation(experiment)
    silent = run(experiment, tmp_path / "silent", parties=deployed)
    experiment = private("fl-std", aggregation={"secure": "real", "answer_rate": 1.0})
    deployed, _ = federation(experiment)
    sure = run(experiment, tmp_path / "sure", parties=deployed)

    assert silent["epsilon"] is None
    assert "set [aggregation] answer_rate" in silent["epsilon_reason"]
    assert silent["epsilon_server"] == sure["epsilon_server"]
    assert sure["epsilon"] == silent["privacy"]["epsilon_if_all_answer"]
    assert sure["epsilon_reason"] is None


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"aggregation": {"answer_rate": 0.9}, "devices": {"dropout": 0.2}}, "clients answer with a chance of 0.8"),
        ({"aggregation": {"answer_rate": 0.9}, "devices": {"leave": [[1, 2, "mask"]]}}, "leave for certain"),
        (
            {
                "aggregation": {"answer_rate": 0.9, "secure": "real", "key_life": "session"},
                "cohort": {"sample_rate": 1},
            },
            'with [aggregation] key_life = "session" one client that leaves can end a round',
        ),
        ({"aggregation": {"answer_rates": 0.9}}, "did you mean 'answer_rate'"),
        ({"aggregation": {"answer_rate": 0}}, "answer_rate"),
    ],
)
def test_a_rate_that_cannot_be_true_is_refused(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small(privacy=PRIVACY, **tables)

    assert sentence in str(caught.value)


def test_in_a_sparse_graph_no_rate_is_charged() -> None:
    wide = {"data": {"clients": 20, "source": "digits"}, "cohort": {"sample_rate": 1}, "privacy": PRIVACY}
    known = {"secure": "real", "answer_rate": 0.98}
    complete = protect(gather_shapes(small(**wide, aggregation=known))[0]).plan
    # So small a graph is refused by the sum itself; the request for its plan is made before.
    parts = gather_shapes(small(**wide, aggregation={**known, "neighbours": 10}))[0]
    assert parts.experiment.privacy is not None
    sparse = privacy_request(parts, parts.experiment.privacy, clip_norm=0.5)

    assert complete is not None
    assert complete.request.answer_rate == 0.98
    assert math.isfinite(complete.epsilon)
    assert sparse.answer_rate is None


@pytest.mark.parametrize("slack", ["floor_slack", "quorum_slack"])
def test_an_audit_accuses_a_build_in_which_one_client_decides_for_free(
    slack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = {"rounds": 30, "name": "edges"}
    shaky = {"aggregation": {"answer_rate": 0.97}, "cohort": {"sample_rate": 1}}
    tables = {"floor_slack": {"experiment": rare}, "quorum_slack": shaky}[slack]
    for free in (False, True):
        if free:
            monkeypatch.setattr(f"sottovoce.privacy.plan.charges.{slack}", lambda *keys: 0.0)
        ready, plan = ready_to_play(small(privacy=PRIVACY, engine={"workers": 1}, **tables), Options())
        found = presence(make_federation(ready, plan), 1)

        assert [test.name for test in found if test.p_value == 0] == ([f"{slack[:-6]} is charged"] if free else [])
