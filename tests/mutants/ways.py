"""Mutants of the comparison of three ways to sum: one of them seems cheaper, or more private, than a plan of it."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

WAYS = "tests/planning/test_ways.py"
ALONE = f"{WAYS}::test_every_way_costs_and_promises_what_a_plan_of_it_tells"

MUTANTS = (
    of(
        "ballots-compared-with-the-clients-noise",
        "one aggregator seems to learn as little as the server of a full cohort, and a client to have more than a vote",
        ("planning/compare.py", "else protocol.noise_by)", 'else "clients")'),
        tests=ALONE,
    ),
    of(
        "a-refused-way-has-an-epsilon",
        "session keys are promised an epsilon that counts on cohorts that they cannot have",
        ("planning/compare.py", "None if self.refused else self.plan", "self.plan"),
        tests=f"{WAYS}::test_a_way_that_the_file_cannot_be_played_in_says_why_and_has_no_epsilon",
    ),
    of(
        "session-keys-on-a-graph-of-rounds",
        "session keys seem as dear as fresh masks",
        ("federation/aggregation/standing.py", 'key_life="session", neighbours', 'key_life="round", neighbours'),
        tests="tests/federation/test_secure.py::test_every_aggregator_keeps_the_contract",
    ),
)
