"""Mutants of the privacy boundary: what is measured on the clients' records would leave as if it were nobody's."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MEASURED = "tests/attacks/test_a1_test_records_of_clients.py"

MUTANTS = (
    of(
        "boundary-open",
        "what was measured on the clients' records leaves a private run",
        ("privacy/release.py", "if not self.passes_test(records):", "if False:"),
        tests=MEASURED,
    ),
    of(
        "boundary-not-at-the-measurement",
        "an evaluation that nobody checked beforehand tells of the clients' records",
        (
            "experiment/scoring.py",
            'scores = release(evaluator.scores(params, "test"), parts.provenance("test"), "the test records")',
            'scores = evaluator.scores(params, "test")',
        ),
        tests=MEASURED,
    ),
    of(
        "held-out-is-nobodys",
        "early stopping and its numbers are measured on records that were cut from the clients'",
        ("experiment/parts.py", "    check_held_out(experiment)\n    return dataset", "    return dataset"),
        tests=MEASURED,
    ),
    of(
        "test-cut-from-owners",
        "a private run cuts its test records from the clients of a table",
        ("experiment/config.py", 'if private is None or private.unsafe_test else "nothing"', 'if True else "nothing"'),
        (
            "data/table.py",
            "    if split is None:\n        return Owned()\n",
            "    if split is None:\n        return None\n",
        ),
        tests=MEASURED,
    ),
    of(
        "test-cut-from-a-list",
        "simulate cuts test records from the clients' own and calls them given",
        ("api/simulate.py", 'if private is None or private.unsafe_test else "nothing"', 'if True else "nothing"'),
        ("api/data.py", "whose: Provenance | None = Owned()", "whose: Provenance | None = None"),
        tests=MEASURED,
    ),
    of(
        "given-without-a-look",
        "a victim's record among given test records is taken for nobody's",
        (
            "data/dataset.py",
            "if overlap(Values(self.x_test, self.input_scale), Values(self.x_train, self.input_scale)):",
            "if False:",
        ),
        tests=MEASURED,
    ),
    of(
        "owner-on-both-sides",
        "somebody's test records are called nobody's although others of that person's train",
        ("data/table.py", "np.intersect1d(owners[test], owners[~test]).size", "False"),
        tests=MEASURED,
    ),
    of(
        "unsafe-test-unprinted",
        "a run that measures on the clients' records says that nothing is unsafe",
        ("privacy/plan/request.py", '"unsafe_preprocessing", "unsafe_test")', '"unsafe_preprocessing")'),
        tests=MEASURED,
    ),
)
