"""Mutants of noise that is left out: a guarantee is printed as if colluders and attackers had added theirs."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TESTS = "tests/attacks/test_a6_noise_that_colluders_leave_out.py"

MUTANTS = (
    of(
        "colluders-add-their-noise",
        "epsilon counts with noise that colluders leave out",
        ("privacy/plan/charges.py", "present=shares.outsider_part,", ""),
        tests=TESTS,
    ),
    of(
        "outsiders-face-all-noise",
        "the accountant charges the planned noise, not what is surely there",
        (
            "privacy/accounting/events.py",
            "return self.noise_multiplier if self.present == 1 else",
            "return self.noise_multiplier if True else",
        ),
        tests=TESTS,
    ),
    of(
        "members-know-of-no-colluders",
        "a member's epsilon counts with noise that colluders leave out",
        ("privacy/plan/cohort.py", "self._least(self.sizes - 1 - self.colluders)", "self._least(self.sizes - 1)"),
        tests=TESTS,
    ),
    of(
        "attackers-noise-is-counted",
        "an attacked run prints the plan's epsilon twice",
        ("privacy/plan/omission.py", "replace(own, present=outsiders)", "replace(own, present=1.0)"),
        tests=TESTS,
    ),
    of(
        "attackers-at-their-mean",
        "cohorts with more attackers than usual are charged as usual ones",
        ("privacy/plan/omission.py", "rare = RARE * request.delta / plan.rounds", "rare = 0.5"),
        tests=TESTS,
    ),
    of(
        "limits-forget-colluders",
        "a limit over several runs counts with noise that colluders leave out",
        (
            "privacy/accounting/accountant.py",
            "_renyi(e.faced / e.distance, e.sample_rate)[place]",
            "_renyi(e.noise_multiplier / e.distance, e.sample_rate)[place]",
        ),
        tests=TESTS,
    ),
)
