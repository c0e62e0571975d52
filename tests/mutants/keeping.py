"""Mutants of what is kept: a crash, a cut file or a lost one would undo what was spent, and nothing would show it."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

STATES = "tests/attacks/test_c2_damaged_checkpoint.py"
RESUME = "tests/attacks/test_c4_checked_on_resume.py"
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
        ("deployment/node/state.py", "if beside := [*beside,", "if False and [*beside,"),
        tests=CUT,
    ),
    of(
        "ledger-cut-is-a-ledger",
        "a node whose ledger was cut gives as often again as was cut off",
        ("deployment/node/state.py", "and not ledger.holds(head.lines, head.hash)", "and False"),
        tests=CUT,
    ),
    of(
        "marks-prove-nothing",
        "an older copy of a node's ledger and head is believed beside newer marks",
        (
            "deployment/node/state.py",
            "        self._check_marks(folder, ledger, None if head is None else head.next)\n",
            "",
        ),
        tests=CUT,
    ),
    of(
        "mark-without-charge-after-a-kill",
        "a round that may have left is not charged",
        ("deployment/node/state.py", "                    ledger.charge(round_)\n", "                    pass\n"),
        tests=CUT,
    ),
    of(
        "one-checkpoint-alone",
        "a disk that spoils one file ends a run between machines, with all its rounds spent",
        ("runs/folder.py", "shutil.copyfile(newest, older)", "pass"),
        tests=STATES,
    ),
    of(
        "damaged-checkpoint-kept",
        "a damaged checkpoint takes the place of the last one that is whole",
        ("runs/folder.py", 'newest.rename(newest.with_name("damaged.npz"))', "pass"),
        tests=STATES,
    ),
    of(
        "new-model-at-a-late-round",
        "a run between machines whose state is gone goes on with w_0, and all its rounds are charged",
        ("runs/journal.py", "if not done and latest > 1:", "if False:"),
        tests=STATES,
    ),
    of(
        "open-round-forgotten",
        "a round that was open when the server was killed is played again under its number",
        ("runs/journal.py", "if done and (begun is None or begun.round < done):", "if False:"),
        tests=STATES,
    ),
    of(
        "one-lost-round-alone-is-void",
        "a round whose state the disk has spoilt leaves a hole in the records",
        (
            "runs/journal.py",
            "            round_ = self.done + 1\n",
            "            round_, self.done = begun.round, begun.round - 1\n",
        ),
        tests=STATES,
    ),
    of(
        "changed-records-go-on",
        "rounds are taken out of the record, or made better, and the run goes on as if nothing was",
        ("runs/folder.py", "self._told != _records_digest(self.path, round_)", "False"),
        tests=RESUME,
    ),
    of(
        "same-noise-other-updates",
        "a simulation repeats charged rounds with the same noise on another version, and the difference has none",
        ("runs/folder.py", "(repeated := max(ledger.rounds, default=0)) > done:", "(repeated := 0) > done:"),
        tests=RESUME,
    ),
    of(
        "other-inputs-go-on",
        "a run goes on with records that are read otherwise",
        ("runs/folder.py", "elif _read_object(path) != json.loads(text):", "elif _read_object(path) is None:"),
        tests=RESUME,
    ),
    of(
        "newest-roster-forgotten",
        "a machine that lost one file takes an old roster, with a node or helper that was revoked",
        ("deployment/party.py", "is_dir() and any(used.iterdir()):", "is_dir() and False:"),
        tests=RESUME,
    ),
)
