"""Mutants that the audit must accuse, each found by a correct build that is suddenly accused; and of its statistics."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ACCUSED = "tests/studies/audit/test_audit.py::test_a_correct_build_is_not_accused[0]"
STATISTICS = "tests/threats/audit"

MUTANTS = (
    of(
        "audited-noise-halved",
        "clients add half the noise that the plan is charged for",
        (
            "privacy/plan/plan.py",
            "share = Fraction(self.grid.variance) / cohort",
            "share = Fraction(self.grid.variance) / cohort / 4",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-missing-noise",
        "the server forgets the noise of those who left",
        (
            "privacy/plan/plan.py",
            "missing = Fraction(cohort - survivors, cohort) if cohort else Fraction(1)",
            "missing = Fraction(0)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-clip-skipped",
        "a client moves the sum as far as it likes",
        (
            "privacy/noise/path.py",
            "scale = unit if length <= clip_norm else unit * (clip_norm / length)",
            "scale = unit",
        ),
        ("privacy/noise/path.py", "        if squares <= limit:\n", "        if squares:\n"),
        tests=ACCUSED,
    ),
    of(
        "audited-seed-of-every-round",
        "a client's noise cancels between two rounds",
        (
            "federation/coding.py",
            "self._randomness(self.seeds.client(client), round_)",
            "self._randomness(self.seeds.client(client), 0)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-fixed-cohorts",
        "cohorts of one size are charged as if each client had a coin",
        (
            "privacy/plan/cohort.py",
            "drawn = np.flatnonzero(rng.random(draws.size) < sample_rate)",
            "drawn = np.sort(rng.choice(draws.size, size=size, replace=False))",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-charge-after-opening",
        "the sum is opened before it is paid for",
        ("federation/aggregate.py", "        spend()\n        total.values", "        total.values"),
        (
            "federation/aggregate.py",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n        spend()\n",
        ),
        tests=ACCUSED,
    ),
    of(
        "rates-not-exact",
        "a lower bound of epsilon that holds too seldom",
        (
            "threats/audit/errors.py",
            "beta.isf(alpha, count + 1, trials - count)",
            "beta.isf(alpha, count + 1, trials - count + 1)",
        ),
        tests=f"{STATISTICS}/test_errors.py",
    ),
    of(
        "one-run-without-delta",
        "a one-run bound that forgets what delta allows",
        ("threats/audit/one_run.py", "if delta == 0 or correct == 0:", "if True:"),
        tests=f"{STATISTICS}/test_one_run.py",
    ),
    of(
        "variance-from-one-side",
        "noise that is too narrow passes",
        (
            "threats/audit/noise.py",
            "tail = min(float(chi2.cdf(statistic, spread.values)), float(chi2.sf(statistic, spread.values)))",
            "tail = float(chi2.sf(statistic, spread.values))",
        ),
        tests=f"{STATISTICS}/test_noise.py",
    ),
    of(
        "every-test-at-the-whole-rate",
        "an audit of many tests accuses correct builds too often",
        ("studies/audit/verdict.py", "FALSE_ALARM / max(1, sum(not test.certain for test in tests))", "FALSE_ALARM"),
        tests="tests/studies/audit/test_audit.py::test_the_document_has_the_keys_that_were_agreed_and_only_numbers_that_json_has",
    ),
)
