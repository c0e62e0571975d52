"""Mutants of what is kept: a crash, a cut file or a lost one would undo what was spent, and nothing would show it."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

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
)
