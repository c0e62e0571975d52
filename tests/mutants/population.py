"""Mutants of what a run and several runs promise together: a reading passes for the guarantee, a sum is too small."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

EARLY = "tests/attacks/test_a2_epsilon_of_a_run_that_ends_early.py"

MUTANTS = (
    of(
        "epsilon-of-the-rounds-played",
        "a run that stops early promises less than its plan",
        (
            "experiment/summary.py",
            '"epsilon": None if plan is None else plan.epsilon,',
            '"epsilon": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),',
        ),
        tests=EARLY,
    ),
    of(
        "round-epsilon-is-the-reading",
        "rounds.jsonl promises what was spent so far",
        (
            "experiment/run.py",
            'told = {"epsilon": plan.epsilon, ',
            'told = {"epsilon": plan.epsilon_after(ledger.spent_after(round_)), ',
        ),
        tests=EARLY,
    ),
    of(
        "best-round-epsilon-is-its-own",
        "the choice of the best round is not charged",
        (
            "experiment/summary.py",
            '"epsilon_best_round": None if plan is None else plan.epsilon,',
            '"epsilon_best_round": best and best.get("epsilon_spent"),',
        ),
        tests=EARLY,
    ),
    of(
        "old-folder-quotes-its-reading",
        "a folder of an older version is reported with what was spent",
        (
            "experiment/folder.py",
            'summary["epsilon"] = summary["epsilon_best_round"] = plan.get("epsilon")',
            "pass",
        ),
        tests=EARLY,
    ),
    of(
        "audit-takes-the-reading",
        "an audit lets a folder promise what was spent",
        ("studies/audit/records.py", "reading if old else plan.epsilon", "reading"),
        tests=EARLY,
    ),
)
