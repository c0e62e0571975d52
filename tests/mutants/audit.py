"""Mutants that the audit must accuse, each found by a correct build that is suddenly accused; and of its statistics."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ACCUSED = "tests/studies/audit/test_audit.py::test_a_correct_build_is_not_accused[0]"
STATISTICS = "tests/threats/audit"
TEN = "tests/attacks/test_a8_audit_accuses_ten_of_ten.py"
WORLDS = "tests/studies/audit/test_published.py"

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
        (
            "privacy/plan/plan.py",
            'if self.grid is None or self.adaptive is not None or request.form == "signs"',
            'if self.grid or self.adaptive is not None or request.form == "signs"',
        ),
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
        ("federation/aggregation/direct.py", "        spend()\n        total.values", "        total.values"),
        (
            "federation/aggregation/direct.py",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n        spend()\n",
        ),
        tests=ACCUSED,
    ),
    of(
        "rates-not-exact",
        "a lower bound of epsilon that holds too seldom",
        (
            "threats/audit/bounds.py",
            "beta.isf(alpha, count + 1, trials - count)",
            "beta.isf(alpha, count + 1, trials - count + 1)",
        ),
        tests=f"{STATISTICS}/test_errors.py",
    ),
    of(
        "one-run-without-delta",
        "a one-run bound that forgets what delta allows",
        ("threats/audit/bounds.py", "if delta == 0 or correct == 0:", "if True:"),
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
    of(
        "audited-coordinate-without-noise",
        "one coordinate of every message has no noise",
        (
            "privacy/noise/path.py",
            "    return draw(fraction_tables(share_variance, precision), centres, randomness, modulus_bits=bits)",
            "    words = draw(fraction_tables(share_variance, precision), centres, randomness, modulus_bits=bits)\n"
            "    words[0] = (int(centres[0]) >> precision) & ((1 << bits) - 1)\n"
            "    return words",
        ),
        (
            "privacy/plan/plan.py",
            'if self.grid is None or self.adaptive is not None or request.form == "signs"',
            'if self.grid or self.adaptive is not None or request.form == "signs"',
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-realised-cohort",
        "the model is divided by the size of the cohort, which tells it",
        ("federation/round.py", "expected = server.expected(state)", "expected = float(max(1, len(cohort)))"),
        tests=ACCUSED,
    ),
    of(
        "audited-real-bytes",
        "the published bytes of a round are the real ones, a multiple of the cohort",
        ("runs/records.py", '"bytes_up": costs.round.up,', '"bytes_up": total.bytes_up,'),
        tests=ACCUSED,
    ),
    of(
        "audited-measurements-uncharged",
        "measurements by clients are opened and never charged",
        ("federation/stages/evaluation.py", "        self.account.charge(charged_round(round_))", "        return"),
        tests=f"{TEN}::test_nor_is_one_with_more_than_rounds[measured]",
    ),
    of(
        "audited-noise-of-measurements",
        "measurements by clients have no noise",
        (
            "privacy/plan/plan.py",
            "share = Fraction(self.grid.variance) / cohort",
            "share = Fraction(self.grid.variance) / cohort / (1 if request.length > 3 else 10**6)",
        ),
        tests=f"{TEN}::test_nor_is_one_with_more_than_rounds[measured]",
    ),
    of(
        "audited-cap-of-old-draws",
        "the state forgets who was drawn, and nobody reaches the cap",
        ("federation/round.py", "    state = {**state, **drawn}\n    expected", "    expected"),
        tests=ACCUSED,
    ),
    of(
        "auditor-without-union",
        "the worst of many cells is taken for one, and correct builds are accused",
        (
            "threats/audit/noise.py",
            "min(1.0, 2 * seen.size * float(tails[worst]))",
            "min(1.0, 2 * float(tails[worst]))",
        ),
        tests=f"{STATISTICS}/test_cells.py",
    ),
    of(
        "auditor-of-some-coordinates",
        "clipping is looked at in ten coordinates",
        (
            "studies/audit/rules.py",
            "places = np.linspace(0, length - 1, min(length, max(size, messages)))",
            "places = np.linspace(0, length - 1, min(length, 10, max(size, messages)))",
        ),
        tests=f"{TEN}::test_so_is_one_that_is_broken_elsewhere[one_coordinate_not_clipped]",
    ),
    of(
        "auditor-of-one-world",
        "the worlds of the published game all draw the same cohorts",
        (
            "studies/audit/published.py",
            "(self.cohorts if purpose == Purpose.COHORT else self.inner)",
            "self.inner",
        ),
        tests=WORLDS,
    ),
    of(
        "auditor-of-own-sums",
        "the worlds of the published game differ in their sums, too",
        ("studies/audit/published.py", "if total.values is not None and round_ in self.totals:", "if False:"),
        tests=WORLDS,
    ),
)
