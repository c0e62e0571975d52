"""Mutants of the planner: plans that cost other than they say, or do not keep the limits that they were found for."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

PLAN, SOLVE, LIMITS = (
    "tests/planning/test_plan.py",
    "tests/planning/test_solve.py",
    "tests/planning/test_constraints.py",
)
KEPT = f"{SOLVE}::test_every_solution_keeps_every_limit_when_it_is_planned_alone"
RELAXED = f"{SOLVE}::test_relaxing_a_limit_never_removes_a_solution"

MUTANTS = (
    of(
        "planned-limits-are-not-checked",
        "a plan is shown that breaks a limit once it is solved exactly",
        (
            "planning/solve.py",
            '    if all(constraint.holds(plan["limits"]) for constraint in constraints):\n',
            "    if True:\n",
        ),
        ("planning/estimate.py", "    goal = limit * (1 - 1e-3)", "    goal = 2 * limit"),
        tests=KEPT,
    ),
    of(
        "less-noise-is-refused-for-its-bits",
        "a looser epsilon loses plans, because more noise is never tried for fewer bits",
        ("planning/solve.py", "for factor in LOUDER if", "for factor in () if"),
        tests=RELAXED,
    ),
    of(
        "no-bound-keeps-every-limit",
        "an epsilon without a bound passes for any limit",
        ("planning/candidates.py", "return value is not None and float", "return value is None or float"),
        tests=LIMITS,
    ),
    of(
        "real-bytes-without-the-announcement",
        "the real protocol seems cheaper than a run of it",
        ("federation/aggregation/secure.py", "down + announcement_size(outline.cohort)", "down"),
        tests="tests/federation/test_secure.py::test_every_aggregator_keeps_the_contract",
    ),
    of(
        "a-plan-reads-the-records",
        "a plan opens the clients' data though it needs their shape alone",
        ("planning/plan.py", "    if known is None or matters:\n", "    if True:\n"),
        tests=f"{PLAN}::test_a_plan_needs_no_record",
    ),
    of(
        "everyone-stays",
        "leaving seems to cost no noise",
        ("planning/plan.py", "plan.shares.server_part**-0.5", "1.0"),
        tests=f"{PLAN}::test_leaving_costs_noise_and_rounds",
    ),
    of(
        "the-front-forgets-the-best",
        "plans that others beat are shown, and those that beat them are not",
        ("planning/solve.py", "return all(a >= b for a, b in", "return all(a <= b for a, b in"),
        tests=f"{SOLVE}::test_the_front_keeps_what_no_other_of_its_scheme_beats",
    ),
    of(
        "joules-are-limited-at-their-default",
        "a battery that the high end of the range empties is called enough",
        ("runs/devices.py", "return Judged(told, run.total.high,", "return Judged(told, run.total.default,"),
        tests="tests/planning/test_plan.py",
    ),
    of(
        "limits-forget-the-secure-sum",
        "bytes are told without the protocol that epsilon needs",
        ("planning/solve.py", '"secure": "real"}', '"secure": "ideal"}'),
        tests="tests/planning/test_solve.py",
    ),
    of(
        "reach-forgets-what-never-moves",
        "a plan that moves a hundredth of the weights is ranked first",
        ("planning/signal_to_noise.py", "math.sqrt(moved) * ratio", "ratio"),
        tests="tests/search/test_trial.py",
    ),
)
