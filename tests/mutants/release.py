"""Mutants of the privacy boundary: what is measured on the clients' records would leave as if it were nobody's."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MEASURED = "tests/attacks/test_a1_test_records_of_clients.py"

SIZES = "tests/attacks/test_a9_plan_tells_no_size_of_a_client.py"
RESUMED = "tests/attacks/test_a9_resume_with_changed_records.py"

MUTANTS = (
    of(
        "baseline-passes-the-boundary",
        "the classes of clients' test records are counted and published without a charge",
        (
            "runs/evaluation.py",
            'scores = parts.boundary.release(scores, parts.provenance("test"), "the test records")',
            "pass",
        ),
        tests="tests/runs/test_quality.py",
    ),
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
            "runs/evaluation.py",
            'scores = release(evaluator.scores(params, "test"), parts.provenance("test"), "the test records")',
            'scores = evaluator.scores(params, "test")',
        ),
        tests=MEASURED,
    ),
    of(
        "held-out-is-nobodys",
        "early stopping and its numbers are measured on records that were cut from the clients'",
        ("assembly/parts.py", "    check_held_out(experiment)\n    return dataset", "    return dataset"),
        tests=MEASURED,
    ),
    of(
        "test-cut-from-owners",
        "a private run cuts its test records from the clients of a table",
        ("config/experiment.py", 'if private is None or private.unsafe_test else "nothing"', 'if True else "nothing"'),
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
        ("data/table.py", "owners.among(test) & owners.among(~test)", "False"),
        tests=MEASURED,
    ),
    of(
        "unsafe-test-unprinted",
        "a run that measures on the clients' records says that nothing is unsafe",
        ("privacy/plan/request.py", '"unsafe_preprocessing", "unsafe_test")', '"unsafe_preprocessing")'),
        tests=MEASURED,
    ),
    of(
        "sizes-in-the-plan",
        "the plan of a private run prints how many records the smallest and the largest client have",
        (
            "planning/plan.py",
            "    if parts.boundary.passes(parts.counts):\n        return {**parts",
            "    if True:\n        return {**parts",
        ),
        tests=SIZES,
    ),
    of(
        "work-of-the-clients-records",
        "joules and seconds of a private run follow the number of records that clients hold",
        (
            "assembly/parts.py",
            "        if self.boundary.passes(self.counts):\n            return self.partition.mean_size",
            "        if True:\n            return self.partition.mean_size",
        ),
        tests=SIZES,
    ),
    of(
        "public-counts-by-name",
        "a user's records count as a known data set's",
        ("data/dataset.py", "field(default_factory=Owned)", 'field(default_factory=lambda: Public("known"))'),
        tests=SIZES,
    ),
    of(
        "resumed-without-a-look",
        "a run goes on with other records than it was begun with",
        ("runs/loop.py", "            check_fingerprint(folder.path, parts)\n", "            pass\n"),
        tests=RESUMED,
    ),
    of(
        "fingerprint-without-a-key",
        "whoever guesses the records can check the guess against a run folder",
        ("runs/fingerprint.py", "hashlib.blake2b(key=secret, salt=salt,", "hashlib.blake2b(salt=salt,"),
        tests=RESUMED,
    ),
    of(
        "fingerprint-without-salt",
        "two run folders tell whether their records are the same",
        ("runs/fingerprint.py", "salt = os.urandom(16)", "salt = bytes(16)"),
        tests=RESUMED,
    ),
    of(
        "fingerprint-of-records-alone",
        "records that went to another client are not noticed",
        ("runs/fingerprint.py", "    if isinstance(owners, Shards):", "    if False:"),
        tests=RESUMED,
    ),
)
