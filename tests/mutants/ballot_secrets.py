"""Mutants of the secrets of ballots: each can be made out of what another party has, or found by trying all of them."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

VIEWS = "tests/attacks/test_b6_ballot_views.py"
DRAW = "seed, blind, private = entropy(_SEED), entropy(BLIND), entropy(KEY)"
STRING = "[byte & 1 for byte in self._entropy(TRANSFERS)]"
SHORT = "[byte & 1 for byte in self._entropy(16) * 8]"
POOR = "lambda size: (os.urandom(2) * size)[:size]"

MUTANTS = (
    of(
        "ballot-blind-is-the-seed",
        "the leader and the broker have the pad of every ballot",
        (
            "secagg/ballots/message.py",
            DRAW,
            "seed, private = entropy(_SEED), entropy(KEY)\n    blind = seed",
        ),
        tests=VIEWS,
    ),
    of(
        "ballot-key-of-the-blind",
        "the leader and the broker open every seed that is sealed to the helper",
        (
            "secagg/ballots/message.py",
            DRAW,
            "seed, blind = entropy(_SEED), entropy(BLIND)\n    private = hashlib.sha256(blind).digest()",
        ),
        tests=VIEWS,
    ),
    of(
        "ballot-seed-of-16-bits",
        "whoever has a masked ballot tries all pads",
        ("secagg/ballots/message.py", DRAW, DRAW + "\n    seed = seed[:2] * 8"),
        tests=VIEWS,
    ),
    of(
        "ballot-helper-string-of-16-bits",
        "a leader tries all strings of the helper, and reads the pads",
        ("secagg/ballots/helper.py", STRING, SHORT),
        tests=VIEWS,
    ),
    of(
        "ballot-leader-string-of-16-bits",
        "a helper tries all strings of the leader, and reads the masked ballots",
        ("secagg/ballots/leader.py", STRING, SHORT),
        tests=VIEWS,
    ),
    of(
        "ballot-exponents-of-16-bits",
        "the secrets of base transfers and comparisons are found by trying",
        ("secagg/ot/group.py", "scalar_reduce(entropy(_WIDE))", "scalar_reduce(entropy(2) + bytes(_WIDE - 2))"),
        tests=VIEWS,
    ),
    of(
        "ballot-check-without-the-last-column",
        "a receiver chooses differently in one column, and learns the sender's bit there",
        (
            "secagg/ot/extension.py",
            "np.array_equal(column_hashes(columns, self._point), expected)",
            "np.array_equal(column_hashes(columns, self._point)[:-1], expected[:-1])",
        ),
        tests=VIEWS,
    ),
    of(
        "ballot-transfers-kept-over-connections",
        "rows may be used up on one side alone when a connection was lost",
        ("federation/aggregation/ballots/count.py", "self._leader.forsake()  # transfers", "str()  # transfers"),
        tests=VIEWS,
    ),
    of(
        "ballot-helper-process-of-16-bits",
        "all secrets of a simulated helper are found by trying",
        ("federation/aggregation/ballots/process.py", "entropy=os.urandom", f"entropy={POOR}"),
        tests=VIEWS,
    ),
    of(
        "ballot-helper-elsewhere-of-16-bits",
        "all secrets of a deployed helper are found by trying",
        ("deployment/helper/service.py", "entropy=os.urandom", f"entropy={POOR}"),
        tests=VIEWS,
    ),
    of(
        "ballot-leader-of-16-bits",
        "all secrets of a simulated leader are found by trying",
        (
            "federation/aggregation/ballots/count.py",
            "self.helper.answer, os.urandom, toss",
            f"self.helper.answer, {POOR}, toss",
        ),
        tests=VIEWS,
    ),
    of(
        "ballot-leader-elsewhere-of-16-bits",
        "all secrets of a deployed leader are found by trying",
        ("federation/aggregation/ballots/count.py", "self.link.answer, os.urandom,", f"self.link.answer, {POOR},"),
        tests=VIEWS,
    ),
)
