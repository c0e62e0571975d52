"""Mutants of RECORDS: what each unit adds, the site's noise and coins; every number that is printed looks as before.

A retry without a charge is `mark-without-charge-after-a-kill`.
"""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

UNITS = "tests/federation/test_units.py"
LOOKED = "tests/studies/audit/test_units.py::test_nor_is_one_that_is_looked_at_in_haste"
GRID = "            CentreGrid(*plan.unit_grid),\n            encode="
WIDE = GRID.replace("*plan.unit_grid", "1e3, 1e3 * plan.unit_grid[1], plan.unit_grid[2]")
MADE = "        return clipped_centres("
TAKING = "    taking = drawn_units(len(units.sizes), rate, coins)\n"
SUMMED = "    total = _summed(plan, scheme, trainer, task, shard, units.some(taking), choices)\n"
WORDS = "        return self.plan.protect_total(total, cohort=terms.cohort, randomness=randomness)"

MUTANTS = (
    of(
        "coins-told",
        "the coins of a site follow from the public seed of the round",
        (
            "federation/client.py",
            "coins=self.streams.get(Purpose.UNIT, heard.round)",
            "coins=np.random.default_rng([heard.round, heard.task.seed])",
        ),
        tests=LOOKED,
    ),
    of(
        "sum-clipped-and-not-units",
        "one record may move the whole sum of its site, which is clipped afterwards",
        (
            "federation/units.py",
            GRID,
            GRID.replace("*plan.unit_grid", "1e3, 1e3 * plan.unit_grid[1], plan.unit_grid[2]"),
        ),
        (
            "federation/units.py",
            SUMMED,
            SUMMED + "    most = plan.unit_grid[1] * 2 ** plan.unit_grid[2]\n"
            "    total = np.rint(total * min(1, most / max(1, np.linalg.norm(total)))).astype(np.int64)\n",
        ),
        tests=UNITS,
    ),
    of(
        "units-rounded-to-the-grid",
        "the update of a record is rounded to the grid of the noise, and most of it is lost",
        (
            "federation/units.py",
            "        return clipped_centres(",
            "        return (1 << plan.unit_grid[2]) * clipped_centres(",
        ),
        ("federation/units.py", GRID, GRID.replace("*plan.unit_grid", "*plan.unit_grid[:2], 0")),
        tests=UNITS,
    ),
    of(
        "noise-by-units",
        "the noise of a site depends on whether it drew units",
        (
            "privacy/plan/plan.py",
            "            share_variance=Fraction(grid.variance) / cohort,\n",
            "            share_variance=Fraction(grid.variance) / cohort * (2 if total.any() else 1),\n",
        ),
        tests=LOOKED,
    ),
    of(
        "noise-missing-at-a-site",
        "one site adds no noise",
        (
            "federation/coding.py",
            WORDS,
            "        plain = (total >> self.plan.unit_grid[2]) % (1 << self.bits)\n"
            "        if client == 3:\n            return plain.astype(np.uint32)\n" + WORDS,
        ),
        tests=LOOKED,
    ),
    of(
        "no-answer-without-units",
        "a site that drew nobody does not answer, which tells that a record was not there",
        (
            "federation/units.py",
            TAKING,
            TAKING + '    if not len(taking):\n        raise PrivacyError("nobody was drawn")\n',
        ),
        tests=UNITS,
    ),
    of(
        "weights-from-labels-of-a-site",
        "what a record adds depends on how many others of its site have its label",
        (
            "federation/units.py",
            "            length=length,\n            trainable=trainable,\n",
            "            length=length,\n            trainable=None,\n"
            "            label_weights=1 / (1 + np.bincount(shard.y, minlength=10).astype(np.float32)),\n",
        ),
        tests=UNITS,
    ),
    of(
        "least-step-of-the-noise",
        "the step of the server ignores the noise, so that a run with few records learns nothing",
        ("federation/units.py", "_DRIFT / noise)", "_LINEAR)"),
        tests=UNITS,
    ),
    of(
        "threshold-of-the-largest-noise",
        "the threshold of a rare class is where the noise of the histogram happens to be largest",
        ("models/noisy_quality.py", "<= _ASTRAY * float(self.counts[label])", "<= 1e9 * float(self.counts[label])"),
        tests="tests/models/test_noisy_quality.py",
    ),
)
