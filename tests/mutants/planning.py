"""Mutants of the planner: plans that cost other than they say, or do not keep the limits that they were found for."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

PLAN, SOLVE, LIMITS = (
    "tests/experiment/test_plan.py",
    "tests/experiment/test_solve.py",
    "tests/experiment/test_constraints.py",
)
KEPT = f"{SOLVE}::test_every_solution_keeps_every_limit_when_it_is_planned_alone"
RELAXED = f"{SOLVE}::test_relaxing_a_limit_never_removes_a_solution"

MUTANTS = (
    of(
        "planned-limits-are-not-checked",
        "a plan is shown that breaks a limit once it is solved exactly",
        (
            "experiment/solve.py",
            '    if all(constraint.holds(plan["limits"]) for constraint in constraints):\n',
            "    if True:\n",
        ),
        ("experiment/sketch.py", "    goal = limit * (1 - 1e-3)", "    goal = 2 * limit"),
        tests=KEPT,
    ),
    of(
        "less-noise-is-refused-for-its-bits",
        "a looser epsilon loses plans, because more noise is never tried for fewer bits",
        ("experiment/solve.py", "for factor in LOUDER if", "for factor in () if"),
        tests=RELAXED,
    ),
    of(
        "no-bound-keeps-every-limit",
        "an epsilon without a bound passes for any limit",
        ("experiment/constraints.py", "return value is not None and float", "return value is None or float"),
        tests=LIMITS,
    ),
    of(
        "real-bytes-without-the-announcement",
        "the real protocol seems cheaper than a run of it",
        ("experiment/real_costs.py", "announcement_size(clients) if outline.key_life", "0 if outline.key_life"),
        tests=f"{PLAN}::test_the_real_protocol_costs_the_same_whether_the_file_asks_for_it_or_not",
    ),
    of(
        "a-plan-reads-the-records",
        "a plan opens the clients' data though it needs their shape alone",
        ("experiment/shapes.py", "    if known is None or matters:\n", "    if True:\n"),
        tests=f"{PLAN}::test_a_plan_needs_no_record",
    ),
    of(
        "everyone-stays",
        "leaving seems to cost no noise",
        ("experiment/dropout_costs.py", "plan.shares.server_part**-0.5", "1.0"),
        tests=f"{PLAN}::test_leaving_costs_noise_and_rounds",
    ),
    of(
        "the-front-forgets-the-best",
        "plans that others beat are shown, and those that beat them are not",
        ("experiment/solve.py", "return all(a >= b for a, b in", "return all(a <= b for a, b in"),
        tests=f"{SOLVE}::test_the_front_keeps_what_no_other_of_its_scheme_beats",
    ),
)
