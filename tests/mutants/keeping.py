"""Mutants of what is kept: a crash, a cut file or a lost one would undo what was spent, and nothing would show it."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

CUT = "tests/attacks/test_c1_cut_ledger.py"
WRITES = "tests/attacks/test_c3_one_durable_write.py"

MUTANTS = (
    of(
        "file-renamed-before-it-is-on-disk",
        "after a power cut a mark, a ledger's head or a checkpoint is an empty file",
        ("core/files.py", "        _sync(draft)\n        draft.replace(path)\n", "        draft.replace(path)\n"),
        tests=WRITES,
    ),
    of(
        "name-not-on-disk",
        "after a power cut the old mark is back, and a round is masked twice",
        ("core/files.py", "        raise\n    _sync(path.parent)\n", "        raise\n"),
        tests=WRITES,
    ),
    of(
        "draft-that-all-may-read",
        "another user of the machine opens a secret before it has its name",
        ("core/files.py", "os.O_EXCL, mode))\n", "os.O_EXCL, 0o666))\n"),
        tests=WRITES,
    ),
    of(
        "ledger-gone-is-a-new-ledger",
        "a node whose ledger was deleted begins to count at nothing",
        ("deployment/book.py", "if beside := [*beside,", "if False and [*beside,"),
        tests=CUT,
    ),
    of(
        "ledger-cut-is-a-ledger",
        "a node whose ledger was cut gives as often again as was cut off",
        ("deployment/book.py", "and not ledger.holds(head.lines, head.hash)", "and False"),
        tests=CUT,
    ),
    of(
        "marks-prove-nothing",
        "an older copy of a node's ledger and head is believed beside newer marks",
        ("deployment/book.py", "        self._check_marks(folder, ledger, None if head is None else head.next)\n", ""),
        tests=CUT,
    ),
    of(
        "mark-without-charge-after-a-kill",
        "a round that may have left is not charged",
        ("deployment/book.py", "                    ledger.charge(round_)\n", "                    pass\n"),
        tests=CUT,
    ),
)
