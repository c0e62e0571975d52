"""Mutants of what is charged against whom: each leaves a release out of an epsilon that is printed."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

CHARGED = "tests/attacks/test_a9_what_the_server_and_a_member_are_charged.py"

MUTANTS = (
    of(
        "measurements-charged-once",
        "epsilon_server counts all measurements, votes and warm starts as one release each",
        (
            "privacy/plan/charges.py",
            "return [(event.left(part), event.rounds) for event in events]",
            "return [(event.left(part), 1) for event in events]",
        ),
        tests=CHARGED,
    ),
    of(
        "member-of-a-fixed-cohort-an-outsider",
        "a client of a cohort of fixed size is told the outsiders' epsilon of a ballot",
        (
            "privacy/plan/solve.py",
            'if shares.by_aggregators and request.sampling == "poisson":',
            "if shares.by_aggregators:",
        ),
        tests=CHARGED,
    ),
)
