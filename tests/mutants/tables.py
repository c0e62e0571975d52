"""Mutants of the table reader: ways in which a number would become another number, or a word, unnoticed."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MANY, NUMERALS = "tests/data/test_many_tables.py", "tests/data/test_numerals.py"
BLIND, START = "tests/data/test_blind.py", "tests/cli/test_start.py"

MUTANTS = (
    of(
        "a-learnt-schema-forgets-its-cost",
        "ranges that were learnt from records are in no account of the population",
        ("data/draft.py", "learnt=tuple(learnt_lines(told))", "learnt=()"),
        tests=START,
    ),
    of(
        "compact-features-lose-what-is-second",
        "of a word's two buckets and a number's two powers of two only one reaches the model",
        ("data/compact.py", "for number in range(self.places.shape[1]):", "for number in range(1):"),
        tests="tests/data/test_compact.py",
    ),
    of(
        "doubtful-number-is-guessed",
        "1,234 is read as 1234 though nothing tells so",
        ("data/numerals.py", "(POINT if found.doubtful is None else self._file)", "POINT"),
        tests=NUMERALS,
    ),
    of(
        "numbers-become-categories",
        "a column of numbers with units is read as words",
        ("data/preprocessing.py", "    if 2 * (numeric + with_unit) >= present:\n", "    if False:\n"),
        tests=MANY,
    ),
    of(
        "marks-of-another-file",
        "the decimal mark of the joined files is that of most cells, not of each file",
        (
            "data/preprocessing.py",
            "    for part in table.parts or (table,):\n        _fill_numbers(",
            "    for part in (table,):\n        _fill_numbers(",
        ),
        tests=MANY,
    ),
    of(
        "guessed-ranges-pass-as-declared",
        "a schema that was read off the records counts as public",
        ("data/preprocessing.py", "    return column, looked or said.guessed\n", "    return column, looked\n"),
        ("data/preprocessing.py", "return schema.classes, not schema.classes_guessed", "return schema.classes, True"),
        tests=BLIND,
    ),
    of(
        "a-drafted-schema-lists-the-words-of-the-records",
        "categories that only the records know stand in a file that goes to every site",
        (
            "data/draft.py",
            '{"buckets": BUCKETS}',
            '{"categories": sorted(set(table.columns[name]))}',
        ),
        tests=START,
    ),
    of(
        "the-twin-without-privacy-stands-in-the-report",
        "figures of single records are on a page that is shared",
        ("cli/commands/start.py", "work.report(twin if public else None)", "work.report(twin)"),
        tests=START,
    ),
    of(
        "classes-that-only-records-tell",
        "the values of a label are published as they were found",
        (
            "data/draft.py",
            "    fit_classes(table, label, Schema())  # a",
            "    return fit_classes(table, label, Schema())[0], ''  # a",
        ),
        tests=START,
    ),
    of(
        "a-number-is-near-one-power-only",
        "all numbers of an octave become the same number",
        ("data/blind.py", "    features[rows, left + 1] = share\n", ""),
        tests=BLIND,
    ),
    of(
        "words-share-all-their-buckets",
        "yes and no become the same feature",
        ("data/blind.py", "half + second % (buckets - half)", "half"),
        tests=BLIND,
    ),
    of(
        "mixed-encodings-are-read",
        "a line that is neither UTF-8 nor Latin-1 becomes other letters",
        ("data/csv_file.py", "        if wrong := _NOT_LATIN.search(line):\n", "        if wrong := None:\n"),
        tests=MANY,
    ),
)
