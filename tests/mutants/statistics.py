"""Mutants of private statistics: one unit would weigh more than it is charged for, or intervals would lie."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

SURVEY, CLI = "tests/federation/test_survey.py", "tests/cli/test_statistics.py"
DISCOVERY = "tests/federation/test_discovery.py"

MUTANTS = (
    of(
        "queries-share-no-budget",
        "each query is scaled as if it were alone",
        ("federation/stages/survey.py", "        return 1 / len(self.blocks)\n", "        return 1.0\n"),
        tests=SURVEY,
    ),
    of(
        "second-moment-is-free",
        "a record adds its square to the sum, and is charged for its value alone",
        ("federation/stages/survey.py", "return math.sqrt(2) if self.second else 1.0", "return 1.0"),
        tests=SURVEY,
    ),
    of(
        "products-are-free",
        "the products of a record are charged as one value",
        (
            "federation/stages/survey.py",
            '        if self.query == "correlation":\n            return math.sqrt(self.cells)\n',
            "",
        ),
        tests=SURVEY,
    ),
    of(
        "rounding-lengthens-a-record",
        "values are rounded to the nearest step without room for it",
        ("federation/stages/tally.py", "(room - math.sqrt(block.values) / 2)", "room"),
        tests=SURVEY,
    ),
    of(
        "a-person-counts-by-rows",
        "every row of a person counts in full",
        ("federation/stages/tally.py", "worth / rows_of[person[rows]]", "worth / np.ones(len(rows))"),
        tests=SURVEY,
    ),
    of(
        "persons-are-records",
        "rows of one person are protected one by one",
        ("federation/stages/tally.py", "if shard.persons is not None:", "if False:"),
        tests=SURVEY,
    ),
    of(
        "guessed-ranges-are-told",
        "statistics are cut off at ranges that were read off the records",
        ("data/coded.py", "is not None and not unsafe:", "is not None and False:"),
        tests=CLI,
    ),
    of(
        "intervals-are-too-short",
        "intervals leave out half of the noise",
        (
            "federation/stages/answers.py",
            "found.append(Sums(block, cells / worth, stddev / worth))",
            "found.append(Sums(block, cells / worth, stddev / worth / 2))",
        ),
        tests=SURVEY,
    ),
    of(
        "small-sites-answer",
        "a site with fewer units than min_units takes part",
        ("assembly/statistics.py", "        if count < private.min_units:\n", "        if count < 1:\n"),
        tests=CLI,
    ),
    of(
        "words-are-free",
        "the letters of a word are charged as one value",
        ("federation/stages/discovery.py", "    norm: float = math.sqrt(HALVES)\n", "    norm: float = 1.0\n"),
        tests=DISCOVERY,
    ),
    of(
        "a-learnt-schema-is-free",
        "a run that uses a schema learnt from the records does not add what that cost",
        ("runs/population.py", "([] if learnt is None else [learnt])", "[]"),
        tests=DISCOVERY,
    ),
    of(
        "a-learnt-schema-of-any-unit",
        "a schema that hides records serves a run that promises to hide clients",
        ("runs/population.py", '    if learnt["unit"] != table.unit:\n', "    if False:\n"),
        tests=DISCOVERY,
    ),
    of(
        "another-schema-is-let-in",
        "sites that read their records by another schema add up to sums that mean nothing",
        ("models/nothing.py", "        return _Idle(self.digest)\n", '        return _Idle(b"")\n'),
        tests="tests/deployment/test_statistics.py",
    ),
)
