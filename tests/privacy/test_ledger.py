from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.privacy.ledger import Ledger, verify
from sottovoce.privacy.plan.plan import PrivacyPlan

DIGEST = "ab" * 32
STEPS = ["before the write", "within the line", "before the sync", "after the sync"]


def ledger(path: Path, **keys: Any) -> Ledger:
    return Ledger(path, **{"digest": DIGEST, "limit": 5, "deployment": False, **keys})


def test_charges_survive_closing_and_opening(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl") as first:
        first.charge(1)
        first.charge(2)
    with ledger(tmp_path / "ledger.jsonl") as second:
        assert second.spent == 2
        assert second.left == 3


def test_the_budget_is_hard(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl", limit=2) as book:
        book.charge(1)
        assert book.affords(2)
        book.charge(2)
        assert not book.affords(3)
        with pytest.raises(PrivacyError, match="round 3 would exceed the budget: 2 of 2 are spent"):
            book.charge(3)


def test_a_repeated_round_is_free_in_simulation_and_charged_in_a_deployment(tmp_path: Path) -> None:
    with ledger(tmp_path / "simulated.jsonl") as book:
        book.charge(1)
        book.charge(1)
        assert book.spent == 1
    with ledger(tmp_path / "deployed.jsonl", deployment=True) as book:
        book.charge(1)
        book.charge(1)
        assert book.spent == 2


def test_a_resumed_simulation_may_repeat_its_last_round_though_the_budget_is_spent(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl", limit=1) as book:
        book.charge(1)
        assert book.affords(1)
        assert not book.affords(2)


def test_a_release_before_round_1_is_charged_once_and_takes_nothing_from_the_rounds(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path, limit=1, before=1) as book:
        assert book.affords(0)
        book.charge(0)
        book.charge(0)  # a simulation repeats the same noise
        assert (book.spent, book.left) == (0, 1)
        book.charge(1)
    with ledger(path, limit=1, before=1) as book:
        book.charge(0)
        assert (book.spent, book.left) == (1, 0)
    assert [json.loads(line).get("round") for line in path.read_text().splitlines()] == [None, 0, 1]


def test_a_release_before_round_1_that_nobody_planned_is_refused(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl") as book:
        assert not book.affords(0)
        with pytest.raises(PrivacyError, match="round 0 would exceed the budget: 0 of 0 are spent"):
            book.charge(0)


def test_a_deployment_cannot_repeat_its_vote_nor_hold_one_after_a_torn_line(tmp_path: Path) -> None:
    with ledger(tmp_path / "twice.jsonl", deployment=True, before=1) as book:
        book.charge(0)
        with pytest.raises(PrivacyError, match="round 0 would exceed the budget: 1 of 1 are spent"):
            book.charge(0)
    path = tmp_path / "torn.jsonl"
    ledger(path, deployment=True, before=1).close()
    with path.open("ab") as file:
        file.write(b'{"index": 1, "kind": "cha')
    with ledger(path, deployment=True, before=1) as book:
        assert not book.affords(0), "the torn line may have been the vote"


def test_a_repeated_round_is_worth_what_it_was_the_first_time(tmp_path: Path) -> None:
    for deployment, after_two in ((False, 2), (True, 4)):
        with ledger(tmp_path / f"{deployment}.jsonl", deployment=deployment, before=1) as book:
            for round_ in range(5):
                book.charge(round_)
            assert book.spent_after(2) == after_two
            assert book.spent_after(4) == 4


def test_two_processes_cannot_hold_one_ledger(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl"), pytest.raises(PrivacyError, match="in use by another process"):
        ledger(tmp_path / "ledger.jsonl")


def test_another_plan_is_refused(tmp_path: Path) -> None:
    ledger(tmp_path / "ledger.jsonl").close()

    with pytest.raises(PrivacyError, match="belongs to another plan"):
        ledger(tmp_path / "ledger.jsonl", digest="cd" * 32)
    with pytest.raises(PrivacyError, match="opened with other rules"):
        ledger(tmp_path / "ledger.jsonl", limit=6)
    with pytest.raises(PrivacyError, match="opened with other rules"):
        ledger(tmp_path / "ledger.jsonl", deployment=True)


@pytest.mark.parametrize("damage", ["change", "drop", "swap", "blank", "garbage"])
def test_a_broken_chain_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as book:
        for round_ in (1, 2, 3):
            book.charge(round_)
    lines = path.read_text().splitlines(keepends=True)
    if damage == "change":
        lines[2] = lines[2].replace('"round": 2', '"round": 9')
    elif damage == "drop":
        del lines[1]
    elif damage == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif damage == "blank":
        lines[1] = "\n"
    else:
        lines[3] = "not json\n"
    path.write_text("".join(lines))

    with pytest.raises(PrivacyError, match="the chain of hashes is broken"):
        ledger(path)


def test_a_checkpoint_ahead_of_the_ledger_is_refused(tmp_path: Path) -> None:
    with ledger(tmp_path / "ledger.jsonl") as book:
        book.charge(1)
        book.check_checkpoint(1)
        book.check_checkpoint(0)
        with pytest.raises(
            PrivacyError, match=r"the checkpoint is at round 2, but ledger\.jsonl has charged rounds up to 1"
        ):
            book.check_checkpoint(2)


def test_a_torn_end_is_dropped_in_simulation_and_counted_in_a_deployment(tmp_path: Path) -> None:
    for deployment, spent in ((False, 1), (True, 2)):
        path = tmp_path / f"{deployment}.jsonl"
        with ledger(path, deployment=deployment) as book:
            book.charge(1)
        with path.open("ab") as file:
            file.write(b'{"index": 2, "kind": "cha')
        with ledger(path, deployment=deployment) as book:
            assert book.spent == spent
            book.charge(2)
        with ledger(path, deployment=deployment) as book:
            assert book.spent == spent + 1
        assert all(json.loads(line) for line in path.read_text().splitlines())


CHILD = """
import os, signal, sys
from pathlib import Path
from sottovoce.privacy.ledger import Ledger

def step(name):
    if armed and name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

armed = False
book = Ledger(Path(sys.argv[1]), digest="ab" * 32, limit=5, deployment=sys.argv[3] == "True", step=step)
book.charge(1)
armed = True
book.charge(2)
print("opened the sum of round 2", flush=True)
"""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("deployment", [False, True])
def test_a_kill_at_any_step_never_loses_a_charge_that_was_acted_upon(
    tmp_path: Path, step: str, deployment: bool
) -> None:
    path = tmp_path / "ledger.jsonl"

    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), step, str(deployment)], capture_output=True, text=True
    )

    assert child.returncode == -signal.SIGKILL, child.stderr
    assert "opened" not in child.stdout
    with ledger(path, deployment=deployment) as book:
        # A whole line counts though nobody was told; a torn one counts in a deployment only.
        written = step in ("before the sync", "after the sync")
        torn = step == "within the line"
        assert book.spent == 1 + written + (torn and deployment)
        book.charge(2)
        book.charge(3)
    with ledger(path, deployment=deployment) as book:
        assert book.spent >= 3


@pytest.mark.parametrize("deployment", [False, True])
def test_a_full_disk_ends_a_ledger_in_one_sentence_and_leaves_a_chain_that_can_be_read(
    tmp_path: Path, deployment: bool
) -> None:
    """A process that lived on and wrote after half a line would lock everybody out of the account for ever."""
    path = tmp_path / "ledger.jsonl"
    full = False

    def step(name: str) -> None:
        if full and name == "within the line":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ledger(path, deployment=deployment, step=step) as book:
        book.charge(1)
        full = True
        with pytest.raises(RunError, match="cannot be written: No space left on device"):
            book.charge(2)
        full = False
        with pytest.raises(PrivacyError, match="could not be written before"):
            book.charge(2)
        assert book.spent == 1
    with ledger(path, deployment=deployment) as book:
        assert book.spent == 1 + deployment  # half a line may have been a charge
        book.charge(2)
    assert verify(path).problem is None


def charge_for_ever(path: str, told: Any) -> None:
    with Ledger(Path(path), digest=DIGEST, limit=10**6, deployment=True) as book:
        for round_ in range(1, 10**6):
            book.charge(round_)
            told.value = round_


def test_kills_at_random_moments_never_lose_an_acknowledged_charge(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    told = context.Value("q", 0, lock=False)
    acknowledged = 0
    for wait in (0.03, 0.017, 0.041, 0.011, 0.023):
        told.value = 0
        child = context.Process(target=charge_for_ever, args=(str(path), told))
        child.start()
        child.join(wait)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        acknowledged += told.value
        with ledger(path, limit=10**6, deployment=True) as book:
            assert book.spent >= acknowledged
    assert acknowledged > 0


def test_the_ledgers_of_server_and_client_follow_the_plan(tmp_path: Path) -> None:
    plan = PrivacyPlan.solve(
        clients=100,
        sample_rate=0.1,
        rounds=20,
        delta=1e-3,
        noise_multiplier=2.0,
        clip_norm=1.0,
        length=9,
        accountant="rdp",
    )

    with Ledger.of_server(tmp_path / "server.jsonl", plan) as book:
        assert book.left == 20
    with Ledger.of_client(tmp_path / "client.jsonl", plan) as book:
        assert book.left == plan.max_participations


def test_verifying_needs_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as book:
        for round_ in (1, 2):
            book.charge(round_)
        book.drawn(3, "c" * 64)  # what was drawn is no charge
        path.open("ab").write(b'{"index": 4, "ki')  # another charge is being written
        before = path.read_bytes()

        assert verify(path) == ([1, 2], None)
        assert path.read_bytes() == before
        book.close()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda lines: [lines[0], lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[2], lines[1]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[1].replace('"round": 1', '"round": 2'), lines[2]], "line 2 is damaged"),
        (lambda lines: [*lines[:2], "[]\n", lines[2]], "line 3 is damaged"),
        (lambda lines: lines[1:], "line 1 is damaged"),
        (lambda lines: [], "is empty"),
    ],
)
def test_verifying_finds_lines_that_were_removed_moved_changed_or_added(
    tmp_path: Path, damage: Any, problem: str
) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as book:
        for round_ in (1, 2):
            book.charge(round_)
    path.write_text("".join(damage(path.read_text().splitlines(keepends=True))))

    assert problem in str(verify(path).problem)


def test_verifying_finds_a_ledger_that_another_plan_went_on_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as book:
        book._digest = "cd" * 32
        book.charge(1)

    assert verify(path).problem == "ledger.jsonl line 2 belongs to another plan"
    assert verify(tmp_path / "none.jsonl").problem == "there is no none.jsonl"
    assert "cannot be read" in str(verify(tmp_path).problem)
